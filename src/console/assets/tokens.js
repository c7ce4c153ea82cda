// What was used, what it cost, and what was saved, with the basis of every figure.

import { dayOf, dollars, empty, exact, fill, h, head, percent, plural, select, short, span, table } from "./dom.js";
import { get } from "./api.js";
import { bars, curve } from "./chart.js";
import { on } from "./store.js";
import { RANGES, daily, history, spent, within } from "./spent.js";

const AGAIN_MS = 10000;

/** What a saving is called, and how it came about. */
const SAVED = {
  rotation: ["Rotations", "context that a successor began without"],
  coldStart: ["Sessions that were resumed", "context that was still there, instead of a cold start"],
  conflict: ["Conflicts that were prevented", "work that would have been done twice"],
  cacheReads: ["The provider's cache", "input that was read from it"],
};
/** Why an agent was rotated. */
const REASONS = {
  context_threshold: "its context was full",
  quality_degradation: "its work got worse",
  token_limit_exceeded: "it reached its token ceiling",
  manual: "somebody asked for it",
  natural_compaction: "its provider made the context smaller",
};

const tile = (value, label) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, label));

/** How much, and how fast, in the time that a chart shows. */
const pace = (points, key, words) => {
  const from = points[0].time;
  const used = spent(points, key, words);
  return h("p", { class: "hint pace" }, `In the ${span(from)} since ${dayOf(from)}: ${used}.`);
};

/** `[name, value, words]` of what `key` says of each agent, added up. */
function grouped(agents, key) {
  const sums = new Map();
  for (const agent of agents)
    sums.set(agent[key] ?? "unknown", (sums.get(agent[key] ?? "unknown") ?? 0) + agent.used);
  return [...sums].map(([name, used]) => [name, used, short(used)]);
}

export default function tokens(view) {
  const body = h("div");
  const range = select(RANGES, "");
  range.setAttribute("aria-label", "Range of the charts");
  range.className = "filter";
  view.append(
    head(
      "Tokens and cost",
      "What the agents used since this project began. Nothing is estimated unless it says so.",
      range,
    ),
    body,
  );
  let stopped = false;
  const load = async () => {
    const [summary, teams, timeline, dashboard, rotation] = await Promise.all([
      get("/api/tokens/summary"),
      get("/api/tokens/by-team"),
      get("/api/timeline"),
      get("/api/dashboard"),
      get("/api/rotation"),
    ]);
    if (stopped) return;
    const total = summary.totalTokens ?? summary.totalUsed;
    const { basis, ...saved } = summary.breakdown;
    const { cost } = dashboard;
    const all = history(timeline.snapshots, dashboard.tokens.used, cost.totalUsd);
    const chosen = within(all, Number(range.value));
    const points = chosen.map((one) => [one.time, one.tokens]);
    const costs = chosen.map((one) => [one.time, one.cost]);
    const days = daily(all);
    fill(
      body,
      cost.budgetReached && h("p", { class: "notice bad" }, cost.message),
      h(
        "div",
        { class: "tiles" },
        tile(short(total), "tokens used"),
        tile(dollars(cost.totalUsd), "cost in all"),
        tile(
          dollars(cost.todayUsd),
          cost.dailyBudgetUsd ? `today, of ${dollars(cost.dailyBudgetUsd)}` : "today, no budget is set",
        ),
        tile(percent(summary.cacheHitRate), "of the input came from cache"),
        tile(short(summary.totalSaved), "tokens saved"),
        tile(exact(dashboard.agents.rotations), "rotations"),
      ),
      !total &&
        empty("No tokens used yet", "The figures appear as soon as an agent reports its first message."),
      h(
        "div",
        { class: "columns" },
        points.length > 1 &&
          h(
            "div",
            { class: "panel" },
            h("h2", {}, "Tokens over time"),
            curve("Tokens used", points),
            pace(chosen, "tokens", (used) => `${short(used)} tokens`),
          ),
        costs.length > 1 &&
          cost.totalUsd > 0 &&
          h(
            "div",
            { class: "panel" },
            h("h2", {}, "Cost over time"),
            curve("Cost", costs, dollars),
            pace(chosen, "cost", dollars),
          ),
        days.length > 0 &&
          h(
            "div",
            { class: "panel" },
            h("h2", {}, "By day"),
            table(
              "By day",
              ["Day", "#Tokens", "#Cost"],
              days.map(([name, used, usd]) => [name, exact(used), dollars(usd)]),
            ),
          ),
        h(
          "div",
          { class: "panel" },
          h("h2", {}, "By agent"),
          bars(
            "Tokens by agent",
            summary.perAgent.map((one) => [
              one.name || one.id,
              one.used,
              `${short(one.used)}${one.costUsd ? ` · ${dollars(one.costUsd)}` : ""}`,
              one.removed ? null : `#/agent/${one.id}`,
            ]),
          ),
        ),
        h(
          "div",
          { class: "panel" },
          h("h2", {}, "By team"),
          bars(
            "Tokens by team",
            teams.teams.map((one) => [
              one.teamName,
              one.totalTokens,
              `${short(one.totalTokens)} · ${dollars(one.totalCostUsd)} · ${plural(one.agentCount, "agent")}`,
            ]),
          ),
        ),
        h(
          "div",
          { class: "panel" },
          h("h2", {}, "By model"),
          bars("Tokens by model", grouped(summary.perAgent, "model")),
        ),
        h(
          "div",
          { class: "panel" },
          h("h2", {}, "Saved"),
          table(
            "Savings",
            ["Through", "#Tokens", "Basis"],
            Object.entries(saved)
              .filter(([, value]) => typeof value === "number")
              .map(([key, value]) => [
                h("span", { title: key }, SAVED[key]?.[0] ?? key),
                exact(value),
                [basis?.[key], SAVED[key]?.[1]].filter(Boolean).join(": "),
              ]),
          ),
        ),
        rotation.history.length > 0 &&
          h(
            "div",
            { class: "panel" },
            h("h2", {}, "Rotations"),
            table(
              "Rotations",
              ["When", "Agent", "Why", "#Before", "#After"],
              [...rotation.history]
                .reverse()
                .slice(0, 20)
                .map((one) => [
                  `${span(one.timestamp)} ago`,
                  one.agentName,
                  h("span", { title: one.reason }, REASONS[one.reason] ?? one.reason),
                  exact(one.preRotationVelocity),
                  one.postRotationVelocity === null || one.postRotationVelocity === undefined
                    ? "…"
                    : exact(one.postRotationVelocity),
                ]),
            ),
            h("p", { class: "hint" }, "Tokens in the ten minutes before and after."),
          ),
        timeline.events.length > 0 &&
          h(
            "div",
            { class: "panel" },
            h("h2", {}, "What happened"),
            table(
              "What happened",
              ["When", "Agent", "What"],
              [...timeline.events]
                .reverse()
                .slice(0, 20)
                .map((one) => [
                  `${span(one.timestamp)} ago`,
                  one.agentName || one.agentId,
                  `${one.type}${one.detail && one.detail !== one.type ? `: ${one.detail}` : ""}`,
                ]),
            ),
          ),
      ),
    );
  };
  const safe = () =>
    load().catch((error) => {
      if (!body.children.length) fill(body, empty("Not available", error.message));
    });
  safe();
  range.onchange = safe;
  const timer = setInterval(safe, AGAIN_MS);
  const stop = on("reconnect", safe);
  return {
    stop() {
      stopped = true;
      clearInterval(timer);
      stop();
    },
  };
}
