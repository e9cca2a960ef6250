// The graph of an answer: which passages it came from, and what joins them. Some 40 lines of SVG, as
// the chat would have to load 430 kB of Cytoscape for one answer and a dozen passages.

export const percent = (share) => `${Math.round(100 * share)} %`;
const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// The answer, its passages, and the graph between them: an arc joins passages that name the same
// entity. One unit is one pixel, so that its text is as large as other text.
export function drawing(answer, passages, edges, width) {
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
