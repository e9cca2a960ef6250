"use strict";
// Texts of the graph reach the page only through textContent and Cytoscape's canvas, never as HTML.

// Words for nodes and edges of each type; the data of a page of themes has its own. ``types`` are also
// the names of the colours.
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
let pointed = { node: null, edge: null }; // node or edge at which the pointer or a key points
let drawing = null;
let summary = ""; // text about the part of the graph on the page

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
  for (let at = 0; at < item.holds.length; at += 2) {
    const [from, to] = item.holds.slice(at, at + 2);
    if ((from === null || from < moment) && (to === null || to >= moment)) return true;
  }
  return false;
}

const visible = (node) => shown.has(node.type) && holds(node);

const edgeText = (edge) =>
  edge.type === SIMPLE
    ? `${nodes[edge.source].text} ${edge.relation || ""} ${nodes[edge.target].text}`
    : nodes[edge.target].text;

/** Return the text of an edge: its ends, its relation and its times. */
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

const MANY = 600; // with more nodes, edges are hidden while the view moves
const NAMED = 25; // with at most so many neighbours, the edges of a chosen node are labelled
const LABELS = 60;
const CORE = 300; // nodes that the force layout places; the others lie around a neighbour

const LETTER = 13; // pixels
const REST = 150; // milliseconds without movement before labels are placed

const font = () => getComputedStyle(document.body).fontFamily;

const isFocused = () => selected !== null || counted !== null;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Indices of the nodes: those of the first type first, each group by falling size. */
const order = [...nodes.keys()].sort((a, b) => (nodes[a].type > 0) - (nodes[b].type > 0) || sizeOf(b) - sizeOf(a));

function sizeOf(index) {
  return Math.min(10 + 8 * Math.log2(1 + (nodes[index].members ?? edgesOf[index].length)), 60);
}

// Nodes that the force layout places: all of a small graph, else the largest objects or themes.
const ranked = nodes.length > CORE ? order.filter((index) => !nodes[index].quiet && nodes[index].type < (data.words ? 2 : 1)) : order;
const largest = new Set(ranked.slice(0, CORE));
const otherEnd = (edge, index) => (edges[edge].source === index ? edges[edge].target : edges[edge].source);
// Without an edge to another of the largest, a node has no forces: it lies around a neighbour, too.
const isJoined = (index) => edgesOf[index].some((edge) => otherEnd(edge, index) !== index && largest.has(otherEnd(edge, index)));
const inCore = new Set([...largest].filter(isJoined));
const isCore = (index) => inCore.has(index);

function draw() {
  const many = nodes.length > MANY;
  drawing = cytoscape({
    container: byId("drawing"),
    elements: [
      ...nodes.map(({ text }, index) => ({
        data: { id: `n${index}`, index, label: brief(text, 32), size: isCore(index) ? sizeOf(index) : 10 },
      })),
      ...edges.map(({ source, target, relation }, index) => ({
        data: { id: `e${index}`, index, source: `n${source}`, target: `n${target}`, label: relation || "" },
      })),
    ],
    style: style(),
    layout: { name: "preset" },
    hideEdgesOnViewport: many, textureOnViewport: many, pixelRatio: many ? 1 : "auto",
    maxZoom: 4, boxSelectionEnabled: false, autounselectify: true, autoungrabify: true,
  });
  drawing.on("tap", "node", ({ target }) => select(target.data("index")));
  drawing.on("tap", ({ target }) => target === drawing && select(null));
  drawing.on("mouseover", "node", ({ target }) => point({ node: target.data("index") }));
  drawing.on("mouseover", "edge", ({ target }) => point({ edge: target.data("index") }));
  drawing.on("mouseout", "node, edge", () => point({}));
  drawing.on("viewport resize", nameSoon);
  redraw();
  arrange();
}

let naming = null;
function nameSoon() {
  clearTimeout(naming);
  naming = setTimeout(nameNodes, REST);
}

/** Label the chosen node, its neighbours, and the largest nodes, without overlapping labels. */
function nameNodes() {
  const taken = [];
  const [width, height, scale] = [drawing.width(), drawing.height(), 1 / drawing.zoom()];
  const named = new Set();
  const first = [selected, ...near].filter((index) => index !== null);
  for (const index of new Set([...first, ...(isFocused() ? [] : order.filter((index) => !nodes[index].quiet))])) {
    const node = drawing.getElementById(`n${index}`);
    const { x, y } = node.renderedPosition();
    const [half, top] = [0.29 * LETTER * node.data("label").length + 3, y + node.renderedHeight() / 2];
    const [left, right, bottom] = [x - half, x + half, top + 1.5 * LETTER];
    if (node.hidden() || left < 0 || top < 0 || right > width || bottom > height) continue;
    if (taken.some(([a, b, c, d]) => left < c && a < right && top < d && b < bottom)) continue;
    taken.push([left, top, right, bottom]);
    named.add(index);
    if (taken.length === LABELS) break;
  }
  drawing.batch(() => {
    drawing.nodes(".named").filter((node) => !named.has(node.data("index"))).removeClass("named");
    for (const index of named) drawing.getElementById(`n${index}`).addClass("named").style("font-size", LETTER * scale);
    drawing.edges(".named").style("font-size", LETTER * scale);
  });
}

