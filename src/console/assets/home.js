// The first screen: what waits for a person, and all agents.

import { code, cost, empty, fill, h, head, keep, kept, say, select, short, soon, span } from "./dom.js";
import { isLive, on, spark, store } from "./store.js";
import { gauge, setGauge, sparkline, sparkPoints } from "./gauge.js";
import { queue as queueIn } from "./queue.js";
import { VList } from "./vlist.js";
import { openSpawn } from "./spawn.js";

const ROW_PX = 52;
const PHONE_ROW_PX = 84;
/** Where the order of the list and whether it has the ended ones are kept. */
const ORDER = "svc-order";
const HIDES = "svc-hides";
const by = (value) => (a, b) => (value(a) < value(b) ? 1 : value(a) > value(b) ? -1 : 0);
/** Orders of the list: what they are called, and how two agents compare. */
const ORDERS = {
  "": ["At work first", (a, b) => isLive(b) - isLive(a) || (isLive(a) ? (a.spawnedAt < b.spawnedAt ? -1 : 1) : a.statusSince > b.statusSince ? -1 : 1)],
  name: ["By name", (a, b) => a.name.localeCompare(b.name, "en", { numeric: true })],
  changed: ["Changed last", by(({ statusSince }) => statusSince)],
  context: ["Fullest context", by(({ contextUsage }) => contextUsage ?? 0)],
  tokens: ["Most tokens", by(({ tokensUsed }) => tokensUsed)],
  cost: ["Dearest", by(({ costUsd }) => costUsd ?? 0)],
};
/** Changes are shown at most so often. */
const REDRAW_MS = 100;

export default function home(view) {
  const figures = h("p.muted.figures");
  const queue = h("section.queue", { ariaLabel: "What waits for you" });
  const filter = h("input.filter", { type: "search", placeholder: "Filter", ariaLabel: "Filter agents" });
  const sort = select(Object.entries(ORDERS).map(([id, [label]]) => [id, label]), kept(ORDER) in ORDERS ? kept(ORDER) : "");
  sort.ariaLabel = "Order of the agents";
  const hides = h("input", { type: "checkbox", checked: kept(HIDES) === "ended" });
  const choices = h("div.actions", h("label", hides, " Hide ended"), sort, filter);
  const none = h("div");
  let shown = [];
  /** How many agents there were when the order was made. */
  let known = 0;
  const narrow = matchMedia("(max-width: 760px)");
  const list = new VList({
    label: "Agents",
    fits: true,
    height: () => (narrow.matches ? PHONE_ROW_PX : ROW_PX),
    render: (index, row) => draw(shown[index], row),
    rowClass: "agent-row",
  });
  const heads = h(
    "div.agent-row.agent-heads",
    { ariaHidden: "true" },
    ...["Agent", "Status", "Doing", "Activity", "Context", "Tokens", "Cost"].map((word) => h("span", word)),
  );
  view.append(head("Agents", null), figures, queue, h("div.list-head", h("h2", "All agents"), choices), heads, list.el, none);
  view.querySelector(".page-head").classList.add("hidden");

  const order = () => {
    const words = filter.value.trim().toLowerCase();
    const before = shown;
    const next = [...store.agents.values()].filter(
      (agent) =>
        (!hides.checked || isLive(agent)) &&
        (!words ||
          `${agent.name} ${agent.role} ${agent.status} ${agent.provider} ${agent.model} ${agent.currentActivity ?? ""}`
            .toLowerCase()
            .includes(words)),
    );
    next.sort(ORDERS[sort.value][1]);
    shown = next;
    known = store.agents.size;
    if (before.length && next.length === before.length && next.every((agent, index) => agent.id === before[index].id))
      return list.refresh();
    list.set(shown.length);
    heads.hidden = !shown.length;
    list.el.hidden = !shown.length;
    return fill(
      none,
      !shown.length &&
        (store.agents.size
          ? empty("No agent matches.", "Clear the filter, or show the ended ones, to see all.")
          : empty(
              "No agents yet",
              "Press ",
              h("kbd", "n"),
              " or use ",
              h("button.primary", { onclick: () => openSpawn() }, "New agent"),
              " to start one. On the command line: ",
              code("svc spawn backend 'Add a login page'"),
            )),
    );
  };
  const waits = queueIn(queue, () => store.agents.size > 0);
  /** Records change in place at once; their order only while the pointer is elsewhere. */
  let late = false;
  const agents = () => {
    if (list.el.matches(":hover") && known === store.agents.size) {
      late = true;
      shown = shown.map((agent) => store.agents.get(agent.id) ?? agent);
      list.refresh();
    } else order();
    waits.draw();
    totals();
  };
  const totals = () => {
    let tokens = 0;
    let usd = 0;
    let unpriced = 0;
    let live = 0;
    for (const agent of store.agents.values()) {
      tokens += agent.tokensUsed;
      usd += agent.costUsd ?? 0;
      unpriced += agent.unpricedTokens ?? 0;
      live += isLive(agent);
    }
    say(
      figures,
      store.agents.size ? `${live} at work · ${store.agents.size} in all · ${short(tokens)} tokens · ${cost(usd, unpriced)}` : "",
    );
  };

  const timer = setInterval(() => {
    if (late && !list.el.matches(":hover")) {
      late = false;
      order();
    }
    for (const [index, row] of list.rows) activity(shown[index], row);
  }, 2000);
  const later = soon(agents, REDRAW_MS);
  const stops = [on("agents", later), on("approvals", later), on("health", later)];
  filter.oninput = order;
  sort.onchange = () => {
    keep(ORDER, sort.value);
    order();
  };
  hides.onchange = () => {
    keep(HIDES, hides.checked ? "ended" : "");
    order();
  };
  list.onresize = () => {
    if (list.rows.size && Number.parseInt([...list.rows.values()][0].style.height, 10) !== list.heightOf(0)) list.set(shown.length);
  };
  // What is cut can be read in full where one points.
  list.el.addEventListener("pointerover", ({ target }) => {
    if (target.matches(".doing")) target.title = target.textContent;
  });
  list.el.addEventListener("click", (event) => {
    const row = event.target.closest(".vrow");
    if (row && !event.target.closest("a")) location.hash = `#/agent/${shown[row.dataset.index].id}`;
  });
  agents();
  return {
    stop() {
      clearInterval(timer);
      later.stop();
      list.stop();
      for (const stop of stops) stop();
    },
    keys: {
      // Through the queue into the list, and back.
      j: () => {
        if ((waits.isHere() || list.selected < 0) && waits.move(1)) return;
        if (waits.isHere()) list.el.focus();
        list.select(list.selected + 1);
      },
      k: () => {
        if (list.selected > 0) list.select(list.selected - 1);
        else if (waits.move(-1)) list.unselect();
      },
      a: () => waits.decide("approve"),
      x: () => waits.decide("reject"),
      "/": () => filter.focus(),
      Enter: () => {
        const agent = shown[list.selected];
        if (agent) location.hash = `#/agent/${agent.id}`;
      },
    },
  };
}

