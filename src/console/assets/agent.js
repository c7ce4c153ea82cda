// One agent: what it does, live; and everything one can do with it.

import { button, confirm, cost, empty, fill, h, say, short, span, toast } from "./dom.js";
import { abandon, at, del, post } from "./api.js";
import { card } from "./approvals.js";
import { find, isLive, on, store } from "./store.js";
import { gauge, setGauge } from "./gauge.js";
import { work } from "./timeline.js";
import { about, files, rotate } from "./agent-tabs.js";
import { diff } from "./review.js";

const TABS = [
  ["", "Work"],
  ["diff", "Diff"],
  ["files", "Files"],
  ["rotate", "Rotate"],
  ["about", "About"],
];

export default function agentPage(view, parts) {
  let key = parts[1];
  const stops = [];
  const name = h("h1");
  const status = h("span.status");
  const reason = h("span.muted");
  const context = gauge({ contextUsage: 0 });
  const facts = h("div.facts");
  const actions = h("div.actions.right");
  const tabs = h("nav.tabs", { ariaLabel: "Agent" });
  const body = h("div");
  const gone = h("div");
  const waits = h("section.cards.wide", { ariaLabel: "It waits for you" });
  view.append(h("div.agent-top", h("div", name, " ", status), reason, context, actions), facts, waits, tabs, gone, body);

  let tab = { stop() {}, keys: {} };
  let word = parts[2] ?? "";
  /** The number of the entry that one comes for. */
  let spot = parts[3] ?? "";
  let shownFor = "";
  /** The agent as it was last seen here; none before it is. */
  let known = "";
  const current = () => find(key);

  const top = () => {
    const agent = current();
    if (!agent) {
      if (known) leave(known);
      known = "";
      if (store.connected)
        fill(gone, empty("There is no such agent", "It was removed, or never existed. ", h("a", { href: "#/" }, "All agents")));
      return;
    }
    known = agent.id;
    fill(gone);
    say(name, agent.name);
    say(status, agent.status);
    status.className = `status ${agent.status}`;
    say(reason, `${agent.statusReason} · ${span(agent.statusSince)}`);
    setGauge(context, agent);
    const about = [
      ["role", agent.role],
      ["provider", agent.provider],
      ["model", agent.actualModel ?? agent.model ?? "auto"],
      ["tokens", short(agent.tokensUsed)],
      ["cost", cost(agent.costUsd, agent.unpricedTokens)],
      ["turns", agent.turns],
    ];
    if (agent.pendingInstructions) about.push(["waiting for rotation", `${agent.pendingInstructions} messages`]);
    const line = about.map(([label, value]) => `${label} ${value}`).join();
    if (facts.dataset.line !== line) {
      facts.dataset.line = line;
      fill(facts, ...about.map(([label, value]) => h("span", `${label} `, h("b", value))));
    }
    const does = isLive(agent) ? "live" : "ended";
    if (actions.dataset.does !== does + agent.id) {
      actions.dataset.does = does + agent.id;
      fill(
        actions,
        ...(isLive(agent)
          ? [
              h("a.button", { href: `#/agent/${key}/rotate` }, "Rotate"),
              h("button.danger", { onclick: kill }, "Kill"),
            ]
          : [
              button(
                "Resume",
                async () => {
                  const answer = await post(at`/api/agents/${agent.id}/resume`);
                  toast(`${agent.name} goes on`);
                  moved(answer?.id ?? answer?.agent?.id);
                },
                { class: "primary" },
              ),
              button("Remove", () => remove(agent)),
            ]),
      );
    }
  };

  /** What this agent waits for stands on its page. A card keeps its place when it is decided. */
  const cards = new Map();
  const decide = () => {
    const id = current()?.id ?? key;
    const own = store.approvals.filter((one) => one.agentId === id);
    const pending = new Set(own.map((one) => one.id));
    for (const [one, el] of cards) {
      if (pending.has(one)) continue;
      el.remove();
      cards.delete(one);
    }
    for (const one of own) {
      if (cards.has(one.id)) continue;
      cards.set(one.id, card(one));
      waits.append(cards.get(one.id));
    }
    waits.hidden = !cards.size;
  };
  const first = () => waits.querySelector(".card.approval:not(.settled)");

  const kill = () => {
    const agent = current();
    if (agent)
      confirm(
        `Kill ${agent.name}?`,
        "It ends at once, with everything it started. What it wrote to files stays; it can be resumed.",
        "Kill",
        async () => {
          await del(at`/api/agents/${agent.id}`);
          toast(`${agent.name} was killed`);
        },
      );
  };
  /** Nothing more is read of an agent that goes, or that one leaves. */
  const leave = (id) => {
    tab.stop?.();
    for (const one of [key, id]) abandon(at`/api/agents/${one}`);
  };
  const remove = async (agent) => {
    leave(agent.id);
    try {
      await del(at`/api/agents/${agent.id}`);
    } catch (error) {
      open(true);
      throw error;
    }
    toast(`${agent.name} is removed`);
    location.hash = "#/";
  };
  /** The lineage goes on under another id; of the rotation that one looked at only the work is left. */
  const moved = (id) => {
    if (!id || id === key) return;
    key = id;
    known = "";
    if (word === "rotate" || word === "at") word = "";
    history.replaceState(null, "", `#/agent/${id}${word ? `/${word}` : ""}`);
    open(true);
  };

  const open = (again = false) => {
    const agent = current();
    if (word === "kill") {
      word = "";
      if (agent && isLive(agent)) kill();
    }
    const wanted = ["say", "query", "at"].includes(word) ? "" : word;
    const entry = word === "at" ? Number.parseInt(spot, 10) || 0 : 0;
    fill(
      tabs,
      ...TABS.map(([one, title]) =>
        h("a", { href: `#/agent/${key}${one ? `/${one}` : ""}`, ariaCurrent: one === wanted ? "page" : null }, title),
      ),
    );
    const shown = `${wanted}:${key}`;
    if (shown !== shownFor || again || (entry && !tab.goTo?.(entry))) {
      shownFor = shown;
      tab.stop?.();
      // A place of its own for each: what an earlier tab had asked for may come when it is no longer shown.
      const place = h("div");
      fill(body, place);
      tab = { keys: {}, ...({ "": work, diff, files, rotate, about }[wanted] ?? work)(place, key, moved, entry) };
    }
    if (word === "say") tab.focus?.();
    top();
  };

  stops.push(
    on("agents", top),
    on("agents", decide),
    on("approvals", decide),
    on("tick", top),
    on("rotation:complete", ({ oldAgentId, agentId }) => {
      if (oldAgentId === key || find(key)?.id === agentId) moved(agentId);
    }),
  );
  open();
  decide();
  return {
    go(next) {
      if (next[1] !== key) return false;
      word = next[2] ?? "";
      spot = next[3] ?? "";
      open();
      return true;
    },
    stop() {
      leave(key);
      for (const stop of stops) stop();
    },
    get keys() {
      return {
        i: () => tab.focus?.(),
        r: () => {
          location.hash = `#/agent/${key}/rotate`;
        },
        K: kill,
        a: () => first()?.approve(),
        x: () => first()?.reject(),
        ...tab.keys,
      };
    },
  };
}
