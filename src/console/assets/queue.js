// The queue of the first screen: what waits for a person, as rows by kind that open in place.

import { ago, button, confirm, fill, h, plural, say, toast, visible, visibleLine } from "./dom.js";
import { at, del, post } from "./api.js";
import { attention, isBad } from "./store.js";
import { card, questionOf } from "./approvals.js";

/** Rows that are shown before somebody asks for the others. */
const ROWS = 10;
/** Of so few things each comes open. */
const FEW = 2;

/** Kinds in the order in which they are shown, with their headings; the last one is what has none. */
const GROUPS = [
  ["storage", "The disk"],
  ["question", "Questions"],
  ["scope_violation", "Outside of their scope"],
  ["tool_permission", "Tool permissions"],
  ["integration_exec", "Integration calls"],
  ["resume_agents", "Resume agents"],
  ["ended", "Crashed or interrupted"],
  ["stalled", "Silent"],
  ["", "Other"],
];

function placeOf(item) {
  const { action } = item.approval ?? {};
  const kind = action ? (questionOf(action) ? "question" : action.type) : (isBad(item.agent ?? {}) ? "ended" : item.kind);
  const place = GROUPS.findIndex(([one]) => one === kind);
  return place < 0 ? GROUPS.length - 1 : place;
}

/** What a row says: who, and what of it. */
function wordsOf({ approval, agent, text, kind }) {
  if (approval) return [visibleLine(approval.agentName), visibleLine(questionOf(approval.action) || approval.action.description)];
  if (!agent) return ["Storage error", text];
  const said = kind === "stalled" && agent.currentActivity ? ` · last: ${agent.currentActivity}` : "";
  return [agent.name, `${agent.statusReason || agent.error}${said}`];
}

/** Draws the queue into `section`. */
export function queue(section, hasAgents) {
  const rows = new Map();
  let all = false;
  const title = h("h2");
  const groups = GROUPS.map(([, label], place) => group(label, place, () => heads()));
  const body = h("div.waits", groups.map(({ el }) => el));
  const more = h("button", { onclick: () => showAll() });
  const calm = h("p.calm", "Nothing waits for you.");
  section.append(title, body, more, calm);

  const row = (item, place, isOpen) => {
    const [who, what] = wordsOf(item);
    const el = h("details.wait", h("summary", h("strong", who), h("span.wait-text", visible(what)), ago(item.since)));
    el.item = item;
    el.place = place;
    el.ontoggle = () => {
      if (!el.card) {
        el.card = item.approval ? card(item.approval) : trouble(item);
        el.append(el.card);
        el.card.whole?.then(heads);
      }
      heads();
    };
    el.open = isOpen;
    return el;
  };
  const heads = () => {
    for (const one of groups) one.head();
  };
  /** The last group that somebody is at: above it nothing is added, or it would move under the hand. */
  const heldAt = () =>
    Math.max(-1, ...groups.map(({ el }, place) => (el.matches(":hover") || el.contains(document.activeElement) ? place : -1)));
  const draw = () => {
    const items = attention();
    const keys = new Set(items.map(({ key }) => key));
    const held = heldAt();
    for (const [key, el] of rows) {
      if (keys.has(key)) continue;
      el.classList.add("settled");
      for (const control of el.querySelectorAll("button,input,textarea,select")) control.disabled = true;
      if (held < 0) {
        el.remove();
        rows.delete(key);
      }
    }
    let left = 0;
    for (const item of items) {
      const place = placeOf(item);
      const known = rows.get(item.key);
      if (known && known.place === place && !known.matches(".settled")) continue;
      if (place < held || (!all && !known && rows.size >= ROWS)) {
        left += 1;
        continue;
      }
      known?.remove();
      const el = row(item, place, items.length <= FEW);
      groups[place].list.append(el);
      rows.set(item.key, el);
    }
    heads();
    const n = items.length;
    say(title, n ? `${n} ${n === 1 ? "thing waits" : "things wait"} for you` : "");
    title.hidden = !n;
    say(more, `Show ${left} more`);
    more.hidden = !left;
    calm.hidden = n > 0 || !hasAgents();
  };
  const showAll = () => {
    all = true;
    draw();
  };
  body.onpointerleave = () => setTimeout(draw, 300);
  const summaries = () => [...body.querySelectorAll(".wait > summary")];
  const here = () => document.activeElement.closest(".wait");
  return {
    draw,
    /** Goes to the next row or the one before; false where the queue ends, or nobody is in it. */
    move(by) {
      const places = summaries();
      const place = places.indexOf(here()?.firstChild);
      const next = places[place < 0 && by < 0 ? places.length - 1 : Math.max(0, place + by)];
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
      return Boolean(next);
    },
    isHere: () => Boolean(here()),
    /** `approve` or `reject` of the row that has the focus; one that is closed opens first, for it to be read. */
    decide(which) {
      const el = here();
      if (!el || el.matches(".settled")) return;
      if (!el.open) el.open = true;
      else if (el.card && !el.card.hidden) el.card[which]?.();
    },
  };
}

