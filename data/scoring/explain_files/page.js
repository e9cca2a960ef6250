"use strict";
// Adds to a page that reads whole without it: one turn at a time, and highlights of what shares an
// entity; graph.js draws. Texts go through textContent or a canvas, never as HTML.

const root = document.documentElement;
const graphs = JSON.parse(document.getElementById("graphs").textContent);
const turns = [...document.querySelectorAll(".turn")];
const tabs = [...document.querySelectorAll("#turns a")];
let turn = -1; // place of the turn that is shown
let drawing = null; // its graph
let chosen = null; // number of a passage, from 0
let pointed = []; // entities that the pointer or the focus is on
let kept = []; // entities that were clicked
let swiped = false; // the finger that is on the graph, or was last, has moved

// Small helpers

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const all = (selector) => [...turns[turn].querySelectorAll(selector)];
const passage = (number) => document.getElementById(`${turns[turn].id}-passage-${number + 1}`);
const entitiesOf = (element) => element.dataset.entities.split(" ").map(Number);
const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${+(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);
const named = (number) => `passage ${number + 1}`;

/** Where a key leads among ``count`` things, from the one at ``at``; undefined for other keys. */
function step(key, at, count) {
  const last = count - 1;
  return { ArrowRight: Math.min(at + 1, last), ArrowDown: Math.min(at + 1, last), Home: 0, End: last,
    ArrowLeft: Math.max(at - 1, 0), ArrowUp: Math.max(at - 1, 0) }[key];
}

// Turns

function showTurn(number) {
  turn = number;
  [chosen, pointed, kept] = [null, [], []];
  turns.forEach((section, at) => (section.hidden = at !== turn));
  tabs.forEach((tab, at) => {
    tab.setAttribute("aria-selected", at === turn);
    tab.tabIndex = at === turn ? 0 : -1;
  });
  draw();
  mark();
}

function makeTabs() {
  document.getElementById("turns").setAttribute("role", "tablist");
  tabs.forEach((tab, at) => {
    tab.parentElement.setAttribute("role", "presentation");
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", turns[at].id);
    turns[at].setAttribute("role", "tabpanel");
    tab.addEventListener("click", (event) => {
      event.preventDefault();
      go(tab.hash);
    });
    tab.addEventListener("keydown", (event) => {
      const next = event.key === " " ? at : step(event.key, at, tabs.length);
      if (next === undefined) return;
      event.preventDefault();
      go(tabs[next].hash);
      tabs[next].focus();
    });
  });
}

/** Show what an address names, and keep it for the browser's way back. */
function go(hash) {
  if (hash !== location.hash) history.pushState(null, "", hash);
  follow();
}

function follow() {
  const [, id, number] = /^#(turn-\d+)(?:-passage-(\d+))?$/.exec(location.hash) ?? [];
  const wanted = Math.max(turns.findIndex((section) => section.id === id), 0);
  if (wanted !== turn) showTurn(wanted);
  if (number && passage(number - 1)) showPassage(number - 1);
}

// Passages

function choose(number) {
  chosen = number;
  all(".passage").forEach((element, at) => element.classList.toggle("chosen", at === number));
  if (drawing) {
    drawing.nodes().forEach((node) => void node.toggleClass("chosen", node.id() === `${number}`));
    say(number === null ? "" : describe(number));
  }
}

function showPassage(number) {
  choose(number);
  passage(number).scrollIntoView({ block: "nearest" });
  passage(number).querySelector(".number").focus({ preventScroll: true });
}

/** Numbers of the passages lead back to the graph. */
function makeNumbers() {
  turns.forEach((section, at) => {
    if (!graphs[at]) return;
    section.querySelectorAll(".passage .number").forEach((span, number) => {
      const label = `Passage ${number + 1}: show it in the graph`;
      const button = make("button", span.textContent, { type: "button", class: "number", "aria-label": label, title: label });
      button.addEventListener("click", () => {
        choose(number);
        const canvas = turns[at].querySelector(".drawing");
        canvas.scrollIntoView({ block: "nearest" });
        canvas.focus({ preventScroll: true });
      });
      span.replaceWith(button);
    });
    section.querySelectorAll(".joins a").forEach((link) =>
      link.addEventListener("click", (event) => {
        event.preventDefault();
        go(link.hash);
      }),
    );
  });
}

// Entities

function makeEntities() {
  for (const section of turns) {
    const holders = new Map();
    section.querySelectorAll("mark").forEach((element) => {
      for (const entity of entitiesOf(element))
        holders.set(entity, (holders.get(entity) ?? new Set()).add(element.closest(".passage")));
    });
    for (const element of section.querySelectorAll("mark, .joins .entity"))
      if (entitiesOf(element).some((entity) => holders.get(entity)?.size > 1)) makeSwitch(element);
    section.querySelectorAll(".passage").forEach(makeWalk);
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    [pointed, kept] = [[], []];
    choose(null);
    mark();
  });
}

function makeSwitch(element) {
  const entities = entitiesOf(element);
  const point = (entities) => () => ((pointed = entities), mark());
  const keep = () => ((kept = `${kept}` === `${entities}` ? [] : entities), mark());
  if (element.matches("mark")) element.classList.add("shared");
  element.tabIndex = 0;
  element.setAttribute("role", "button");
  element.setAttribute("aria-pressed", "false");
  element.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && point(entities)());
  element.addEventListener("pointerleave", point([]));
  element.addEventListener("focus", point(entities));
  element.addEventListener("blur", point([]));
  element.addEventListener("click", keep);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    keep();
  });
}

/** The words of one passage are one stop of the Tab key; arrows walk among them. */
function makeWalk(element) {
  const words = [...element.querySelectorAll("mark.shared")];
  words.forEach((word, at) => {
    word.tabIndex = at ? -1 : 0;
    word.addEventListener("keydown", (event) => {
      const next = step(event.key, at, words.length);
      if (next === undefined) return;
      event.preventDefault();
      words.forEach((other, place) => (other.tabIndex = place === next ? 0 : -1));
      words[next].focus();
    });
  });
}

/** Light up what shares the entities that are pointed at, or else those that are kept. */
function mark() {
  const lit = new Set(pointed.length ? pointed : kept);
  const holders = new Set();
  for (const element of all("mark, .joins .entity")) {
    const entities = entitiesOf(element);
    const on = entities.some((entity) => lit.has(entity));
    element.classList.toggle("lit", on);
    if (element.hasAttribute("aria-pressed")) element.setAttribute("aria-pressed", kept.length > 0 && `${kept}` === `${entities}`);
    if (on && element.closest(".passage")) holders.add(element.closest(".passage"));
  }
  all(".passage").forEach((element) => element.classList.toggle("shares", holders.has(element)));
  if (!drawing) return;
  drawing.nodes().forEach((node) => void node.toggleClass("lit", holders.has(passage(+node.id()))));
  drawing.edges().forEach((edge) => void edge.toggleClass("lit", lit.has(edge.data("entity"))));
}

// Beginning

function begin() {
  root.classList.add("scripted");
  makeTabs();
  makeNumbers();
  makeEntities();
  letFingersScroll();
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((element) => (element.open = true)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawing && reshape(drawing.container()));
  follow();
}

begin();
