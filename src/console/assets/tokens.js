// What was used, what it cost, and what was saved, with the basis of every figure.

import {
  cost as costOf,
  dayOf,
  dollars,
  empty,
  exact,
  field,
  fill,
  formOf,
  h,
  head,
  panel,
  percent,
  plural,
  say,
  select,
  short,
  span,
  table,
  toast,
} from "./dom.js";
import { get, patch } from "./api.js";
import { bars, curve } from "./chart.js";
import { on } from "./store.js";
import { RANGES, daily, forecast, history, spent, within } from "./spent.js";

const AGAIN_MS = 10000;

/** What a saving is called, and how it came about. */
const SAVED = {
  rotation: ["Rotations", "what reading the old context again would have cost more than a new start, ten minutes later"],
  coldStart: ["Sessions that were resumed", "context that their first call read from the cache, less what that cost"],
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

const tile = (value, label) => h("div.tile", h("b", value), h("span", label));

/** How much, and how fast, in the time that a chart shows. */
const pace = (points, key, words) => {
  const from = points[0].time;
  const used = spent(points, key, words);
  return h("p.hint.pace", `In the ${span(from)} since ${dayOf(from)}: ${used}.`);
};

/** What rotations have saved at least and at most. */
function foundOut({ low, high, checked, open }) {
  const found = checked ? `between ${exact(low)} and ${exact(high)}; below 0 they have cost more` : "";
  return [found, open && `${plural(open, "rotation")} not checked yet`].filter(Boolean).join("; ");
}

/** What stands beside the cost of today: estimates, each said to be one. */
function besides(cost) {
  return [
    cost.todayEstimatedUsd > 0 && `about ${dollars(cost.todayEstimatedUsd)} of turns that were cut off`,
    cost.todayUnpricedAtMostUsd > 0 && `at most ${dollars(cost.todayUnpricedAtMostUsd)} unpriced`,
  ].filter(Boolean);
}

/** What the providers allow: measured figures, and guesses that say so. */
function windows(quota) {
  const share = (value) => (value === null ? "–" : `${value} %`);
  const moment = (value) => (value === null ? "–" : new Date(value).toLocaleString());
  return panel(
    "Limits of the providers",
    quota.windows.length > 0 &&
      table(
        "Limits of the providers",
        ["Provider", "Window", "#Used", "#Left", "Opens", "Heard", "#An hour", "Full (guess)", "Fit (guess)"],
        quota.windows.map((one) => [
          one.account === "default" ? one.provider : `${one.provider} (${one.account})`,
          one.window,
          one.closed ? "closed" : share(one.usedPercent),
          share(one.leftPercent),
          moment(one.opensAt),
          moment(one.heardAt),
          share(one.percentPerHour),
          moment(one.guessed.fullAt),
          one.guessed.fit === null ? "–" : `${one.guessed.fit} of ${one.guessed.agents} agents`,
        ]),
      ),
    quota.reserve &&
      h(
        "p.hint",
        `${quota.reserve.percent} % of each window are kept for you: with less left no turn begins by itself`,
        quota.reserve.withoutFigure.length > 0 && `; it has no effect on ${quota.reserve.withoutFigure.join(", ")}, which told no figure`,
        ".",
      ),
    quota.held.map((one) =>
      h(
        "p.hint",
        h("a", { href: `#/agent/${one.agentId}` }, one.name),
        one.goesOnAt ? ` goes on at ${moment(one.goesOnAt)}` : " waits for your word: resume lets it go on",
      ),
    ),
    h("p.hint", "As the providers told it; the guesses hold if the running agents keep their pace."),
  );
}

/** The person's further logins, and how to log in where nobody is. */
function logins(accounts) {
  return panel(
    "Accounts",
    table(
      "Accounts",
      ["Account", "Provider", "Login", "Key", "#Agents"],
      accounts.map((one) => [
        one.label ? `${one.name} (${one.label})` : one.name,
        one.provider,
        one.enabled ? (one.login?.told ?? "not asked yet") : "disabled",
        one.hasKey ? "stored" : "–",
        exact(one.agents.length),
      ]),
    ),
    accounts
      .filter((one) => one.enabled && !one.ready)
      .map((one) =>
        h(
          "p.hint",
          `${one.name}: `,
          one.loginCommand && h("code", one.loginCommand),
          one.loginCommand && ", or ",
          h("code", `svc credentials set ${one.keyName}`),
        ),
      ),
  );
}

/** Where a price comes from. */
const FROM = { "built-in": "built in", given: "a table of yours", setting: "your setting" };

/** What the models that were used cost now, of which day that is, and of which nobody knows it. */
function inForce(models, prices) {
  const unpriced = models.filter((one) => one.unpricedTokens > 0);
  const priced = models.filter((one) => one.price);
  const price = (value) => `$${value}`;
  return panel(
    "Prices",
    priced.length > 0 &&
      table(
        "Prices",
        ["Model", "#Input", "#Output", "#Cache read", "#Cache write", "From", "As of"],
        priced.map(({ model, price: one }) => [
          model,
          price(one.input),
          price(one.output),
          price(one.cacheRead),
          price(one.cacheCreation),
          FROM[one.from] ?? one.from,
          one.asOf ?? "–",
        ]),
      ),
    unpriced.length > 0 &&
      h(
        "p.notice.bad",
        `Nobody knows what ${unpriced.map((one) => one.model).join(", ")} cost${unpriced.length === 1 ? "s" : ""}: `,
        `${exact(unpriced.reduce((sum, one) => sum + one.unpricedTokens, 0))} tokens are unpriced. `,
        h("code", "svc prices update FILE"),
        " gives a price.",
      ),
    h(
      "p.hint",
      `Dollars for a million tokens; ${prices.isGiven ? "your table" : "the built-in table"} is of ${prices.asOf}`,
      prices.isOld && prices.ageDays !== null && `, ${plural(prices.ageDays, "day")} ago: look whether it still holds`,
      ". Its sources: ",
      h("code", "svc prices"),
    ),
  );
}

/** The budget of a day: what is to be expected of it, and how it is set. */
function budgetPanel(changed) {
  const words = h("p", { role: "status" });
  const bar = h("div.gauge", h("div.gauge-track"), h("span.gauge-text"));
  const dollars_ = h("input", { type: "number", min: 0, step: "any", ariaLabel: "Dollars a day", placeholder: "no limit" });
  const form = formOf(
    "Set",
    async () => {
      await patch("/api/config", { safety: { dailyBudgetUsd: dollars_.value === "" ? null : Number(dollars_.value) } });
      toast("The budget is set");
      await changed();
    },
    [field("safety.dailyBudgetUsd", "Dollars a day", dollars_, "Empty: no limit. Nothing new starts above it until midnight UTC.")],
    { class: "budget" },
  );
  const el = h("section.panel", { ariaLabel: "Budget" }, h("h2", "Budget of a day"), bar, words, form);
  return {
    el,
    draw(points, cost) {
      const { share, kind, text } = forecast(points, cost, dollars);
      say(words, text);
      words.className = kind === "bad" ? "notice bad" : kind === "warn" ? "notice warn" : "";
      bar.hidden = !cost.dailyBudgetUsd;
      bar.firstChild.style.backgroundSize = `${Math.min(100, share * 100)}% 100%`;
      bar.className = `gauge${kind === "bad" ? " full" : kind === "warn" ? " high" : ""}`;
      say(bar.lastChild, percent(share));
      if (document.activeElement !== dollars_) dollars_.value = cost.dailyBudgetUsd ?? "";
    },
  };
}

export default function tokens(view) {
  const body = h("div");
  const budget = budgetPanel(() => load());
  const range = select(RANGES, "");
  range.ariaLabel = "Range of the charts";
  range.className = "filter";
  view.append(
    head("Tokens and cost", "What the agents used since this project began. Nothing is estimated unless it says so.", range),
    budget.el,
    body,
  );
  let stopped = false;
  const load = async () => {
    const [summary, teams, timeline, dashboard, rotation, quota, { accounts }, prices] = await Promise.all([
      get("/api/tokens/summary"),
      get("/api/tokens/by-team"),
      get("/api/timeline"),
      get("/api/dashboard"),
      get("/api/rotation"),
      get("/api/quota"),
      get("/api/accounts"),
      get("/api/prices"),
    ]);
    if (stopped) return;
    const total = summary.totalTokens ?? summary.totalUsed;
    const { basis, ...saved } = summary.breakdown;
    const { cost } = dashboard;
    const all = history(timeline.snapshots, dashboard.tokens.used, cost.totalUsd ?? 0, cost.unpricedTokens);
    const chosen = within(all, Number(range.value));
    const points = chosen.map((one) => [one.time, one.tokens]);
    const costs = chosen.map((one) => [one.time, one.cost]);
    const days = daily(all);
    budget.draw(all, cost);
    fill(
      body,
      cost.budgetReached && h("p.notice.bad", cost.message),
      h(
        "div.tiles",
        tile(short(total), "tokens used"),
        tile(costOf(cost.totalUsd, cost.unpricedTokens), "cost in all"),
        tile(
          dollars(cost.todayUsd),
          [cost.dailyBudgetUsd ? `today, of ${dollars(cost.dailyBudgetUsd)}` : "today, no budget is set", ...besides(cost)].join("; "),
        ),
        tile(percent(summary.cacheHitRate), "of the input came from cache"),
        tile(short(summary.totalSaved), "tokens saved, estimated"),
        tile(exact(dashboard.agents.rotations), "rotations"),
      ),
      !total && empty("No tokens used yet", "The figures appear as soon as an agent reports its first message."),
      h(
        "div.columns",
        points.length > 1 &&
          panel("Tokens over time", curve("Tokens used", points), pace(chosen, "tokens", (used) => `${short(used)} tokens`)),
        costs.length > 1 &&
          cost.totalUsd > 0 &&
          panel("Cost over time", curve("Cost", costs, dollars), pace(chosen, "cost", dollars)),
        (quota.reserve || quota.windows.length + quota.held.length > 0) && windows(quota),
        accounts.length > 0 && logins(accounts),
        days.length > 0 &&
          panel(
            "By day",
            table(
              "By day",
              ["Day", "#Tokens", "#Cost"],
              days.map(([name, used, usd, unpriced]) => [name, exact(used), costOf(usd, unpriced)]),
            ),
          ),
        panel(
          "By agent",
          bars(
            "Tokens by agent",
            summary.perAgent.map((one) => [
              one.name || one.id,
              one.used,
              `${short(one.used)}${one.used ? ` · ${costOf(one.costUsd, one.unpricedTokens)}` : ""}`,
              one.removed ? null : `#/agent/${one.id}`,
            ]),
          ),
        ),
        panel(
          "By team",
          bars(
            "Tokens by team",
            teams.teams.map((one) => [
              one.teamName,
              one.totalTokens,
              `${short(one.totalTokens)} · ${costOf(one.totalCostUsd, one.unpricedTokens)} · ${plural(one.agentCount, "agent")}`,
            ]),
          ),
        ),
        panel(
          "By model",
          bars(
            "Tokens by model",
            summary.byModel.map((one) => [one.model, one.used, `${short(one.used)} · ${costOf(one.costUsd, one.unpricedTokens)}`]),
          ),
          summary.interrupted.outputTokens > 0 &&
            h(
              "p.hint",
              `Not in it: about ${exact(summary.interrupted.outputTokens)} tokens of output, `,
              `${costOf(summary.interrupted.costUsd, summary.interrupted.unpricedTokens)}, `,
              "of turns that were cut off before their provider had counted them (estimated).",
            ),
        ),
        summary.byModel.length > 0 && inForce(summary.byModel, prices),
        panel(
          "Saved",
          table(
            "Savings",
            ["Through", "#Tokens", "Basis"],
            Object.entries(saved)
              .filter(([, value]) => typeof value === "number")
              .map(([key, value]) => [
                h("span", { title: key }, SAVED[key]?.[0] ?? key),
                exact(value),
                [[basis?.[key], SAVED[key]?.[1]].filter(Boolean).join(": "), key === "rotation" && foundOut(summary.savings.rotationRange)]
                  .filter(Boolean)
                  .join("; "),
              ]),
          ),
        ),
        rotation.history.length > 0 &&
          panel(
            "Rotations",
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
                  one.postRotationVelocity === null || one.postRotationVelocity === undefined ? "…" : exact(one.postRotationVelocity),
                ]),
            ),
            h("p.hint", "Tokens in the ten minutes before and after."),
          ),
        timeline.events.length > 0 &&
          panel(
            "What happened",
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
