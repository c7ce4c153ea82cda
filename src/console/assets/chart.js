// Charts as SVG: a curve over time, and bars.

import { dayOf, h, short, svg } from "./dom.js";

const WIDTH = 520;
const HEIGHT = 170;
const LEFT = 48;
const BOTTOM = 20;

/** A round number at or above `value`. */
function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** `points` are `[epoch ms, value]`, in order. */
export function curve(label, points, format = short) {
  const times = points.map(([time]) => time);
  const from = times[0];
  const width = Math.max(1, times[times.length - 1] - from);
  const top = nice(Math.max(...points.map(([, value]) => value)));
  const x = (time) => LEFT + ((time - from) / width) * (WIDTH - LEFT - 8);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 10);
  const line = points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const grid = [0, 0.5, 1].map((share) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(top * share), y2: y(top * share) }),
    svg("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share)),
  ]);
  const last = points[points.length - 1];
  return svg(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": `${label}: ${format(points[0][1])} on ${dayOf(from)}, ${format(last[1])} on ${dayOf(last[0])}`,
    },
    ...grid.flat(),
    svg("polygon", { class: "area", points: `${LEFT},${y(0)} ${line} ${x(last[0]).toFixed(1)},${y(0)}` }),
    svg("polyline", { class: "curve", points: line }),
    svg("text", { x: LEFT, y: HEIGHT - 4 }, dayOf(from)),
    svg("text", { x: WIDTH - 8, y: HEIGHT - 4, "text-anchor": "end" }, dayOf(last[0])),
  );
}

/** `rows` are `[name, value, words, link]`, drawn longest first. */
export function bars(label, rows) {
  const sorted = [...rows].sort((a, b) => b[1] - a[1]).slice(0, 20);
  const top = Math.max(1, ...sorted.map(([, value]) => value));
  return h(
    "div.bars",
    { role: "group", "aria-label": label },
    sorted.map(([name, value, words, link]) => {
      const bar = h("div.bar");
      bar.style.width = `${(value / top) * 100}%`;
      return [
        h("span", { title: name }, link ? h("a", { href: link }, name) : name),
        h("div", { "aria-hidden": "true" }, bar),
        h("span.num", words),
      ];
    }),
  );
}
