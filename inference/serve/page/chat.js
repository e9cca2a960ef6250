// The page of the chat. Text from the server is only ever set as text, never as HTML.

const $ = (id) => document.getElementById(id);
const state = { id: null, token: localStorage.getItem("turngraph-token"), running: null };

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

async function call(method, path, { json, body, signal } = {}) {
  const headers = {};
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  if (json !== undefined) headers["Content-Type"] = "application/json";
  const reply = await fetch(path, {
    method, headers, signal, body: json === undefined ? body : JSON.stringify(json),
  });
  if (reply.status === 401) {
    await logIn();
    return call(method, path, { json, body, signal });
  }
  if (!reply.ok) {
    const said = await reply.json().catch(() => null);
    throw new Error(said?.error?.message ?? `the server answered ${reply.status}`);
  }
  return reply;
}

const get = async (path) => (await call("GET", path)).json();

function logIn() {
  $("login").showModal();
  return new Promise((resolve) => {
    $("login").addEventListener("close", () => {
      state.token = $("token").value.trim();
      localStorage.setItem("turngraph-token", state.token);
      resolve();
    }, { once: true });
  });
}

function attempt(action) {
  return async (...given) => {
    try {
      await action(...given);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message, true);
    }
  };
}

// Conversations

async function listConversations() {
  const found = await get("api/conversations");
  $("conversations").replaceChildren(...found.map((one) => {
    const title = one.title || "New conversation";
    return element("li", {},
      element("button", {
        class: "open", title, "aria-current": String(one.id === state.id),
        onclick: attempt(() => openConversation(one.id)),
      }, element("span", {}, title)),
      element("button", {
        class: "small", "aria-label": `Delete ${title}`,
        onclick: attempt(() => deleteConversation(one.id, title)),
      }, "×"));
  }));
  return found;
}

async function openConversation(id) {
  const found = await get(`api/conversations/${id}`);
  state.id = id;
  history.replaceState(null, "", `#${id}`);
  $("turns").replaceChildren(...found.turns.map((turn, index) => {
    const shown = newTurn(turn.question);
    finishTurn(shown, turn, index === found.turns.length - 1);
    return shown.article;
  }));
  await listConversations();
  close($("side"), $("menu"));
  toEnd();
  $("question").focus();
}

async function newConversation() {
  const known = await get("api/conversations");
  const empty = known.find((one) => one.num_turns === 0);
  const { id } = empty ?? await (await call("POST", "api/conversations")).json();
  await openConversation(id);
  say("");
}

async function deleteConversation(id, title) {
  if (!confirm(`Delete "${title}"? What it stated stays in the memory until you forget it.`)) return;
  await call("DELETE", `api/conversations/${id}`);
  if (id === state.id) await start();
  else await listConversations();
}

// Turns

function newTurn(question) {
  const answer = element("p", { class: "answer" });
  const more = element("div");
  const steps = element("ol", { class: "steps", "aria-label": "Steps of the plan" });
  const article = element("article", {},
    element("p", { class: "question" }, question), steps, answer, more);
  return { article, steps, answer, more };
}

function tag(passage, turn) {
  if (passage.source === "memory") return "from memory";
  const told = passage.from_turn < turn ? `from question ${passage.from_turn + 1}` : "new";
  return `${passage.source}, ${told}`;
}

function stepItem(step) {
  return element("li", {}, step.text,
    element("span", { class: "times" }, step.starts ? `at ${step.starts}: ${step.found}` : step.found));
}

