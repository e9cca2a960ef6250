"use strict";
// Draws a graph of thousands of nodes on one canvas, without a graphics card. While the view moves on
// a slow machine, the last picture is shifted and scaled; it is painted again when the view rests.

const SLOW_FRAME = 40; // milliseconds; longer frames shift the last picture
const REST = 140; // milliseconds without a movement, then paint
const MARGIN = 0.25; // painted beyond each side of the canvas, as a fraction of it
const MAX_LABELS = 60; // with the whole graph in view; four times as many at twice the scale
const FEW_EDGES = 500; // in view; more are drawn paler and thinner, so that they do not hide the nodes
const PALEST = 0.45; // opacity of edges among very many

class Drawing {
  /**
   * @param canvas fills its parent; gets pointer events
   * @param graph nodes with x, y, size, label; edges with source, target, relation
   * @param look node(index) and edge(index): colours, or null where hidden; the chosen node; tip;
   *   boxes that labels keep clear of
   * @param pick called with the index of a node that was clicked, or null
   */
  constructor(canvas, graph, look, pick) {
    Object.assign(this, { canvas, graph, look, pick });
    this.context = canvas.getContext("2d");
    this.picture = document.createElement("canvas");
    this.keeps = graph.nodes.some((node) => node.quiet); // room for the other nodes
    this.order = [...graph.nodes.keys()].sort((a, b) => graph.nodes[b].size - graph.nodes[a].size);
    this.view = { x: 0, y: 0, scale: 1 };
    this.pointed = { node: null, edge: null, spot: null };
    this.slow = false;
    this.stale = true; // the picture is out of date
    this.pointers = new Map();
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.listen();
    this.resize();
    this.fit();
  }

  // The view

  resize() {
    const { clientWidth, clientHeight } = this.canvas.parentElement;
    this.ratio = Math.min(devicePixelRatio || 1, 2);
    [this.width, this.height] = [Math.max(clientWidth, 1), Math.max(clientHeight, 1)];
    this.canvas.width = this.width * this.ratio;
    this.canvas.height = this.height * this.ratio;
    this.picture.width = this.canvas.width * (1 + 2 * MARGIN);
    this.picture.height = this.canvas.height * (1 + 2 * MARGIN);
    this.redraw();
  }

  /** Return the view that shows the whole graph. */
  whole() {
    const axis = (name) => {
      const values = this.graph.nodes.map((node) => node[name]);
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      return values.length ? [(low + high) / 2, high - low] : [0, 0];
    };
    const [[x, wide], [y, high]] = [axis("x"), axis("y")];
    const room = (size) => Math.max(size - 60, 40);
    const scale = Math.min(room(this.width) / (wide || 1), room(this.height) / (high || 1));
    return { x, y, scale: Math.min(scale, 120) };
  }

  fit(milliseconds = 0) {
    const whole = this.whole();
    this.unit = whole.scale;
    this.go(whole, milliseconds);
  }

  lookAt(index, milliseconds) {
    const { x, y } = this.graph.nodes[index];
    this.go({ x, y, scale: Math.max(this.view.scale, 2.5 * this.unit) }, milliseconds);
  }

  zoom(factor, milliseconds = 0, [x, y] = [this.width / 2, this.height / 2]) {
    const scale = Math.min(Math.max(this.view.scale * factor, this.unit / 5), this.unit * 300);
    const [before, after] = [1 / this.view.scale, 1 / scale];
    const shift = (position, size) => (position - size / 2) * (before - after);
    const { x: left, y: top } = this.view;
    this.go({ x: left + shift(x, this.width), y: top + shift(y, this.height), scale }, milliseconds);
  }

  pan(x, y, milliseconds = 0) {
    const { x: left, y: top, scale } = this.view;
    this.go({ x: left + x / scale, y: top + y / scale, scale }, milliseconds);
  }

  go(goal, milliseconds) {
    const [from, began] = [this.view, performance.now()];
    cancelAnimationFrame(this.travel);
    const step = (now) => {
      const done = milliseconds ? Math.min(Math.max((now - began) / milliseconds, 0), 1) : 1;
      const part = done * (2 - done);
      const between = (name) => from[name] + (goal[name] - from[name]) * part;
      const scale = from.scale * (goal.scale / from.scale) ** part;
      this.view = { x: between("x"), y: between("y"), scale };
      this.moved();
      if (done < 1) this.travel = requestAnimationFrame(step);
    };
    step(began);
  }

