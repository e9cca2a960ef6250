"use strict";
// The graph of the turn that page.js shows: passages as nodes, joined by the entities that they share.

const FORMS = { text: "ellipse", table: "rectangle", infobox: "diamond", kb: "triangle", memory: "hexagon" };
const ROOM = 18_000; // square pixels that a node with words needs; without, it shows its number only
const MAX_NAMED = 6; // lines of one node that have room for their names
const WIDE = 400; // pixels below which there are no words
const ROUNDS = 300; // of pushing apart what covers each other

function draw() {
  drawing?.destroy();
  drawing = null;
  const place = turns[turn].querySelector(".graph");
  if (!place) return;
  place.hidden = false;
  if (!place.hasChildNodes()) makeFrame(place);
  const canvas = place.querySelector(".drawing");
  drawing = cytoscape({
    container: canvas,
    elements: elements(graphs[turn]),
    style: look(hasWords(canvas)),
    layout: { name: "cose", animate: false, randomize: false, fit: false },
    userZoomingEnabled: false, // else the page could not be scrolled across it
    boxSelectionEnabled: false,
    autounselectify: true,
    autoungrabify: true,
  });
  drawing.nodes().forEach((node) => void node.data("home", { ...node.position() }));
  spread(canvas);
  listen(canvas);
}

const hasWords = ({ clientWidth, clientHeight }) =>
  clientWidth >= WIDE && clientWidth * clientHeight >= ROOM * graphs[turn].nodes.length;

function makeFrame(place) {
  const count = graphs[turn].nodes.length;
  const frame = make("div", "", { class: "frame" });
  const canvas = make("div", "", {
    class: "drawing", tabindex: "0", role: "application", "aria-roledescription": "graph",
    "aria-label": `Graph of ${count} passages. Arrow keys go from passage to passage, Enter to its text. All of it stands in the lists too.`,
  });
  const tools = make("div", "", { class: "tools" });
  for (const [sign, name, factor] of [["−", "Zoom out", 1 / 1.3], ["+", "Zoom in", 1.3], ["⤢", "Show all", 0]]) {
    const button = make("button", sign, { type: "button", "aria-label": name, title: name });
    button.addEventListener("click", () => (factor ? zoom(factor) : fit()));
    tools.append(button);
  }
  canvas.addEventListener("keydown", onKey);
  new ResizeObserver(() => !turns[turn].hidden && canvas.clientWidth && drawing?.container() === canvas && reshape(canvas)).observe(canvas);
  const legend = make("ul", "", { class: "legend" });
  for (const source of Object.keys(FORMS)) {
    const symbol = turns[turn].querySelector(`.passage .of-${source}`);
    if (symbol) legend.appendChild(make("li", "", { class: "tag" })).append(symbol.cloneNode(true), source);
  }
  const under = make("div", "", { class: "under" });
  under.append(legend, tools);
  frame.append(canvas);
  place.append(frame, under, make("p", "", { class: "caption", role: "status" }));
}

function elements({ nodes, edges }) {
  const start = (number) => {
    const [angle, far] = [2.4 * number, 60 * Math.sqrt(number)]; // a spiral: the same picture each time
    return { x: far * Math.cos(angle), y: far * Math.sin(angle) };
  };
  return [
    ...nodes.map(({ share, source, label }, number) => ({
      data: { id: `${number}`, number: `${number + 1}`, label: `${number + 1}  ${label}`, size: 18 + 34 * Math.sqrt(share), source },
      position: start(number),
    })),
    ...edges.map(({ ends: [source, target], share, ...rest }) => ({
      data: { source: `${source}`, target: `${target}`, width: 1.2 + 7 * share, share, ...rest },
    })),
  ];
}

function look(words) {
  const [ink, faint, ground, accent, lit] = ["ink", "edge", "raised", "accent", "glow"].map(colour);
  const written = { color: ink, "font-size": 12, "text-background-color": ground, "text-background-opacity": 0.85, "text-background-padding": 1, "text-wrap": "wrap" };
  return [
    { selector: "node", style: { ...written, width: "data(size)", height: "data(size)",
      label: words ? "data(label)" : "data(number)", "text-valign": "bottom", "text-margin-y": 3, "text-max-width": 110,
      "font-family": getComputedStyle(document.body).fontFamily } },
    ...Object.entries(FORMS).map(([source, shape]) => ({ selector: `node[source="${source}"]`, style: { shape, "background-color": colour(source) } })),
    { selector: "edge", style: { ...written, width: "data(width)", "line-color": faint, "curve-style": "bezier", "text-rotation": "autorotate" } },
    { selector: "node.lit", style: { "border-width": 4, "border-color": lit } },
    { selector: "edge.lit", style: { "line-color": lit, "z-index": 9 } },
    { selector: "edge.near", style: { "line-color": accent, "z-index": 9 } },
    { selector: "edge.named", style: { label: "data(label)", "z-index-compare": "manual" } },
    { selector: ".far", style: { opacity: 0.25 } },
    { selector: ".far.lit", style: { opacity: 1 } },
    { selector: "node.chosen", style: { label: "data(label)", "outline-width": 3, "outline-color": accent, "outline-offset": 3, "z-index": 10 } },
  ];
}

/** Stretch what the layout gave over the frame, and push apart nodes whose words would overlap. */
function spread(canvas) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [wordsWide, wordsHigh] = hasWords(canvas) ? [124, 36] : [34, 20];
  const boxes = drawing.nodes().map((node) => {
    const size = node.data("size") + 8;
    return { node, x: node.data("home").x, y: node.data("home").y, wide: Math.max(size, wordsWide), high: size + wordsHigh };
  });
  stretch(boxes, "x", "wide", width);
  stretch(boxes, "y", "high", height);
  for (let round = 0; round < ROUNDS && push(boxes); round++) {
    for (const box of boxes) [box.x, box.y] = [within(box.x, box.wide, width), within(box.y, box.high, height)];
  }
  for (const { node, x, y } of boxes) node.position({ x, y: y - wordsHigh / 2 });
  fit();
}

