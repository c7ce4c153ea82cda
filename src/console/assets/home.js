// The first screen: what waits for a person, and all agents.

import { ago, button, code, cost, empty, fill, h, head, say, short, soon, span, toast } from "./dom.js";
import { at as path, post, del } from "./api.js";
import { attention, isBad, isLive, on, spark, store } from "./store.js";
import { card } from "./approvals.js";
import { gauge, setGauge, sparkline, sparkPoints } from "./gauge.js";
import { VList } from "./vlist.js";
import { openSpawn } from "./spawn.js";

const ROW_PX = 52;
const PHONE_ROW_PX = 84;
const QUEUE_SHOWN = 30;
/** Changes are shown at most so often. */
const REDRAW_MS = 100;

export default function home(view) {
  const figures = h("p.muted.figures");
  const queue = h("section.queue", { ariaLabel: "What waits for you" });
  const filter = h("input.filter", { type: "search", placeholder: "Filter", ariaLabel: "Filter agents" });
  const none = h("div");
  let shown = [];
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
  view.append(head("Agents", null), figures, queue, h("div.list-head", h("h2", "All agents"), filter), heads, list.el, none);
  view.querySelector(".page-head").classList.add("hidden");

  const order = () => {
    const words = filter.value.trim().toLowerCase();
    const before = shown;
    const next = [...store.agents.values()].filter(
      (agent) =>
        !words ||
        `${agent.name} ${agent.role} ${agent.status} ${agent.provider} ${agent.model} ${agent.currentActivity ?? ""}`
          .toLowerCase()
          .includes(words),
    );
    next.sort(
      (a, b) => isLive(b) - isLive(a) || (isLive(a) ? (a.spawnedAt < b.spawnedAt ? -1 : 1) : a.statusSince > b.statusSince ? -1 : 1),
    );
    shown = next;
    if (before.length && next.length === before.length && next.every((agent, index) => agent.id === before[index].id))
      return list.refresh();
    list.set(shown.length);
    heads.hidden = !shown.length;
    list.el.hidden = !shown.length;
    return fill(
      none,
      !shown.length &&
        (words
          ? empty("No agent matches.", "Clear the filter to see all.")
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
  /** Records change in place at once; their order only while the pointer is elsewhere. */
  let late = false;
  const agents = () => {
    if (list.el.matches(":hover") && shown.length === store.agents.size) {
      late = true;
      shown = shown.map((agent) => store.agents.get(agent.id) ?? agent);
      list.refresh();
    } else order();
    drawQueue();
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

  // Cards keep their places: new ones are added below, and what is settled stays until the pointer has left.
  const cards = new Map();
  const title = h("h2");
  const stack = h("div.cards");
  const calm = h("p.calm", "Nothing waits for you.");
  queue.append(title, stack, calm);
  const drawQueue = () => {
    const all = attention();
    const items = all.slice(0, QUEUE_SHOWN);
    const keys = new Set(items.map((item) => item.key));
    const held = stack.matches(":hover") || stack.contains(document.activeElement);
    for (const [key, el] of cards) {
      if (keys.has(key)) continue;
      el.classList.add("settled");
      if (!held) {
        el.remove();
        cards.delete(key);
      }
    }
    for (const item of items) {
      const known = cards.get(item.key);
      if (known && known.dataset.kind === item.kind) continue;
      const el = item.kind === "approval" ? card(item.approval) : trouble(item);
      el.dataset.kind = item.kind;
      if (known) known.replaceWith(el);
      else stack.append(el);
      cards.set(item.key, el);
    }
    const n = all.length;
    say(title, n ? `${n} ${n === 1 ? "thing waits" : "things wait"} for you` : "");
    title.hidden = !n;
    calm.hidden = n > 0 || !store.agents.size;
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
  stack.onpointerleave = () => setTimeout(drawQueue, 300);
  return {
    stop() {
      clearInterval(timer);
      later.stop();
      list.stop();
      for (const stop of stops) stop();
    },
    keys: {
      j: () => list.select(list.selected + 1),
      k: () => list.select(list.selected - 1),
      "/": () => filter.focus(),
      Enter: () => {
        const agent = shown[list.selected];
        if (agent) location.hash = `#/agent/${agent.id}`;
      },
    },
  };
}

/** A card of an agent, or of the daemon, that needs a person. */
function trouble(item) {
  const { agent } = item;
  if (!agent) {
    return h(
      "article.card.bad",
      h("div.card-head", h("strong", "The disk"), h("span.muted", "storage error · ", ago(item.since))),
      h("p", item.text),
      h("p.muted", "Changes are refused until it can write again. Free space, or fix the folder's permissions."),
    );
  }
  const words = { crashed: "crashed", interrupted: "was interrupted", stalled: "is silent" }[item.kind];
  const actions = isBad(agent)
    ? [
        button("Remove", async () => {
          await del(path`/api/agents/${agent.id}`);
          toast(`${agent.name} is removed`);
        }),
        button(
          "Resume",
          async () => {
            await post(path`/api/agents/${agent.id}/resume`);
            toast(`${agent.name} goes on`);
          },
          { class: "primary" },
        ),
      ]
    : [
        h("a.button", { href: `#/agent/${agent.id}/say` }, "Write to it"),
        h("a.button", { href: `#/agent/${agent.id}/rotate` }, "Rotate"),
      ];
  return h(
    "article",
    { class: `card trouble ${item.kind === "stalled" ? "warn" : "bad"}` },
    h(
      "div.card-head",
      h("a", { href: `#/agent/${agent.id}`, title: agent.name }, agent.name),
      h("span", ` ${words}`),
      h("span.muted.right", ago(item.since, " ago")),
    ),
    h("p.clamp", agent.statusReason || agent.error),
    // The reason says what to do, and mostly quotes the error.
    agent.error &&
      !agent.statusReason?.toLowerCase().includes(agent.error.trim().toLowerCase()) &&
      h("p.clamp.muted", agent.error),
    // What it said last may be the question that it waits with.
    item.kind === "stalled" && agent.currentActivity && h("p.clamp.muted", `Last: ${agent.currentActivity}`),
    h("div.actions", ...actions),
  );
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
