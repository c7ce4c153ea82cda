// Small pictures of one agent: how full its context is, and how busy it was.

import { h, percent, say, svg } from "./dom.js";

/** Context fullness as a bar with its figure. */
export function gauge(agent) {
  const el = h("span.gauge", { role: "img" }, h("span.gauge-track"), h("span.gauge-text"));
  setGauge(el, agent);
  return el;
}

export function setGauge(el, agent) {
  const value = Math.min(1, agent.contextUsage ?? 0);
  if (el.shown === value) return;
  el.shown = value;
  // The bar is a background: it grows without a layout.
  el.firstChild.style.backgroundSize = `${value * 100}% 100%`;
  el.className = `gauge${value >= 0.85 ? " full" : value >= 0.7 ? " high" : ""}`;
  say(el.lastChild, percent(value));
  el.ariaLabel = `context ${percent(value)} full`;
}

const SPARK_WIDTH = 72;
const SPARK_HEIGHT = 18;

export function sparkPoints(values) {
  const top = Math.max(4, ...values);
  const step = SPARK_WIDTH / (values.length - 1);
  return values
    .map((value, index) => `${(index * step).toFixed(1)},${(SPARK_HEIGHT - 1 - (value / top) * (SPARK_HEIGHT - 2)).toFixed(1)}`)
    .join(" ");
}

export function sparkline(values) {
  return svg(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`,
      width: SPARK_WIDTH,
      height: SPARK_HEIGHT,
      "aria-hidden": "true",
    },
    svg("polyline", { points: sparkPoints(values) }),
  );
}
