// The page of the chat. Text from the server is only ever set as text, never as HTML.

import { $, attempt, call, element, get, redraw, say, state } from "./base.js";
import { drawing, percent } from "./drawing.js";

// Conversations

const PAGE = 100;

async function listConversations() {
  const found = [];
  let last;
  do {
    const after = found.length ? `&after=${found.at(-1).id}` : "";
    last = await get(`api/conversations?limit=${PAGE}${after}`);
    found.push(...last);
  } while (last.length === PAGE && found.length < state.listed);
  const items = found.map((one) => {
    const title = one.title || "New conversation";
    return element("li", {},
      element("button", {
        class: "open", title, "data-key": `open ${one.id}`, "aria-current": String(one.id === state.id),
        onclick: attempt(() => openConversation(one.id)),
      }, element("span", {}, title)),
      element("button", {
        class: "small", "aria-label": `Delete ${title}`, "data-key": `delete ${one.id}`,
        onclick: attempt(() => deleteConversation(one.id, title)),
      }, "×"));
  });
  if (last.length === PAGE) {
    const more = attempt(async () => {
      state.listed = found.length + PAGE;
      await listConversations();
    });
    items.push(element("li", {}, element("button", { class: "wide", onclick: more }, "Older ones")));
  }
  redraw($("conversations"), items, $("new"));
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
  if (!state.running) returnQuestion();
}

async function newConversation() {
  const known = await get("api/conversations");
  const empty = known.find((one) => one.num_turns === 0);
  const { id } = empty ?? await (await call("POST", "api/conversations")).json();
  await openConversation(id);
  say("");
}

// Tells whether what a conversation stated shall be forgotten, too; null: it is not deleted.
function askDeletion(title) {
  const dialog = $("delete");
  $("delete-title").textContent = `Delete “${title}”?`;
  $("forget-too").checked = false;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    resolve(dialog.returnValue === "delete" ? $("forget-too").checked : null);
  }, { once: true }));
}

async function deleteConversation(id, title) {
  const forget = await askDeletion(title);
  if (forget === null) return;
  await call("DELETE", `api/conversations/${id}?forget=${forget}`);
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
  const { signal } = state.running = new AbortController();
  let id = null;
  try {
    if (!state.id) await newConversation();
    ({ id } = state);
    document.querySelectorAll("#turns .meta button").forEach((button) => button.remove());
    const before = $("turns").children.length;
    const shown = newTurn(question);
    $("turns").append(shown.article);
    sessionStorage.setItem(askedKey(id), JSON.stringify({ question, before }));
    toEnd();
    setRunning(true);
    const answer = await readAnswer(id, question, signal, shown);
    sessionStorage.removeItem(askedKey(id));
    say("");
    $("heard").textContent = `Answer: ${answer || "none"}`;
    if (state.id === id && !shown.article.isConnected) await openConversation(id);
    else await listConversations();
  } catch (error) {
    await restore(error, id, question);
  } finally {
    setRunning(false);
  }
}

async function readAnswer(id, question, signal, shown) {
  const reply = await call("POST", `api/conversations/${id}/ask`, { json: { question }, signal });
  let answer = null;
  for await (const [kind, data] of eventsOf(reply)) {
    if (kind === "step") shown.steps.append(stepItem(data));
    if (kind === "text") shown.answer.append(data.text);
    if (kind === "error") throw new Error(data.message);
    if (kind === "answer") {
      answer = data.answer;
      finishTurn(shown, data, true);
    }
    if (shown.article.isConnected) toEnd();
  }
  if (answer === null) throw new Error("the connection was lost");
  return answer;
}

// After a stop, a lost connection or a reload the server knows which turns there are; a question that
// is none of them stands in its field again when its conversation is shown.
const askedKey = (id) => `turngraph-asked-${id}`;

function returnQuestion() {
  const asked = JSON.parse(sessionStorage.getItem(askedKey(state.id)));
  if (!asked) return;
  const isTurn = $("turns").children.length > asked.before;
  if (!isTurn && $("question").value) return; // it waits until the field is free
  sessionStorage.removeItem(askedKey(state.id));
  if (!isTurn) $("question").value = asked.question;
}

async function restore(error, id, question) {
  const stopped = error.name === "AbortError";
  say(stopped ? "Stopped: this question is not part of the conversation." : error.message, !stopped);
  if (id === null) { // the server was away before there was a conversation
    $("question").value ||= question;
    return;
  }
  for (let wait = 250; wait < 10_000; wait *= 2) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    try {
      if (state.id === id) {
        await openConversation(id);
        returnQuestion();
      }
      return;
    } catch { /* the server is not back yet */ }
  }
}

function setRunning(running) {
  const [shown, hidden] = running ? [$("stop"), $("send")] : [$("send"), $("stop")];
  const isHeld = document.activeElement === hidden; // else the focus would fall on the body
  shown.hidden = false;
  if (isHeld) shown.focus();
  hidden.hidden = true;
  if (running) {
    say("Answering …");
    $("heard").textContent = "";
  } else state.running = null;
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

function toEnd() {
  $("turns").scrollTop = $("turns").scrollHeight;
}

// Documents

async function listDocuments() {
  const found = await get("api/documents");
  redraw($("documents"), found.map((one) => element("li", {},
    element("span", {}, one.name),
    element("button", {
      class: "small", "aria-label": `Remove ${one.name}`,
      onclick: attempt(async () => {
        await call("DELETE", `api/documents/${encodeURIComponent(one.name)}`);
        await listDocuments();
      }),
    }, "×"))), $("file"));
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
  const none = element("li", {}, "Nothing is remembered about this.");
  redraw($("facts"), facts.length ? facts : [none], $("about"));
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
  if (fact.may_have_ended !== null) parts.push(`may have ended (fact ${fact.may_have_ended})`);
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
  // it may be older than those that are listed, or gone
  const there = /^[0-9a-f]{32}$/.test(wanted) && await openConversation(wanted).then(() => true, () => false);
  if (!there && known.length) await openConversation(known[0].id);
  else if (!there) await newConversation();
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