const within = (place, size, room) => Math.min(Math.max(place, size / 2 + 4), Math.max(room - size / 2 - 4, size / 2 + 4));

function stretch(boxes, axis, side, room) {
  const [low, high] = [Math.min, Math.max].map((end) => end(...boxes.map((box) => box[axis])));
  const margin = Math.max(...boxes.map((box) => box[side])) / 2 + 4;
  for (const box of boxes)
    box[axis] = high > low ? margin + ((box[axis] - low) / (high - low)) * Math.max(room - 2 * margin, 0) : room / 2;
}

/** Move overlapping boxes apart, along the side where it takes less; whether any did overlap. */
function push(boxes) {
  let found = false;
  boxes.forEach((a, at) => {
    for (const b of boxes.slice(at + 1)) {
      const [x, y] = [(a.wide + b.wide) / 2 - Math.abs(a.x - b.x), (a.high + b.high) / 2 - Math.abs(a.y - b.y)];
      if (x <= 0 || y <= 0) continue;
      found = true;
      const [axis, by] = x < y ? ["x", x] : ["y", y];
      const sign = a[axis] < b[axis] ? -1 : 1;
      a[axis] += (sign * by) / 2;
      b[axis] -= (sign * by) / 2;
    }
  });
  return found;
}

function fit() {
  drawing.viewport({ zoom: 1, pan: { x: 0, y: 0 } });
  zoom(1);
}

/** Where all is in view, a finger that moves across the graph scrolls the page; else the graph. */
function zoom(factor) {
  const canvas = drawing.container();
  const middle = { x: canvas.clientWidth / 2, y: canvas.clientHeight / 2 };
  drawing.zoom({ level: Math.min(Math.max(drawing.zoom() * factor, 1), 6), renderedPosition: middle });
  if (drawing.zoom() === 1) drawing.pan({ x: 0, y: 0 });
  drawing.userPanningEnabled(drawing.zoom() > 1);
  canvas.classList.toggle("zoomed", drawing.zoom() > 1);
}

function reshape(canvas) {
  drawing.style(look(hasWords(canvas)));
  drawing.resize();
  spread(canvas);
}

/** Cytoscape keeps for itself the moves of a finger that began on a node: it must not see them. */
function letFingersScroll() {
  const quietly = { capture: true, passive: true };
  let began = [0, 0];
  addEventListener("touchstart", ({ touches: [{ clientX, clientY }] }) => {
    swiped = false;
    began = [clientX, clientY];
  }, quietly);
  addEventListener("touchmove", (event) => {
    if (!event.target.closest?.(".drawing:not(.zoomed)")) return;
    const [{ clientX, clientY }] = event.touches;
    swiped ||= Math.hypot(clientX - began[0], clientY - began[1]) > 10;
    event.stopPropagation();
  }, quietly);
}

function listen(canvas) {
  const point = (entities, text) => {
    pointed = entities;
    mark();
    say(text);
  };
  drawing.on("tap", "node", ({ target }) => swiped || go(`#${passage(+target.id()).id}`));
  drawing.on("tap", "edge", ({ target }) => ((kept = [target.data("entity")]), mark(), say(joined(target))));
  drawing.on("tap", ({ target }) => target === drawing && ((kept = []), choose(null), mark()));
  drawing.on("mouseover", "edge", ({ target }) => point([target.data("entity")], joined(target)));
  drawing.on("mouseover", "node", ({ target }) => say(describe(+target.id())));
  drawing.on("mouseover", "node", ({ target }) => {
    const near = target.closedNeighborhood();
    near.edges().addClass(near.edges().length > MAX_NAMED ? "near" : "near named");
    drawing.elements().difference(near).addClass("far");
  });
  drawing.on("mouseout", "node", () => drawing.elements().removeClass("near named far"));
  drawing.on("mouseout", () => point([], chosen === null ? "" : describe(chosen)));
  drawing.on("mouseover mouseout", "node, edge", ({ type }) => canvas.classList.toggle("over", type === "mouseover"));
}

const say = (text) => (turns[turn].querySelector(".caption").textContent = text);

const joined = (edge) =>
  `${edge.data("label")} joins ${named(+edge.source().id())} and ${named(+edge.target().id())}: share ${percent(edge.data("share"))} of all lines`;

function describe(number) {
  const { share, source, label } = graphs[turn].nodes[number];
  const others = drawing.getElementById(`${number}`).connectedEdges().map((edge) => {
    const other = +edge.source().id() === number ? edge.target() : edge.source();
    return `by ${edge.data("label")} to ${named(+other.id())}`;
  });
  const joins = others.length ? `joined ${others.join(", ")}` : "joined to none";
  return `Passage ${number + 1} (${source}), ${label}: share ${percent(share)}, ${joins}`;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const zooms = { "+": 1.3, "=": 1.3, "-": 1 / 1.3 };
  const next = step(event.key, chosen ?? -1, graphs[turn].nodes.length);
  if (next !== undefined) choose(Math.max(next, 0));
  else if (event.key === "Enter" && chosen !== null) go(`#${passage(chosen).id}`);
  else if (zooms[event.key]) zoom(zooms[event.key]);
  else if (event.key === "0") fit();
  else return;
  event.preventDefault();
}