function activity(agent, row) {
  const line = row.parts?.line.firstChild;
  if (!agent || !line) return;
  const values = spark(agent.id);
  const points = sparkPoints(values);
  line.classList.toggle("still", values.every((value) => !value));
  if (line.firstChild.getAttribute("points") !== points) line.firstChild.setAttribute("points", points);
}

function draw(agent, row) {
  if (!agent) return;
  if (!row.parts) {
    const name = h("a.name");
    const role = h("span.muted.sub");
    const status = h("span.status");
    const reason = h("span.muted.sub");
    const doing = h("span.doing");
    const line = h("span.line", sparkline(new Array(24).fill(0)));
    const context = gauge(agent);
    const tokens = h("span.num");
    const cost = h("span.num");
    row.append(h("span.who", name, role), h("span.state", status, reason), doing, line, context, tokens, cost);
    row.parts = { name, role, status, reason, doing, line, context, tokens, cost };
  }
  const { parts } = row;
  const since = span(agent.statusSince);
  if (row.shows === agent && row.since === since) return;
  row.shows = agent;
  row.since = since;
  say(parts.name, agent.name);
  parts.name.href = `#/agent/${agent.id}`;
  say(parts.role, `${agent.role} · ${agent.actualModel ?? agent.model ?? agent.provider}`);
  say(parts.status, agent.status);
  parts.status.className = `status ${agent.status}`;
  say(parts.reason, `${agent.statusReason} · ${since}`);
  say(parts.doing, (isLive(agent) ? agent.currentActivity : agent.error) ?? "");
  if (parts.doing.title) parts.doing.title = parts.doing.textContent;
  activity(agent, row);
  setGauge(parts.context, agent);
  say(parts.tokens, short(agent.tokensUsed));
  parts.tokens.ariaLabel = `${agent.tokensUsed} tokens`;
  say(parts.cost, cost(agent.costUsd, agent.unpricedTokens));
}