function finishTurn(shown, record, isLast) {
  const turn = Number(record.turn);
  const sure = record.confidence != null
    ? element("span", { title: "how often answers like this one are right" },
      `confidence ${percent(record.confidence)}`)
    : element("span", { title: "how sure the model is; not how often it is right" },
      `probability ${percent(record.probability ?? Math.exp(record.logprob))}`);
  shown.answer.textContent = record.answer || "(no answer)";
  const why = element("div");
  const buttons = isLast ? [
    element("button", { class: "small", onclick: attempt(() => showWhy(why)) }, "Why?"),
    element("button", { class: "small", onclick: attempt(undo) }, "Undo"),
    element("button", { class: "small", onclick: attempt(save) }, "Save"),
  ] : [];
  const passages = record.evidence.map((passage) => element("div", { class: "passage" },
    element("span", { class: "tag" }, tag(passage, turn)),
    element("div", {}, passage.text)));
  const count = record.evidence.length;
  shown.more.replaceChildren(
    element("div", { class: "meta" },
      sure, record.withheld == null ? null : element("span", {}, `it would have said: ${record.withheld || "(nothing)"}`),
      ...buttons),
    count ? element("details", {},
      element("summary", {}, `Evidence: ${count} passage${count === 1 ? "" : "s"}`), ...passages)
      : element("p", { class: "meta" }, "No evidence was found."),
    why);
}

async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [kind, data] = block.split("\n");
      yield [kind.slice(7), JSON.parse(data.slice(6))];
    }
  }
}

async function ask(question) {
  if (!state.id) await newConversation();
  document.querySelectorAll("#turns .meta button").forEach((button) => button.remove());
  const id = state.id;
  const before = $("turns").children.length;
  const shown = newTurn(question);
  $("turns").append(shown.article);
  sessionStorage.setItem("turngraph-asked", JSON.stringify({ id, question, before }));
  toEnd();
  state.running = new AbortController();
  setRunning(true);
  let ended = false;
  try {
    const reply = await call("POST", `api/conversations/${id}/ask`,
      { json: { question }, signal: state.running.signal });
    for await (const [kind, data] of eventsOf(reply)) {
      if (kind === "step") shown.steps.append(stepItem(data));
      if (kind === "text") shown.answer.append(data.text);
      if (kind === "error") throw new Error(data.message);
      if (kind === "answer") {
        ended = true;
        finishTurn(shown, data, true);
      }
      toEnd();
    }
    if (!ended) throw new Error("the connection was lost");
    sessionStorage.removeItem("turngraph-asked");
    say("");
    await listConversations();
  } catch (error) {
    await restore(error);
  } finally {
    setRunning(false);
  }
}

// After a stop, a lost connection or a reload the server knows which turns there are; a question that
// is none of them stands in its field again.
function returnQuestion() {
  const asked = JSON.parse(sessionStorage.getItem("turngraph-asked"));
  if (asked?.id !== state.id) return;
  sessionStorage.removeItem("turngraph-asked");
  if ($("turns").children.length <= asked.before) $("question").value ||= asked.question;
}

async function restore(error) {
  const { id } = state;
  const stopped = error.name === "AbortError";
  say(stopped ? "Stopped: this question is not part of the conversation." : error.message, !stopped);
  for (let wait = 250; wait < 10_000; wait *= 2) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    try {
      if (state.id === id) await openConversation(id);
      returnQuestion();
      return;
    } catch { /* the server is not back yet */ }
  }
}

function setRunning(running) {
  $("send").hidden = running;
  $("stop").hidden = !running;
  if (running) say("Answering …");
  else state.running = null;
}

async function undo() {
  const reply = await call("POST", `api/conversations/${state.id}/undo`);
  const { question } = await reply.json();
  await openConversation(state.id);
  $("question").value = question;
}

