"use strict";
// Texts of the graph reach the page only through textContent and the canvas, never as HTML.

// What nodes and edges of each type are called; a page of themes brings its own words. The first are
// the names of their colours.
const WORDS = {
  types: ["object", "thesis", "episodic", "time"],
  names: ["objects", "theses", "episodes", "times"],
  kinds: ["object", "thesis", "episode", "time"],
  sections: ["Facts", "Theses and what they mention", "Said in", "Times"],
  relations: ["", "mentioned in", "said in", "the time of"], // of edges that name none
  cut: "those with the most edges",
};
const SIMPLE = 0;
const MAX_FOUND = 50;
const MAX_LISTED = 100;
const MAX_CLASSES = 6;
const DAY = 86400;

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const { nodes, edges, episodes } = data;
const { types: TYPES, names: NAMES, kinds: KINDS, sections: SECTIONS, relations: RELATIONS, cut: CUT } = data.words ?? WORDS;
const edgesOf = nodes.map(() => []);
edges.forEach((edge, index) => {
  edgesOf[edge.source].push(index);
  if (edge.target !== edge.source) edgesOf[edge.target].push(index);
});

// The classes of most objects have colours of their own.
const classCounts = new Map();
for (const { class: kind } of nodes) if (kind) classCounts.set(kind, (classCounts.get(kind) ?? 0) + 1);
const CLASSES = [...classCounts.keys()].sort((a, b) => classCounts.get(b) - classCounts.get(a)).slice(0, MAX_CLASSES);
const colourName = (node) => (CLASSES.includes(node.class) ? `class${CLASSES.indexOf(node.class)}` : TYPES[node.type]);

const shown = new Set([0, 1, 2, 3]);
let moment = null; // seconds since 1970; null: any time
let selected = null;
let near = new Set(); // indices of the selected node and its neighbours, or of a computed answer's ends
let counted = null; // indices of the edges that the shown answer counts; null: no answer is shown
let colours = {};
let drawing = null;

// Small helpers

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

const brief = (text, size) => (text.length > size ? `${Array.from(text).slice(0, size).join("")}…` : text);

const fold = (text) => text.normalize("NFKD").toLowerCase().replace(/\p{M}/gu, "");

function holds(item) {
  if (moment === null || !item.holds) return true;
  const [from, to] = item.holds;
  return (from === null || from < moment) && (to === null || to >= moment);
}

const visible = (node) => shown.has(node.type) && holds(node);

const edgeText = (edge) =>
  edge.type === SIMPLE
    ? `${nodes[edge.source].text} ${edge.relation || ""} ${nodes[edge.target].text}`
    : nodes[edge.target].text;

/** Return both ends of an edge and what joins them. */
function relationText(edge) {
  const [from, to] = [nodes[edge.source], nodes[edge.target]].map((node) => brief(node.text, 80));
  const times = validity(edge) && ` (${validity(edge)})`;
  return `${from} — ${edge.relation || RELATIONS[edge.type]} → ${to}${times}`;
}

function validity(item) {
  if (!item.from && !item.to) return "";
  if (!item.to) return `from ${item.from}`;
  return item.from ? `from ${item.from} to ${item.to}` : `until ${item.to}`;
}

// Drawing

const font = () => getComputedStyle(document.body).fontFamily;

const isFocused = () => selected !== null || counted !== null;

