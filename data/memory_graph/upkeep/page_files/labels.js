"use strict";
// Places labels: each inside the room, none on another. Knows no canvas; a box is left, top, right,
// bottom.

const LINE = 18; // the height of a label
const GAP = 5; // between a node and its label
const CELL = 64; // boxes are looked up by the square cells that they touch

class Room {
  /**
   * @param box labels lie inside it
   * @param taken boxes that no label may touch
   */
  constructor(box, taken = []) {
    this.box = box;
    this.boxes = new Map();
    this.dots = new Map();
    for (const one of taken) addBox(this.boxes, one);
  }

  /** Note a node, which labels cover only where there is no other place, and never if it is kept. */
  addDot(x, y, radius, isKept = false) {
    addBox(this.dots, Object.assign([x - radius, y - radius, x + radius, y + radius], { isKept }));
  }

  fits(box) {
    const [left, top, right, bottom] = this.box;
    const inside = box[0] >= left && box[1] >= top && box[2] <= right && box[3] <= bottom;
    return inside && !touching(this.boxes, box).some((other) => overlap(box, other));
  }

  /** Take boxes, if all of them are free; return whether they were. */
  take(boxes) {
    const free = boxes.every((box) => this.fits(box));
    if (free) boxes.forEach((box) => addBox(this.boxes, box));
    return free;
  }

  /** Return how wide a label may be: beside a node anywhere in the room there is so much. */
  widest(radius) {
    return (this.box[2] - this.box[0]) / 2 - radius - 2 * GAP;
  }

  /** Take the best free place beside a node, and return its box, or null. */
  beside(x, y, radius, width) {
    const [half, away] = [LINE / 2, radius + GAP];
    const places = [
      [x + away, y - half],
      [x - away - width, y - half],
      [x - width / 2, y + away],
      [x - width / 2, y - away - LINE],
    ];
    const free = places
      .map(([left, top]) => [left, top, left + width, top + LINE])
      .filter((box) => this.fits(box))
      .map((box) => ({ box, hidden: this.hidden(box, radius) }));
    const least = Math.min(...free.map((place) => place.hidden));
    if (least === Infinity) return null; // none is free, too
    const { box } = free.find((place) => place.hidden === least);
    addBox(this.boxes, box);
    return box;
  }

  /** Return how much of other nodes a label hides; Infinity: one kept, or larger than its own. */
  hidden(box, radius) {
    const covered = touching(this.dots, box).filter((dot) => overlap(box, dot));
    if (covered.some((dot) => dot.isKept)) return Infinity;
    const sides = covered.map((dot) => dot[2] - dot[0]);
    return sides.some((side) => side > 2 * radius + 1) ? Infinity : sides.reduce((sum, side) => sum + side, 0);
  }
}

function overlap(one, other) {
  return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
}

/** Return the keys of the cells that a box touches; a cell far away may share a key. */
function cells(box) {
  const [left, top, right, bottom] = box.map((value) => Math.floor(value / CELL));
  const keys = [];
  for (let row = top; row <= bottom; row++)
    for (let column = left; column <= right; column++) keys.push(row * 65536 + column);
  return keys;
}

function addBox(map, box) {
  for (const key of cells(box)) {
    if (!map.has(key)) map.set(key, []);
    map.get(key).push(box);
  }
}

const touching = (map, box) => [...new Set(cells(box).flatMap((key) => map.get(key) ?? []))];

/** Return a text, or its beginning with "…", that is no wider than a width; "": nothing fits. */
function shorten(text, width, measure) {
  if (measure(text) <= width) return text;
  const letters = Array.from(text);
  let [fits, cut] = [0, letters.length];
  const short = (count) => `${letters.slice(0, count).join("").trimEnd()}…`;
  while (cut - fits > 1) {
    const middle = (fits + cut) >> 1;
    if (measure(short(middle)) <= width) fits = middle;
    else cut = middle;
  }
  return fits ? short(fits) : "";
}

/** Return small boxes that together cover a text of a width, centred on a line at an angle. */
function along(x, y, angle, width) {
  const count = Math.max(Math.ceil(width / LINE), 1);
  const [side, step] = [LINE / 2, width / count];
  return Array.from({ length: count }, (_, index) => {
    const away = (index - (count - 1) / 2) * step;
    const [left, top] = [x + away * Math.cos(angle), y + away * Math.sin(angle)];
    return [left - side, top - side, left + side, top + side];
  });
}

/** Return the distance of a point from the line between two others. */
function distance([x, y], [left, top], [right, low]) {
  const [wide, high] = [right - left, low - top];
  const long = wide * wide + high * high;
  const part = long ? Math.min(Math.max(((x - left) * wide + (y - top) * high) / long, 0), 1) : 0;
  return Math.hypot(left + part * wide - x, top + part * high - y);
}

/** Return where a box of a size lies inside a room, as near as may be to the right below a point. */
function beneath([x, y], [wide, high], [width, height]) {
  const left = x + 14 + wide > width - GAP ? x - 14 - wide : x + 14;
  const top = y + 14 + high > height - GAP ? y - 14 - high : y + 14;
  const clamp = (value, most) => Math.max(Math.min(value, most - GAP), GAP);
  return [clamp(left, width - wide), clamp(top, height - high)];
}