/** Place the core nodes by forces, then each other node around a neighbour that is placed already. */
function arrange() {
  const spiral = (turn, step, { x, y } = { x: 0, y: 0 }) => {
    const [angle, far] = [2.4 * turn, step * Math.sqrt(turn)]; // the same picture each time
    return { x: x + far * Math.cos(angle), y: y + far * Math.sin(angle) };
  };
  const at = (index) => drawing.getElementById(`n${index}`);
  const first = order.filter(isCore);
  first.forEach((index, turn) => at(index).position(spiral(turn, 90)));
  const core = drawing.collection(first.map(at));
  const room = Math.max(nodes.length / CORE, 1); // for the nodes around the core
  const forces = { name: "cose", animate: false, randomize: false, fit: false, numIter: 400, nodeRepulsion: () => 90_000 * room, idealEdgeLength: () => 80 * Math.sqrt(room) };
  core.union(core.edgesWith(core)).layout(forces).run();
  const placed = first.reverse(); // small nodes first: large ones have enough neighbours
  const seen = new Set(placed);
  for (const index of placed) { // the loop appends to ``placed``
    let turn = 3 + (at(index).data("size") / 16) ** 2;
    for (const edge of edgesOf[index]) {
      const other = otherEnd(edge, index);
      if (seen.has(other)) continue;
      seen.add(other);
      placed.push(other);
      at(other).position(spiral(turn++, 16, at(index).position()));
    }
  }
  const rest = order.filter((index) => !seen.has(index));
  rest.forEach((index, turn) => at(index).position(spiral(turn + 2 * placed.length, 60)));
  drawing.fit(undefined, 30);
}

function style() {
  const [ink, ground, accent, edge] = ["ink", "ground", "accent", "edge"].map(colour);
  const written = { color: ink, "font-family": font(), "text-outline-color": ground, "text-outline-width": 2 };
  return [
    { selector: "node", style: { ...written, width: "data(size)", height: "data(size)", "text-valign": "bottom", "text-margin-y": 2 } },
    ...[...TYPES, ...CLASSES.map((_, at) => `class${at}`)].map((name) => ({ selector: `node.${name}`, style: { "background-color": colour(name) } })),
    { selector: "edge", style: { ...written, "line-color": edge, width: 1.5, opacity: nodes.length > MANY ? 0.5 : 0.9, "font-size": 13 } },
    { selector: ".far", style: { opacity: 0.15 } },
    { selector: "node.named", style: { label: "data(label)", "z-index": 5 } },
    { selector: "edge.near", style: { "line-color": accent, opacity: 1, width: 2.5, "z-index": 5 } },
    { selector: "edge.named", style: { label: "data(label)", "text-rotation": "autorotate", "target-arrow-shape": "triangle", "target-arrow-color": accent, "curve-style": "bezier" } },
    { selector: "node.chosen, node.pointed", style: { "outline-width": 4, "outline-color": accent, "outline-offset": 3, "z-index": 10 } },
    { selector: "edge.pointed", style: { "line-color": accent, opacity: 1, width: 5, "z-index": 10 } },
    { selector: ".hidden", style: { display: "none" } },
  ];
}

const isNear = (index) => (counted ? counted.has(index) : edges[index].source === selected || edges[index].target === selected);

/** Set the style classes of all nodes and edges: chosen, near, far, hidden, named, pointed. */
function redraw() {
  drawing?.batch(() => {
    const focused = isFocused();
    nodes.forEach((node, index) => {
      const names = [colourName(node), !visible(node) && "hidden", focused && !near.has(index) && "far",
        index === selected && "chosen", index === pointed.node && "pointed"];
      drawing.getElementById(`n${index}`).classes(names.filter(Boolean));
    });
    edges.forEach((edge, index) => {
      const lit = focused && isNear(index);
      const names = [!isShown(index) && "hidden", lit && "near", focused && !lit && "far", lit && near.size <= NAMED && "named",
        index === pointed.edge && "pointed"];
      drawing.getElementById(`e${index}`).classes(names.filter(Boolean));
    });
  });
  nameSoon();
}

const isShown = (index) => holds(edges[index]) && visible(nodes[edges[index].source]) && visible(nodes[edges[index].target]);