/** Colours and labels of nodes and edges; null: hidden. */
const look = {
  node(index) {
    if (!visible(nodes[index])) return null;
    return !isFocused() || near.has(index) ? colours[colourName(nodes[index])] : colours.dim;
  },
  edge(index) {
    const edge = edges[index];
    if (!holds(edge)) return null;
    if (!isFocused()) return colours.edge;
    if (counted) return counted.has(index) ? colours.accent : colours.dim;
    return edge.source === selected || edge.target === selected ? colours.accent : colours.dim;
  },
  labelled: (index) => (!isFocused() ? !nodes[index].quiet : near.has(index)),
  edgeLabels: () =>
    near.size > 25 ? [] : (edgesOf[selected] ?? []).filter((index) => look.edge(index)),
  chosen: () => selected,
  covered() {
    const [graph, status] = [byId("graph"), byId("status")].map((e) => e.getBoundingClientRect());
    return [[status.left - graph.left, status.top - graph.top, status.right - graph.left, status.bottom - graph.top]];
  },
  tip({ node, edge }, at, size) {
    const tip = byId("tip");
    tip.hidden = node === null && edge === null;
    if (tip.hidden) return;
    const text = edge === null ? nodes[node].text : relationText(edges[edge]);
    if (tip.textContent !== brief(text, 240)) tip.textContent = brief(text, 240);
    const [left, top] = beneath(at, [tip.offsetWidth, tip.offsetHeight], size);
    Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
  },
};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of [...TYPES, ...CLASSES.map((_, at) => `class${at}`), "ground", "ink", "edge", "dim", "accent"])
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  const { ground, ink, dim, accent } = colours;
  Object.assign(look, { ground, ink, dim, accent, font: font() });
}

const pace = () => (matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 250);
const redraw = () => drawing?.redraw();
const zoom = (factor) => drawing.zoom(factor, pace());
const pan = (x, y) => drawing.pan(x * 120, y * 120, pace());
const showAll = () => drawing.fit(pace());

// The panel

function select(index, center = false) {
  selected = index;
  counted = null;
  near = new Set(index === null ? [] : [index]);
  for (const edge of index === null ? [] : edgesOf[index]) {
    near.add(edges[edge].source);
    near.add(edges[edge].target);
  }
  drawing.point({});
  const inPanel = byId("panel").contains(document.activeElement);
  if (index === null && inPanel) byId("graph").focus(); // the keyboard goes on from there
  byId("panel").hidden = index === null;
  document.querySelector("main").classList.toggle("open", index !== null);
  fillPanel();
  redraw();
  if (center && index !== null) drawing.lookAt(index, pace());
}

/** Show the computed answer: what was computed, from which facts, by which plan and queries. */
function showComputed() {
  const { computed } = data;
  selected = null;
  counted = new Set(computed.facts);
  near = new Set(computed.facts.flatMap((index) => [edges[index].source, edges[index].target]));
  const panel = byId("panel");
  const title = make("h2", computed.question);
  title.dir = "auto";
  panel.replaceChildren(closer(), title, make("div", `${computed.answer} (${computed.operation})`, "answer"));
  if (computed.note) panel.append(make("div", computed.note, "faint"));
  panel.append(make("h3", `Facts (${computed.total})`), list(computed.facts));
  const cut = computed.total - computed.facts.length;
  if (cut) panel.append(make("div", `${cut} more are not on this page`, "faint"));
  panel.append(make("h3", "Plan"), make("div", computed.plan), make("h3", "SPARQL"));
  panel.append(...computed.sparql.map((query) => make("pre", query)));
  panel.hidden = false;
  panel.scrollTop = 0;
  document.querySelector("main").classList.add("open");
  redraw();
}

function closer() {
  const close = make("button", "×", "close");
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", () => select(null));
  return close;
}

function fillPanel() {
  const panel = byId("panel");
  panel.replaceChildren();
  if (selected === null) return;
  const node = nodes[selected];
  panel.append(closer(), heading(node), ...lines(node));
  if (node.quotes?.length) panel.append(make("h3", `Quotations (${node.quotes.length})`), quotations(node.quotes));
  SECTIONS.forEach((name, type) => {
    const indices = edgesOf[selected].filter((index) => edges[index].type === type);
    if (indices.length) panel.append(make("h3", `${name} (${indices.length})`), list(indices));
  });
  panel.scrollTop = 0;
}

function heading(node) {
  const title = make("h2", node.text, node.text.length > 120 ? "long" : "");
  title.prepend(make("span", "", `dot ${colourName(node)}`), " ");
  title.dir = "auto";
  return title;
}

