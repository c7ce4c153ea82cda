// Approvals: exact parameters, who asks, until when; approve or reject.

import { ago, button, dayOf, empty, fill, h, head, say, table, toast, visible, visibleLine } from "./dom.js";
import { at, get, post } from "./api.js";
import { on, readApprovals, store } from "./store.js";

const KINDS = {
  scope_violation: "Outside its scope",
  integration_exec: "Integration call",
  tool_permission: "Tool permission",
  resume_agents: "Resume agents",
  question: "Question",
};

/** What Claude Code asks by its own tool for that; a call of an integration that is named so is none, nor what runs a command. */
const asked = ({ type, tool, command, params }) =>
  (type === "tool_permission" && tool === "AskUserQuestion" && !command && params?.questions) || [];

/** What is asked, where an answer is wanted and no permission. */
export const questionOf = (action) =>
  action.type === "question" ? action.question : asked(action).map((one) => one.question).join("\n");

/** A question is answered with words, or with one of those that it offers. */
function question(approval) {
  const who = visibleLine(approval.agentName);
  const words = h("textarea.answer", { rows: 2, ariaLabel: `Answer to ${who}` });
  const [only, ...others] = asked(approval.action);
  const offers = ((!others.length && only?.options) || []).map(({ label, description }) =>
    button(visibleLine(label), () => send(label), { title: visibleLine(description ?? "") }),
  );
  const send = async (reason) => {
    if (!reason) return words.focus();
    await post("/api/approvals", { id: approval.id, decision: "approve", reason });
    settle(el, "Answered");
    toast(`Answered: ${who} is told`);
    return readApprovals();
  };
  const none = async () => {
    await post("/api/approvals", { id: approval.id, decision: "reject" });
    settle(el, "Not answered");
    await readApprovals();
  };
  words.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) answer.click();
  };
  const answer = button("Answer", () => send(words.value.trim()), { class: "primary", ariaLabel: `Answer ${who}` });
  const el = h(
    "article.card.approval",
    { "data-id": approval.id },
    cardHead(approval),
    h("p.what", visible(questionOf(approval.action))),
    offers.length > 0 && h("div.actions", offers),
    words,
    h("div.actions", button("Leave it to the agent", none), answer),
  );
  el.approve = () => words.focus();
  el.reject = () => {};
  return el;
}

function cardHead(approval) {
  const who = visibleLine(approval.agentName);
  return h(
    "div.card-head",
    h("span.tag", KINDS[approval.action.type] ?? approval.action.type),
    approval.agentId === "operator" ? h("strong", who) : h("a", { href: `#/agent/${approval.agentId}` }, who),
    h("span.muted.right", ago(approval.requestedAt, " ago"), " · expires in ", ago(approval.expiresAt)),
  );
}

/** One approval as a card. It keeps its place when it is decided. */
export function card(approval) {
  const { action } = approval;
  if (questionOf(action)) return question(approval);
  const who = visibleLine(approval.agentName);
  const what = visibleLine(action.description);
  const reason = h("input", {
    class: "reason",
    placeholder: "Reason (optional, the agent is told)",
    ariaLabel: `Reason for ${who}`,
  });
  const decide = (decision, done) => async () => {
    const body = { id: approval.id, decision };
    if (reason.value.trim()) body.reason = reason.value.trim();
    await post("/api/approvals", body);
    settle(el, done);
    toast(`${done}: ${who}`);
    await readApprovals();
  };
  const yes = button("Approve", decide("approve", "Approved"), {
    class: "primary",
    ariaLabel: `Approve ${who}: ${what}`,
  });
  const no = button("Reject", decide("reject", "Rejected"), {
    ariaLabel: `Reject ${who}: ${what}`,
  });
  const shown = h("div.told");
  const rule = h("div");
  const wide = h("span");
  // Not before it is whole: a card keeps its size.
  const el = h(
    "article.card.approval",
    { "data-id": approval.id, hidden: true },
    cardHead(approval),
    h("p.what", what),
    shown,
    rule,
    h("div.actions", reason, no, wide, yes),
  );
  const ruled = async (say) => {
    settle(el, say === "never" ? "Rejected" : "Approved");
    await readApprovals();
  };
  el.whole = Promise.all([import("./card.js"), get(at`/api/approvals/${approval.id}/card`)])
    .then(([{ details, ruleForm, widening }, told]) => {
      fill(wide, widening(approval, told, decide("approve", "Approved")));
      fill(shown, details(told));
      fill(rule, ruleForm(approval, ruled));
    })
    .catch((error) => fill(shown, h("p.muted", `The details cannot be read: ${error.message}`)))
    .finally(() => {
      el.hidden = false;
    });
  el.approve = () => yes.click();
  el.reject = () => no.click();
  return el;
}