  moved() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.redraw(), REST);
    this.moving = true;
    this.requestFrame();
  }

  /** Paint again: the view rests, or the graph looks different. */
  redraw() {
    this.stale = true;
    this.moving = false;
    this.requestFrame();
  }

  requestFrame() {
    this.requested ??= requestAnimationFrame((now) => this.frame(now));
  }

  // Frames

  frame(now) {
    this.requested = undefined;
    if (this.moving && this.crisp && now - this.crisp > SLOW_FRAME) this.slow = true;
    const again = this.stale || (this.moving && !this.slow);
    if (again) this.paint();
    this.crisp = again && this.moving ? now : undefined;
    this.stale = false;
    this.copy();
    this.overlay();
  }

  copy() {
    const { context, view, shown, ratio } = this;
    const factor = view.scale / shown.scale;
    const [width, height] = [this.picture.width * factor, this.picture.height * factor];
    const x = this.canvas.width / 2 + (shown.x - view.x) * view.scale * ratio - width / 2;
    const y = this.canvas.height / 2 + (shown.y - view.y) * view.scale * ratio - height / 2;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.picture, x, y, width, height);
  }

  /** Paint the picture: the view and its margin. */
  paint() {
    const { picture, ratio } = this;
    this.shown = { ...this.view };
    const context = picture.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, picture.width, picture.height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [width, height] = [picture.width / ratio, picture.height / ratio];
    const { x, y, scale } = this.view;
    this.at = this.graph.nodes.map((node) => [
      (node.x - x) * scale + width / 2,
      (node.y - y) * scale + height / 2,
    ]);
    this.colours = this.graph.nodes.map((_, index) => this.look.node(index));
    this.paintEdges(context, width, height);
    this.paintNodes(context, width, height);
    this.paintLabels(context, width, height);
  }

  paintEdges(context, width, height) {
    const batches = new Map();
    this.graph.edges.forEach((edge, index) => {
      const [one, other] = [this.at[edge.source], this.at[edge.target]];
      const beside = (axis, size) =>
        Math.max(one[axis], other[axis]) < 0 || Math.min(one[axis], other[axis]) > size;
      if (beside(0, width) || beside(1, height)) return;
      const colour = this.look.edge(index);
      if (!colour || !this.colours[edge.source] || !this.colours[edge.target]) return;
      if (!batches.has(colour)) batches.set(colour, []);
      batches.get(colour).push(one, other);
    });
    const { accent, dim } = this.look; // the accent on top of all others
    for (const [colour, ends] of [...batches].sort(([a], [b]) => (a === accent) - (b === accent))) {
      const crowd = Math.sqrt((2 * FEW_EDGES) / ends.length);
      const opacity = colour === accent || colour === dim ? 1 : Math.min(Math.max(crowd, PALEST), 1);
      context.strokeStyle = colour;
      context.globalAlpha = opacity;
      context.lineWidth = colour === accent ? 2 : 0.4 + 0.9 * opacity;
      for (let start = 0; start < ends.length; start += 400) {
        context.beginPath();
        for (let i = start; i < Math.min(start + 400, ends.length); i += 2) {
          context.moveTo(ends[i][0], ends[i][1]);
          context.lineTo(ends[i + 1][0], ends[i + 1][1]);
        }
        context.stroke();
      }
    }
    context.globalAlpha = 1;
  }

  radius(index) {
    const crowd = Math.min(1, 28 / Math.sqrt(this.graph.nodes.length));
    const zoomed = Math.min(Math.sqrt(Math.max(this.view.scale / this.unit, 0.4)), 4);
    return Math.min(Math.max(this.graph.nodes[index].size * crowd * zoomed, 1), 22);
  }

  paintNodes(context, width, height) {
    const batches = new Map();
    for (const index of [...this.order].reverse()) {
      const colour = this.colours[index];
      const [x, y] = this.at[index];
      if (!colour || x < -30 || y < -30 || x > width + 30 || y > height + 30) continue;
      if (!batches.has(colour)) batches.set(colour, []);
      batches.get(colour).push(index);
    }
    const dim = this.look.dim;
    for (const colour of [...batches.keys()].sort((a, b) => (b === dim) - (a === dim))) {
      context.fillStyle = colour;
      context.beginPath();
      for (const index of batches.get(colour)) {
        const [[x, y], radius] = [this.at[index], this.radius(index)];
        if (radius < 2) context.rect(x - radius, y - radius, 2 * radius, 2 * radius);
        else context.moveTo(x + radius, y), context.arc(x, y, radius, 0, 2 * Math.PI);
      }
      context.fill();
    }
  }

  /** Paint the labels that have a place: the chosen node's, then those of the largest nodes. */
  paintLabels(context, width, height) {
    const room = this.room((width - this.width) / 2, (height - this.height) / 2);
    const chosen = this.look.chosen();
    let left = MAX_LABELS * Math.max(this.view.scale / this.unit, 1) ** 2;
    for (const index of new Set(chosen === null ? this.order : [chosen, ...this.order])) {
      const [x, y] = this.at[index];
      const [[low, top, high, bottom], labelled] = [room.box, this.look.labelled(index)];
      const inside = x > low && y > top && x < high && y < bottom;
      if (!labelled || !inside || !this.colours[index] || left < 1) continue;
      context.font = `${index === chosen ? "600 " : ""}13px ${this.look.font}`;
      const radius = this.radius(index) + (index === chosen ? 4 : 0);
      if (this.nodeLabel(context, room, index, radius)) left -= 1;
    }
    context.font = `13px ${this.look.font}`;
    for (const index of this.look.edgeLabels())
      this.edgeLabel(context, room, this.graph.edges[index]);
  }

  /** Return the room for labels: the view, which begins at a place of the picture. */
  room(left, top) {
    const box = [left + 2, top + 2, left + this.width - 2, top + this.height - 2];
    const taken = this.look.covered().map(([a, b, c, d]) => [left + a, top + b, left + c, top + d]);
    const room = new Room(box, taken);
    this.at.forEach(([x, y], index) => {
      const inside = x > box[0] && y > box[1] && x < box[2] && y < box[3];
      const colour = this.colours[index];
      const isKept = this.keeps && !this.graph.nodes[index].quiet;
      if (inside && colour && colour !== this.look.dim) room.addDot(x, y, this.radius(index), isKept);
    });
    return room;
  }

  /** Paint a node's label, shortened to the room; return whether there was a place. */
  nodeLabel(context, room, index, radius) {
    const measure = (text) => context.measureText(text).width;
    const label = shorten(this.graph.nodes[index].label, room.widest(radius), measure);
    const place = label && room.beside(...this.at[index], radius, measure(label));
    if (!place) return false;
    this.text(context, label, place[0], place[1] + 13, this.look.ink);
    return true;
  }

  edgeLabel(context, room, edge) {
    const [[x, y], [right, low]] = [this.at[edge.source], this.at[edge.target]];
    const angle = Math.atan2(low - y, right - x);
    const turned = Math.abs(angle) > Math.PI / 2; // never upside down
    const label = turned ? `← ${edge.relation}` : `${edge.relation} →`;
    const wide = context.measureText(label).width;
    const level = turned ? angle + Math.PI : angle;
    const [above, middle] = [-9, [(x + right) / 2, (y + low) / 2]];
    const boxes = along(
      middle[0] - above * Math.sin(level), middle[1] + above * Math.cos(level), level, wide,
    );
    if (!edge.relation || wide > Math.hypot(right - x, low - y) - 30 || !room.take(boxes)) return;
    context.save();
    context.translate(...middle);
    context.rotate(level);
    context.textAlign = "center";
    this.text(context, label, 0, -5, this.look.accent);
    context.restore();
  }

  text(context, label, x, y, colour) {
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = this.look.ground;
    context.strokeText(label, x, y);
    context.fillStyle = colour;
    context.fillText(label, x, y);
  }

  screen({ x, y }) {
    const { view, width, height } = this;
    return [(x - view.x) * view.scale + width / 2, (y - view.y) * view.scale + height / 2];
  }

  /** Draw rings around the chosen and the pointed node, the pointed edge, and show its tip. */
  overlay() {
    const { context, ratio, pointed } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.lineWidth = 2;
    context.strokeStyle = this.look.accent;
    for (const index of new Set([this.look.chosen(), pointed.node])) {
      if (index === null || !this.look.node(index)) continue;
      const [x, y] = this.screen(this.graph.nodes[index]);
      context.beginPath();
      context.arc(x, y, this.radius(index) + 3, 0, 2 * Math.PI);
      context.stroke();
    }
    const ends = pointed.edge === null ? [] : this.ends(pointed.edge);
    if (ends.length) {
      context.lineWidth = 3;
      context.beginPath();
      context.moveTo(...ends[0]);
      context.lineTo(...ends[1]);
      context.stroke();
    }
    this.look.tip(pointed, pointed.spot ?? this.anchor(ends), [this.width, this.height]);
  }

  ends(index) {
    const { source, target } = this.graph.edges[index];
    return [this.screen(this.graph.nodes[source]), this.screen(this.graph.nodes[target])];
  }

  /** Return where the tip of what is pointed at belongs: at the node, or the middle of the edge. */
  anchor(ends) {
    if (ends.length) return [(ends[0][0] + ends[1][0]) / 2, (ends[0][1] + ends[1][1]) / 2];
    return this.pointed.node === null ? [0, 0] : this.screen(this.graph.nodes[this.pointed.node]);
  }

  // The pointer

  /** Return the nearest visible node within reach of a point, or null. */
  nodeAt([x, y], reach) {
    let [best, nearest] = [null, Infinity];
    this.graph.nodes.forEach((node, index) => {
      const [left, top] = this.screen(node);
      const away = Math.hypot(left - x, top - y) - this.radius(index);
      if (away < Math.min(nearest, reach) && this.look.node(index)) [best, nearest] = [index, away];
    });
    return best;
  }

  /** Return the nearest visible edge within reach of a point, or null. */
  edgeAt(point, reach) {
    let [best, nearest] = [null, reach];
    const places = this.graph.nodes.map((node) => this.screen(node));
    this.graph.edges.forEach(({ source, target }, index) => {
      const away = distance(point, places[source], places[target]);
      if (away < nearest && this.isShown(index)) [best, nearest] = [index, away];
    });
    return best;
  }

  isShown(index) {
    const { source, target } = this.graph.edges[index];
    return Boolean(this.look.edge(index) && this.look.node(source) && this.look.node(target));
  }

  listen() {
    const { canvas, pointers } = this;
    const point = ({ clientX, clientY }) => {
      const { left, top } = canvas.getBoundingClientRect();
      return [clientX - left, clientY - top];
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode ? 20 : 1;
      this.zoom(Math.exp(-event.deltaY * lines * 0.0015), 0, point(event));
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(2, 200, point(event)));
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      if (!pointers.size) this.way = 0;
      pointers.set(event.pointerId, point(event));
    });
    canvas.addEventListener("pointermove", (event) => this.onMove(event, point(event)));
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.point({}); // a lifted finger leaves the tip
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("pointerup", (event) => {
      const alone = pointers.size === 1;
      pointers.delete(event.pointerId);
      if (alone && this.way < 6) this.onClick(event, point(event));
    });
  }

  onClick(event, spot) {
    const touch = event.pointerType !== "mouse";
    const node = this.nodeAt(spot, touch ? 14 : 4);
    const edge = touch && node === null ? this.edgeAt(spot, 10) : null; // a finger does not hover
    if (edge === null) this.pick(node);
    this.point({ edge, spot });
  }

  onMove(event, now) {
    const { pointers } = this;
    const before = pointers.get(event.pointerId);
    if (!before) {
      const node = this.nodeAt(now, 3);
      this.point({ node, edge: node === null ? this.edgeAt(now, 4) : null, spot: now });
      return;
    }
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.way += Math.hypot(now[0] - before[0], now[1] - before[1]);
    pointers.set(event.pointerId, now);
    if (!other) {
      if (this.way >= 6) this.pan(before[0] - now[0], before[1] - now[1]);
      return;
    }
    const distance = (point) => Math.max(Math.hypot(point[0] - other[0], point[1] - other[1]), 1);
    const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
    this.pan((before[0] - now[0]) / 2, (before[1] - now[1]) / 2);
    this.zoom(distance(now) / distance(before), 0, middle);
    this.way = Infinity; // two fingers choose no node
  }

  /** Point at a node or an edge: with the mouse at a spot, or else by the keyboard. */
  point({ node = null, edge = null, spot = null }) {
    const before = this.pointed;
    if (node === before.node && edge === before.edge) return;
    this.pointed = { node, edge, spot: edge === null ? null : spot };
    this.canvas.style.cursor = node === null ? "" : "pointer";
    this.requestFrame();
  }

  /** Point at a node, and move the view if it is outside. */
  showNode(index, milliseconds) {
    const { x, y } = this.graph.nodes[index];
    const [left, top] = this.screen({ x, y });
    this.point({ node: index });
    const outside = left < 20 || top < 20 || left > this.width - 20 || top > this.height - 20;
    if (outside) this.go({ x, y, scale: this.view.scale }, milliseconds);
  }

  /** Point at an edge, and move the view if its middle is outside. */
  showEdge(index, milliseconds) {
    const { source, target } = this.graph.edges[index];
    const [one, other] = [this.graph.nodes[source], this.graph.nodes[target]];
    const middle = { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 };
    const [x, y] = this.screen(middle);
    this.point({ edge: index });
    const outside = x < 20 || y < 20 || x > this.width - 20 || y > this.height - 20;
    if (outside) this.go({ ...middle, scale: this.view.scale }, milliseconds);
  }
}
