// As much of a browser as the page needs: elements keep what they are given, and tell listeners.
const byIds = new Map();
class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], listeners: {}, attributes: {}, style: {}, hidden: false });
    Object.assign(this, { own: "", value: "", open: false, clientWidth: WIDTH, clientHeight: HEIGHT, offsetWidth: 150, offsetHeight: 30 });
    this.classList = { toggle() {} };
  }
  get textContent() { return this.own + this.children.map((one) => one.textContent ?? one).join(""); }
  set textContent(text) { [this.own, this.children] = [text, []]; }
  get parentElement() { return byIds.get("graph"); }
  append(...more) { this.children.push(...more); }
  prepend(...more) { this.children.unshift(...more); }
  replaceChildren(...more) { [this.own, this.children] = ["", more]; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, listener) { (this.listeners[name] ??= []).push(listener); }
  dispatch(name, event = {}) {
    for (const listener of this.listeners[name] ?? [])
      listener({ target: this, preventDefault() {}, pointerType: "mouse", pointerId: 1, ...event });
  }
  all(tag) {
    const below = this.children.filter((one) => one.children);
    return [...below.filter((one) => one.tag === tag), ...below.flatMap((one) => one.all(tag))];
  }
  querySelectorAll(selector) { return this.all(selector === "[role=option]" ? "li" : selector); }
  querySelector(selector) { return this.querySelectorAll(selector)[0] ?? new Element(selector); }
  matches(selector) { return selector === this.tag; }
  closest() { return null; }
  getBoundingClientRect() { return this.box ?? { left: 0, top: 0, right: WIDTH, bottom: HEIGHT }; }
  focus() { document.activeElement = this; }
  contains(one) { return one === this || this.children.some((child) => child.contains?.(one)); }
  blur() {}
  remove() {}
  scrollIntoView() {}
}
const document = new Element("document");
document.getElementById = (id) => {
  if (!byIds.has(id)) byIds.set(id, new Element(id === "search" ? "input" : "div"));
  return byIds.get(id);
};
document.createElement = (tag) => new Element(tag);
document.documentElement = new Element("html");
document.body = new Element("body");
document.activeElement = document.body;
document.getElementById("data").textContent = DATA;
document.getElementById("graph");
document.getElementById("status").box = { left: 12, top: HEIGHT - 30, right: 200, bottom: HEIGHT - 8 };
for (const id of ["panel", "found"]) document.getElementById(id).hidden = true;
const getComputedStyle = () => ({ fontFamily: "sans", getPropertyValue: (name) => name });
const matchMedia = () => ({ matches: true }); // reduced motion
const waiting = [];
const requestAnimationFrame = (step) => waiting.push(step);
const cancelAnimationFrame = () => {};
globalThis.setTimeout = (step) => requestAnimationFrame(step);
globalThis.clearTimeout = () => {};
/** Cytoscape without a screen; its animations end at once. */
globalThis.cytoscape = ((real) => (options) => {
  const made = real({ ...options, container: undefined, headless: true, styleEnabled: true });
  Object.assign(made, { width: () => WIDTH, height: () => HEIGHT });
  made.animate = ({ zoom, panBy, fit, center }) => {
    if (zoom) made.zoom(zoom);
    if (panBy) made.panBy(panBy);
    if (fit) made.fit(fit.eles, fit.padding);
    if (center) made.center(center.eles);
  };
  return made;
})(globalThis.cytoscape);
const frames = () => { for (let left = 20; left && waiting.length; left--) waiting.shift()(0); }; // Cytoscape asks for ever
const press = (key, target = byIds.get("graph")) => (document.dispatch("keydown", { key, target }), frames());
const status = () => byIds.get("status").textContent;