/** Describe a node or a fact: kind, names, times, provenance. */
function lines(item) {
  const found = [];
  const add = (text) => found.push(make("div", text, "faint"));
  if (item.text !== undefined) add(item.class ? `${KINDS[item.type]}, ${item.class}` : KINDS[item.type]);
  if (item.about) add(item.about);
  const others = (item.aliases || []).filter((name) => name !== item.text);
  if (others.length) add(`also ${others.join(", ")}`);
  if (validity(item)) add(validity(item));
  if (item.maybe) add("a hypothesis");
  if (item.episode !== undefined) add(said(episodes[item.episode]));
  else if (item.said && !item.seen) add(`said ${item.said}`);
  for (const [index, quote] of item.seen || []) found.push(source(episodes[index], quote));
  return found;
}

/** List what a theme quotes, each with who says it, when it holds, and the passage to go to. */
function quotations(quotes) {
  const items = make("ul");
  for (const quote of quotes) {
    const item = make("li", undefined, holds(quote) ? "" : "past");
    const text = make("div", undefined, "fact");
    text.append(make("q", quote.text));
    const line = make("div", "", "faint");
    const from = said(episodes[quote.episode]);
    line.append(quote.node === undefined ? from : link(quote.node, from));
    item.append(text, line);
    if (validity(quote)) item.append(make("div", validity(quote), "faint"));
    items.append(item);
  }
  return items;
}

const said = (episode) =>
  [episode.source, episode.speaker, episode.said].filter(Boolean).join(" · ") || "no source given";

function source(episode, quote) {
  const line = make("div", "", "faint");
  line.append(episode.node === undefined ? said(episode) : link(episode.node, said(episode)));
  if (quote) line.append(": ", make("q", quote));
  return line;
}

function link(index, text) {
  const button = make("button", text, "link");
  button.type = "button";
  button.addEventListener("click", () => openNode(index));
  return button;
}

/** Choose a node, and give its panel the focus. */
function openNode(index) {
  select(index, true);
  byId("panel").querySelector("button").focus();
}

function list(indices) {
  const items = make("ul");
  const more = (from) => {
    for (const index of indices.slice(from, from + MAX_LISTED)) items.append(fact(index));
    const rest = indices.length - from - MAX_LISTED;
    if (rest <= 0) return;
    const item = make("li");
    const button = make("button", `${rest} more`);
    button.addEventListener("click", () => (item.remove(), more(from + MAX_LISTED)));
    item.append(button);
    items.append(item);
  };
  more(0);
  return items;
}

/** Make the line of a fact; while it has the pointer or the focus, its edge is shown. */
function fact(index) {
  const edge = edges[index];
  const item = make("li", undefined, holds(edge) ? "" : "past");
  const point = (on) => drawing.isShown(index) && drawing.point({ edge: on ? index : null });
  for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]])
    item.addEventListener(event, () => point(on));
  const text = make("div", undefined, "fact");
  const end = (index) => (index === selected ? make("b", nodes[index].text) : link(index, brief(nodes[index].text, 200)));
  if (edge.type === SIMPLE) text.append(end(edge.source), ` ${edge.relation || ""} `, end(edge.target));
  else text.append(end(edge.source === selected ? edge.target : edge.source));
  item.append(text, ...lines(edge));
  return item;
}

// Search

const searched = [
  ...nodes.map((node, index) => ({ index, text: node.text, type: node.type, words: fold([node.text, ...(node.aliases || []), ...(node.quotes || []).map((quote) => quote.text)].join("\n")) })),
  ...edges
    .filter((edge) => edge.type === SIMPLE)
    .map((edge) => ({ index: edge.source, text: edgeText(edge), type: 0, words: fold(edgeText(edge)) })),
];
let found = [];
let chosen = 0;

function search(text) {
  const whole = fold(text.trim());
  const words = whole.split(/\s+/).filter(Boolean);
  const rank = ({ words: own, text: shownText }) =>
    (own === whole ? 0 : own.startsWith(whole) ? 1 : own.includes(whole) ? 2 : 3) + shownText.length / 1e7;
  found = words.length
    ? searched
        .filter((item) => words.every((word) => item.words.includes(word)))
        .sort((one, other) => rank(one) - rank(other))
    : [];
  chosen = 0;
  showFound(words.length > 0);
}