/** Mark the node or the edge at which the pointer or a key points, and show its text. */
function point({ node = null, edge = null }) {
  for (const [kind, before, now] of [["n", pointed.node, node], ["e", pointed.edge, edge]]) {
    if (before !== null) drawing.getElementById(`${kind}${before}`).removeClass("pointed");
    if (now !== null) drawing.getElementById(`${kind}${now}`).addClass("pointed");
  }
  pointed = { node, edge };
  byId("status").textContent = edge !== null ? relationText(edges[edge]) : node !== null ? brief(nodes[node].text, 240) : summary;
}

function show(element) {
  const { x1, y1, x2, y2 } = element.renderedBoundingBox();
  if (x1 < 0 || y1 < 0 || x2 > drawing.width() || y2 > drawing.height()) drawing.animate({ center: { eles: element } }, { duration: pace() });
}

const pace = () => (matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 250);
const zoom = (factor) =>
  drawing.animate({ zoom: { level: drawing.zoom() * factor, renderedPosition: { x: drawing.width() / 2, y: drawing.height() / 2 } } }, { duration: pace() });
const pan = (x, y) => drawing.animate({ panBy: { x: -x * 120, y: -y * 120 } }, { duration: pace() });
const showAll = () => drawing.animate({ fit: { eles: drawing.elements(":visible"), padding: 30 } }, { duration: pace() });

// The panel

function select(index, center = false) {
  selected = index;
  counted = null;
  near = new Set(index === null ? [] : [index]);
  for (const edge of index === null ? [] : edgesOf[index]) {
    near.add(edges[edge].source);
    near.add(edges[edge].target);
  }
  point({});
  const inPanel = byId("panel").contains(document.activeElement);
  if (index === null && inPanel) byId("graph").focus(); // where keys work on
  byId("panel").hidden = index === null;
  document.querySelector("main").classList.toggle("open", index !== null);
  fillPanel();
  redraw();
  drawing.resize(); // the panel covers a part of it
  if (center && index !== null)
    drawing.animate({ center: { eles: drawing.getElementById(`n${index}`) }, zoom: Math.max(drawing.zoom(), 1) }, { duration: pace() });
}

/** Show the computed answer with its facts, plan and queries. */
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
  drawing.resize();
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
  else if (item.said && item.episode === undefined) {
    const [first] = item.seen || [];
    add(`said in ${(first && episodes[first[0]].said) || item.said}`); // on the speaker's clock
  }
  if (item.maybe) add("a hypothesis");
  if (item.episode !== undefined) add(said(episodes[item.episode]));
  for (const [index, quote] of item.seen || []) found.push(source(episodes[index], quote));
  return found;
}

/** List a theme's quotations, each with source, validity and a link to its passage. */
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

/** Select a node, and move the focus to the panel. */
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

/** Make the line of a fact; while the line has the pointer or the focus, its edge is highlighted. */
function fact(index) {
  const edge = edges[index];
  const item = make("li", undefined, holds(edge) ? "" : "past");
  const shows = (on) => isShown(index) && point(on ? { edge: index } : {});
  for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]])
    item.addEventListener(event, () => shows(on));
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
    event.preventDefault(); // else Enter also presses the button that gets the focus
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
  drawing.style(style());
}

/** Point at the next edge of the chosen node, or of the graph, and show its text. */
function walkEdges(step) {
  const all = selected === null ? [...edges.keys()] : edgesOf[selected];
  const seen = all.filter(isShown);
  if (!seen.length) return;
  const at = seen.indexOf(pointed.edge);
  const next = at < 0 ? (step > 0 ? 0 : seen.length - 1) : (at + step + seen.length) % seen.length;
  point({ edge: seen[next] });
  show(drawing.getElementById(`e${seen[next]}`));
}

/** Point at the next node that has a label, the largest first. */
function walkNodes(step) {
  const seen = order.filter((index) => !nodes[index].quiet && visible(nodes[index]));
  if (!seen.length) return;
  const at = seen.indexOf(pointed.node ?? selected);
  const next = at < 0 ? (step > 0 ? 0 : seen.length - 1) : (at + step + seen.length) % seen.length;
  point({ node: seen[next] });
  show(drawing.getElementById(`n${seen[next]}`));
}

function closeTop() {
  if (pointed.edge !== null || pointed.node !== null) point({});
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
  else if (event.key === "Enter" && event.target === byId("graph") && pointed.node !== null) openNode(pointed.node);
  else if (event.target.matches("input") || !Object.hasOwn(KEYS, event.key)) return;
  else KEYS[event.key]();
  event.preventDefault();
}

function begin() {
  document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  makeTypes();
  makeTimes();
  const count = (number) => number.toLocaleString("en");
  const part = nodes.length < data.total ? ` of ${count(data.total)} nodes, ${CUT}` : " nodes";
  summary = byId("status").textContent = `${count(nodes.length)}${part}; ${count(edges.length)} edges`;
  draw();
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