function settle(el, word) {
  el.classList.add("settled");
  for (const control of el.querySelectorAll("button,input,textarea,select")) control.disabled = true;
  fill(el.querySelector(".card-head .right"), word);
}

export default function approvals(view) {
  const stack = h("div.cards.wide");
  const none = h("div");
  const past = h("section", { ariaLabel: "Decided" });
  const count = h("span");
  const place = h("div");
  let rules = { load() {} };
  const list = import("./card.js").then(({ ruleList }) => {
    rules = ruleList();
    fill(place, rules.el);
    return rules.load();
  });
  list.catch(() => {});
  view.append(head("Approvals", count), stack, none, place, past);
  const cards = new Map();
  let selected = -1;
  const draw = () => {
    const pending = new Set(store.approvals.map((one) => one.id));
    const held = stack.matches(":hover") || stack.contains(document.activeElement);
    for (const [id, el] of cards) {
      if (pending.has(id)) continue;
      const now = store.resolved.find((one) => one.id === id);
      settle(el, now?.status ?? "settled");
      if (!held) {
        el.remove();
        cards.delete(id);
      }
    }
    for (const approval of [...store.approvals].sort((a, b) => (a.requestedAt < b.requestedAt ? -1 : 1))) {
      if (cards.has(approval.id)) continue;
      const el = card(approval);
      cards.set(approval.id, el);
      stack.append(el);
    }
    say(
      count,
      store.approvals.length
        ? `${store.approvals.length} pending. What an agent may not do on its own waits here; it continues when you decide.`
        : "",
    );
    fill(
      none,
      !cards.size &&
        empty(
          "Nothing is pending",
          "When an agent writes outside of its scope or calls a gated tool, it asks here, and on every connected chat.",
        ),
    );
    fill(
      past,
      store.resolved.length > 0 && [
        h("h2", "Decided"),
        table(
          "Decided approvals",
          ["When", "Agent", "What", "Outcome", "By", "Reason"],
          store.resolved.map((one) => [
            dayOf(one.resolvedAt),
            visibleLine(one.agentName),
            visibleLine(one.action.description),
            h("span", { class: `status ${one.status}` }, one.status),
            one.resolvedBy ?? "",
            one.reason ?? "",
          ]),
        ),
      ],
    );
  };
  const move = (by) => {
    const open = [...stack.children];
    if (!open.length) return;
    open[selected]?.classList.remove("selected");
    selected = Math.max(0, Math.min(open.length - 1, selected + by));
    open[selected].classList.add("selected");
    open[selected].scrollIntoView({ block: "nearest" });
  };
  const stops = [
    on("approvals", () => {
      draw();
      rules.load()?.catch(() => {});
    }),
  ];
  stack.onpointerleave = () => setTimeout(draw, 300);
  draw();
  readApprovals().catch(() => {});
  return {
    stop() {
      for (const stop of stops) stop();
    },
    keys: {
      j: () => move(1),
      k: () => move(-1),
      a: () => stack.children[selected]?.approve(),
      x: () => stack.children[selected]?.reject(),
    },
  };
}