function showFound(searching) {
  const results = byId("found");
  results.replaceChildren();
  showResults(searching);
  found.slice(0, MAX_FOUND).forEach((item, position) => {
    const row = make("li");
    row.setAttribute("role", "option");
    row.id = `found${position}`;
    row.dir = "auto";
    row.append(make("span", "", `dot ${TYPES[item.type]}`), ` ${brief(item.text, 160)}`);
    row.addEventListener("click", () => choose(position));
    results.append(row);
  });
  const rest = found.length - MAX_FOUND;
  if (!found.length || rest > 0) {
    const row = make("li", rest > 0 ? `and ${rest.toLocaleString("en")} more` : "nothing found", "none");
    for (const [name, value] of [["role", "option"], ["aria-disabled", "true"]]) row.setAttribute(name, value);
    results.append(row);
  }
  mark();
}

function showResults(on) {
  byId("found").hidden = !on;
  byId("search").setAttribute("aria-expanded", on);
}

function mark() {
  const rows = [...byId("found").querySelectorAll("[role=option]")].slice(0, Math.min(found.length, MAX_FOUND));
  rows.forEach((row, position) => row.setAttribute("aria-selected", position === chosen));
  rows[chosen]?.scrollIntoView({ block: "nearest" });
  byId("search").setAttribute("aria-activedescendant", rows[chosen]?.id ?? "");
}

function choose(position) {
  if (!found[position]) return;
  showResults(false);
  const node = nodes[found[position].index];
  if (!shown.has(node.type)) toggleType(node.type, true);
  openNode(found[position].index);
}

function searchKey(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    const count = Math.min(found.length, MAX_FOUND);
    chosen = count ? (chosen + step + count) % count : 0;
    mark();
    event.preventDefault();
  } else if (event.key === "Enter") {
    choose(chosen);
    event.preventDefault(); // or it presses the button that gets the focus
  }
}

// Types and times

function toggleType(type, on) {
  if (on) shown.add(type);
  else shown.delete(type);
  byId("types").querySelectorAll("input")[type].checked = on;
  redraw();
}

function makeTypes() {
  NAMES.forEach((_, type) => {
    const name = TYPES[type];
    const label = make("label");
    const box = make("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => toggleType(type, box.checked));
    const count = nodes.filter((node) => node.type === type).length;
    label.append(box, make("span", "", `dot ${name}`), NAMES[type], make("span", count.toLocaleString("en"), "count"));
    byId("types").append(label);
  });
  CLASSES.forEach((name, at) => {
    const entry = make("span", undefined, "class");
    entry.append(make("span", "", `dot class${at}`), ` ${name} `, make("span", classCounts.get(name).toLocaleString("en"), "count"));
    byId("types").append(entry);
  });
}

const moments = [...new Set([...nodes, ...edges, ...nodes.flatMap((node) => node.quotes || [])].flatMap((item) => item.holds || []))]
  .filter((time) => time !== null)
  .sort((one, other) => one - other);

const isoDay = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);

function setMoment(seconds, field) {
  moment = seconds;
  if (field !== "date") byId("date").value = seconds === null ? "" : isoDay(seconds - 1);
  if (field !== "slider")
    byId("slider").value = seconds === null ? moments.length : Math.max(moments.filter((time) => time < seconds).length - 1, 0);
  byId("always").disabled = seconds === null;
  fillPanel();
  redraw();
}

function makeTimes() {
  const slider = byId("slider");
  byId("time").hidden = !moments.length;
  slider.max = moments.length;
  slider.value = moments.length;
  byId("always").disabled = true;
  slider.addEventListener("input", () =>
    setMoment(Number(slider.value) === moments.length ? null : moments[slider.value] + 1, "slider"),
  );
  byId("date").addEventListener("input", ({ target }) => {
    const day = Date.parse(`${target.value}T00:00:00Z`);
    setMoment(Number.isNaN(day) ? null : day / 1000 + DAY, "date"); // the end of that day
  });
  byId("always").addEventListener("click", () => setMoment(null));
}