/** Rows of one kind below their heading, with what can be done to several of them. */
function group(label, place, changed) {
  const list = h("div");
  const name = h("h3");
  const bulk = h("div.actions");
  const opens = h("button", { onclick: () => toggle() });
  const el = h("section.group", { hidden: true }, h("div.group-head", name, h("span.grow"), bulk, opens), list);
  const open = () => [...list.children].filter((one) => !one.matches(".settled"));
  const toggle = () => {
    const is = open().some((one) => !one.open);
    for (const one of open()) one.open = is;
    changed();
  };
  let drawn = "";
  return {
    el,
    list,
    head() {
      const own = open();
      el.hidden = !list.children.length;
      say(name, `${label} · ${own.length}`);
      say(opens, own.some((one) => !one.open) ? "Open all" : "Close all");
      opens.ariaLabel = `${opens.textContent}: ${label}`;
      opens.hidden = own.length < 2;
      const offers = GROUPS[place][0] === "ended" ? ended(own) : decisions(own);
      const shows = offers.map(([key]) => key).join();
      if (shows === drawn) return;
      drawn = shows;
      fill(bulk, offers.map(([, el]) => el()));
    },
  };
}

/** One after the other, each a request of its own; what is refused is counted and the first reason told. */
async function each(items, done, work) {
  const refused = [];
  for (const item of items) {
    try {
      await work(item);
    } catch (error) {
      refused.push(error.message);
    }
  }
  const failed = refused.length ? `, ${refused.length} could not: ${refused[0]}` : "";
  toast(`${items.length - refused.length} ${done}${failed}`, failed && "bad");
}

/** Approvals of one kind that one agent waits for, as far as all of each is shown. */
function decisions(own) {
  const agents = new Map();
  for (const { item, card: shown, open } of own) {
    const { approval } = item;
    if (!open || !shown || shown.hidden || !approval || questionOf(approval.action)) continue;
    const { agentId } = approval;
    agents.set(agentId, [...(agents.get(agentId) ?? []), approval]);
  }
  const offer = (list, decision, verb, done) => [
    `${decision} ${list.map(({ id }) => id)}`,
    () =>
      button(`${verb} ${list.length} of ${visibleLine(list[0].agentName)}`, () =>
        each(list, done, ({ id }) => post("/api/approvals", { id, decision })),
      ),
  ];
  return [...agents.values()]
    .filter((list) => list.length > 1)
    .flatMap((list) => [offer(list, "reject", "Reject", "rejected"), offer(list, "approve", "Approve", "approved")]);
}

/** Agents that have ended without being done. */
function ended(own) {
  if (own.length < 2) return [];
  const list = own.map(({ item }) => item.agent);
  const names = list.map(({ name }) => name).join(", ");
  const key = list.map(({ id }) => id);
  const remove = () => each(list, "removed", ({ id }) => del(at`/api/agents/${id}`));
  const ask = () => confirm(`Remove ${plural(list.length, "agent")}?`, `${names}: their records and logs go.`, "Remove", remove);
  return [
    [`remove ${key}`, () => h("button", { onclick: ask }, `Remove ${list.length}…`)],
    [
      `resume ${key}`,
      () => button(`Resume ${list.length}`, () => each(list, "go on", ({ id }) => post(at`/api/agents/${id}/resume`)), { title: names }),
    ],
  ];
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
          await del(at`/api/agents/${agent.id}`);
          toast(`${agent.name} is removed`);
        }),
        button(
          "Resume",
          async () => {
            await post(at`/api/agents/${agent.id}/resume`);
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