async function save() {
  const reply = await call("GET", `api/conversations/${state.id}/save`);
  const href = URL.createObjectURL(await reply.blob());
  element("a", { href, download: `conversation-${state.id.slice(0, 8)}.jsonl` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

async function showWhy(place) {
  say("Looking for the reasons …");
  const found = await get(`api/conversations/${state.id}/why`);
  say("");
  const passages = found.passages.map((one, index) => ({ ...one, index }))
    .filter((one) => one.share > 0).sort((a, b) => b.share - a.share).slice(0, 8);
  const origins = { new: "new", memory: "from an earlier question", remembered: "from memory" };
  place.replaceChildren(element("details", { open: "" },
    element("summary", {}, "Share of each passage in the answer"),
    drawing(found.answer, passages, found.edges, place.clientWidth),
    ...passages.map((one) => element("div", { class: "passage" },
      element("span", { class: "tag" }, `${percent(one.share)} · ${origins[one.origin]}`),
      element("div", {}, one.text),
      bar(one.share)))));
  place.scrollIntoView({ block: "start" });
}

function bar(share) {
  const made = element("div", { class: "bar" });
  made.style.width = `${100 * share}%`;
  return made;
}

// The answer, its passages, and the graph between them: an arc joins passages that name the same
// entity. One unit is one pixel, so that its text is as large as other text.
function drawing(answer, passages, edges, width) {
  const part = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const step = 30, height = step * passages.length + 14, middle = height / 2;
  const left = Math.min(130, width / 4), right = left + Math.min(80, width / 6), arc = 34;
  const y = (row) => 22 + step * row;
  const label = (x, at, text, room, more = {}) => part("text", { x, y: at + 4, ...more },
    shorten(text, Math.max(4, Math.floor(room / 7.2))));
  const svg = part("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" },
    part("title", {}, "The answer, joined to each passage by a line as thick as its share; "
      + "arcs join passages that name the same entity"),
    label(left - 8, middle, answer || "(no answer)", left - 12, { "text-anchor": "end" }));
  passages.forEach((one, row) => svg.append(
    part("line", { x1: left, y1: middle, x2: right, y2: y(row), "stroke-width": 1 + 9 * one.share })));
  for (const edge of edges) {
    const [from, to] = [edge.first, edge.second]
      .map((index) => passages.findIndex((one) => one.index === index)).sort((a, b) => a - b);
    if (from < 0) continue;
    const bend = right + Math.min(arc, 10 + 8 * (to - from));
    svg.append(part("path", {
      d: `M ${right} ${y(from)} Q ${bend} ${(y(from) + y(to)) / 2} ${right} ${y(to)}`,
      "stroke-width": 1 + 5 * edge.share,
    }, part("title", {}, `${edge.entity}: ${percent(edge.share)} of all edges`)));
  }
  passages.forEach((one, row) => svg.append(
    part("circle", { cx: right, cy: y(row), r: 3 + 6 * one.share }),
    label(right + arc, y(row), one.text, width - right - arc - 8)));
  return svg;
}

const percent = (share) => `${Math.round(100 * share)} %`;
const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function toEnd() {
  $("turns").scrollTop = $("turns").scrollHeight;
}

// Documents

async function listDocuments() {
  const found = await get("api/documents");
  $("documents").replaceChildren(...found.map((one) => element("li", {},
    element("span", {}, one.name),
    element("button", {
      class: "small", "aria-label": `Remove ${one.name}`,
      onclick: attempt(async () => {
        await call("DELETE", `api/documents/${encodeURIComponent(one.name)}`);
        await listDocuments();
      }),
    }, "×"))));
}

async function upload(files) {
  const read = [], refused = [];
  for (const file of files) {
    say(`Reading ${file.name} …`);
    try {
      const path = `api/documents/${encodeURIComponent(file.name)}`;
      const { num_passages: num, warnings } = await (await call("PUT", path, { body: file })).json();
      read.push(`${file.name}: ${num} passage${num === 1 ? "" : "s"}`, ...warnings);
    } catch (error) { // the other files are read all the same
      refused.push(error.message.includes(file.name) ? error.message : `${file.name}: ${error.message}`);
    }
  }
  say([...refused, ...read].join("; "), refused.length > 0);
  await listDocuments();
}

// Memory

async function recall() {
  const query = new URLSearchParams({ question: $("about").value });
  if ($("as-of").value) query.set("as_of", $("as-of").value);
  $("steps").replaceChildren();
  const found = $("by-plan").checked ? await recallByPlan(query) : await get(`api/memory/ask?${query}`);
  if (!$("as-of").value) setSlider(found.facts);
  const facts = found.facts.map((fact) => element("li", {},
    fact.text,
    element("span", { class: "times" }, times(fact)),
    ...fact.entities.slice(0, 3).map(({ name }) => element("button", {
      class: "small", onclick: attempt(() => forget(name)),
    }, `Forget ${name}`))));
  $("facts").replaceChildren(...(facts.length ? facts : [element("li", {}, "Nothing is remembered about this.")]));
}

async function recallByPlan(query) {
  let found;
  for await (const [kind, data] of eventsOf(await call("GET", `api/memory/plan?${query}`))) {
    if (kind === "step") $("steps").append(stepItem(data));
    if (kind === "error") throw new Error(data.message);
    if (kind === "answer") found = data;
  }
  if (!found) throw new Error("the connection was lost");
  const answer = found.plan?.answer;
  if (answer && !$("steps").textContent.endsWith(`→ ${answer}`)) {
    $("steps").append(element("li", {}, `Answer: ${answer}`));
  }
  return found;
}

// The slider goes in days from the first fact that was found to today.
const DAY = 86_400_000;
const dayOf = (text) => Math.floor(Date.parse(text) / DAY);

function setSlider(facts) {
  const times = facts.flatMap((fact) => [fact.valid_from, ...fact.provenance.map((one) => one.said)]);
  const days = times.map((time) => dayOf(time ?? "")).filter(Number.isFinite);
  const slider = $("as-of-slider");
  slider.hidden = days.length === 0;
  if (slider.hidden) return;
  slider.max = dayOf(new Date().toISOString());
  slider.min = Math.min(...days, slider.max) - 1;
  slider.value = slider.max;
}

function slide() {
  const day = new Date(Number($("as-of-slider").value) * DAY).toISOString().slice(0, 10);
  $("as-of-slider").setAttribute("aria-valuetext", day);
  $("as-of").value = day;
}

function times(fact) {
  const parts = [];
  if (fact.valid_from) parts.push(`from ${fact.valid_from}`);
  if (fact.valid_to) parts.push(`until ${fact.valid_to}`);
  const said = fact.provenance.at(-1)?.said;
  if (said) parts.push(`said ${said.slice(0, 16).replace("T", " ")}`);
  return parts.join(", ");
}

async function forget(name) {
  const json = { entity: name, dry_run: true };
  const would = await (await call("POST", "api/memory/forget", { json })).json();
  if (!confirm(`Forget ${name} for good? ${would.episodes} texts and ${would.triplets} facts.`)) return;
  await call("POST", "api/memory/forget", { json: { entity: name } });
  say(`${name} is forgotten.`);
  await recall();
}

// Events

function close(part, button) {
  part.classList.remove("shown");
  button.setAttribute("aria-expanded", "false");
}

function toggles(button, part) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-expanded", String(part.classList.toggle("shown")));
  });
  part.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      close(part, button);
      button.focus();
    }
  });
}

async function start() {
  const known = await listConversations();
  const wanted = location.hash.slice(1);
  const found = known.find((one) => one.id === wanted) ?? known[0];
  if (found) await openConversation(found.id);
  else await newConversation();
  returnQuestion();
  await listDocuments();
}

toggles($("menu"), $("side"));
toggles($("panel-button"), $("panel"));
$("new").addEventListener("click", attempt(newConversation));
$("ask").addEventListener("submit", attempt(async (event) => {
  event.preventDefault();
  const question = $("question").value.trim();
  if (!question || state.running) return;
  $("question").value = "";
  await ask(question);
}));
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});
$("stop").addEventListener("click", () => state.running?.abort());
$("file").addEventListener("change", attempt(async () => {
  await upload([...$("file").files]);
  $("file").value = "";
}));
// Anywhere on the page: the browser would leave it for a file that is dropped beside the field.
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, attempt(async (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") await upload([...event.dataTransfer.files]);
  }));
}
$("as-of-slider").addEventListener("input", slide);
$("as-of-slider").addEventListener("change", attempt(recall));
$("recall").addEventListener("submit", attempt(async (event) => {
  event.preventDefault();
  await recall();
}));
attempt(start)();