// Start

function toggleTheme() {
  document.documentElement.classList.toggle("dark");
  readColours();
  redraw();
}

/** Point at the next edge of the chosen node, or of the graph, and say how it joins its ends. */
function walkEdges(step) {
  const all = selected === null ? [...edges.keys()] : edgesOf[selected];
  const seen = all.filter((index) => drawing.isShown(index));
  if (!seen.length) return;
  const at = seen.indexOf(drawing.pointed.edge);
  const next = at < 0 ? (step > 0 ? 0 : seen.length - 1) : (at + step + seen.length) % seen.length;
  drawing.showEdge(seen[next], pace());
}

/** Point at the next node that has a label, the largest first. */
function walkNodes(step) {
  const seen = drawing.order.filter((index) => !nodes[index].quiet && look.node(index));
  if (!seen.length) return;
  const at = seen.indexOf(drawing.pointed.node ?? selected);
  const next = at < 0 ? (step > 0 ? 0 : seen.length - 1) : (at + step + seen.length) % seen.length;
  drawing.showNode(seen[next], pace());
}

function closeTop() {
  if (drawing.pointed.edge !== null || drawing.pointed.node !== null) drawing.point({});
  else if (!byId("found").hidden) showResults(false);
  else if (document.activeElement === byId("search")) byId("search").blur();
  else select(null);
}

const KEYS = {
  "/": () => (byId("search").focus(), byId("search").select()),
  "+": () => zoom(1.5),
  "=": () => zoom(1.5),
  "-": () => zoom(1 / 1.5),
  0: showAll,
  c: () => data.computed && showComputed(),
  d: toggleTheme,
  e: () => walkEdges(1),
  E: () => walkEdges(-1),
  n: () => walkNodes(1),
  N: () => walkNodes(-1),
  "?": () => byId("keys").showModal(),
  ArrowLeft: () => pan(-1, 0),
  ArrowRight: () => pan(1, 0),
  ArrowUp: () => pan(0, -1),
  ArrowDown: () => pan(0, 1),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.key === "Escape") closeTop();
  else if (event.key === "Enter" && event.target === byId("graph") && drawing.pointed.node !== null) openNode(drawing.pointed.node);
  else if (event.target.matches("input") || !Object.hasOwn(KEYS, event.key)) return;
  else KEYS[event.key]();
  event.preventDefault();
}

function begin() {
  document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  readColours();
  makeTypes();
  makeTimes();
  const count = (number) => number.toLocaleString("en");
  const part = nodes.length < data.total ? ` of ${count(data.total)} nodes, ${CUT}` : " nodes";
  byId("status").textContent = `${count(nodes.length)}${part}; ${count(edges.length)} edges`;
  nodes.forEach((node, index) => {
    node.size = Math.min(2.5 + 1.5 * Math.log2(1 + (node.members ?? edgesOf[index].length)), 14);
    node.label = brief(node.text, 48);
  });
  drawing = new Drawing(byId("canvas"), { nodes, edges }, look, select);
  byId("search").addEventListener("input", ({ target }) => search(target.value));
  byId("search").addEventListener("focus", ({ target }) => search(target.value));
  byId("search").addEventListener("keydown", searchKey);
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".search")) showResults(false);
  });
  document.addEventListener("keydown", onKey);
  byId("larger").addEventListener("click", KEYS["+"]);
  byId("smaller").addEventListener("click", KEYS["-"]);
  byId("all").addEventListener("click", showAll);
  byId("theme").addEventListener("click", toggleTheme);
  byId("help").addEventListener("click", KEYS["?"]);
  byId("computed").addEventListener("click", KEYS.c);
  byId("computed").hidden = !data.computed;
  if (data.computed) showComputed();
}

begin();
