// What is read beside the list of an agent's work: one entry in full, a whole turn, or the outline by turns.

import { dayOf, exact, h, plural, span, timeOf } from "./dom.js";
import { briefingOf, callWords, entriesOf, firstOf, turns, words } from "./log.js";
import { gist, inline, passage } from "./prose.js";

/** Items of a turn that are shown together; the list has the others. */
const MAX_TURN_ITEMS = 300;
/** Turns in the outline, the newest. */
const MAX_TURNS = 300;
/** Letters of a turn's first words in the outline. */
const LABEL_CHARS = 140;
/** Letters of what a tool was given or has answered; the raw line has the rest. */
const MAX_RESULT = 100_000;

const headOf = (title, note, close) =>
  h(
    "div.dialog-head",
    h("h2", title),
    h("span.muted", note),
    h("button.ghost", { ariaLabel: "Close the entry", onclick: close }, "×"),
  );

/** Everything an item holds: its words, and the lines as they stand in the log. */
export function entryView(item, isRaw, { close, turn }) {
  const told = words(item);
  const parts = [
    headOf(told.title ?? item.kind, dayOf(firstOf(item).ts), close),
    ...(item.kind === "tool" ? toolParts(item.calls) : said(item, told)),
  ];
  const raw = h(
    "div",
    { hidden: !isRaw },
    entriesOf(item).map((line) => h("pre", { tabIndex: 0 }, JSON.stringify(line, null, 2))),
  );
  const toggle = h(
    "button",
    {
      ariaExpanded: String(isRaw),
      onclick: () => {
        raw.hidden = !raw.hidden;
        toggle.ariaExpanded = !raw.hidden;
      },
    },
    "Raw line",
  );
  const foot = h("div.actions", toggle, h("button", { onclick: turn }, "Read this turn"));
  if (isRaw) parts.splice(1, 0, foot, raw);
  else parts.push(foot, raw);
  return parts;
}

/** Words of an agent as Markdown; those of a person, too, with a briefing folded away above the task. */
function said(item, told) {
  if (item.kind !== "user") return [passage(told.text)];
  const text = item.start.text ?? "";
  const briefing = briefingOf(text);
  if (!briefing) return [passage(text)];
  const whole = h("details.fold", { open: !briefing.task }, h("summary", `The briefing, ${exact(briefing.lines)} lines`));
  // Made when it is opened: it is long.
  const make = () => whole.open && whole.children.length < 2 && whole.append(passage(text));
  whole.ontoggle = make;
  make();
  return [briefing.task && passage(briefing.task), whole];
}

function toolParts(calls) {
  return calls.length === 1 ? callParts(calls[0]) : calls.map((call) => callFold(call, calls.length <= 3));
}

/** A call as one line that opens; what failed stands open. */
function callFold(call, isOpen) {
  const { icon, title, arg, end, type } = callWords(call);
  const fold = h(
    "details",
    { class: `fold ${type}`, open: isOpen || Boolean(call.end?.error) },
    h("summary", h("span.icon", icon), " ", h("b", title), " ", h("code", arg), " ", h("span.muted", end)),
  );
  const make = () => fold.open && fold.children.length < 2 && fold.append(...callParts(call));
  fold.ontoggle = make;
  make();
  return fold;
}

function callParts({ start, end }) {
  const parts = [];
  if (start) {
    const given = typeof start.input === "string" ? start.input : pretty(start.input);
    parts.push(h("h3", "Input"), pre(given));
  }
  if (end) parts.push(h("h3", end.error ? "Failed with" : "Output"), pre(end.output || "(nothing)"));
  else parts.push(h("p.muted", "Still running."));
  return parts;
}

function pre(text) {
  const rest = text.length - MAX_RESULT;
  return h("pre", { tabIndex: 0 }, rest > 0 ? `${text.slice(0, MAX_RESULT)}\n… and ${exact(rest)} more characters` : text);
}

/** Values as JSON, with texts of several lines readable. */
function pretty(input) {
  if (!input || typeof input !== "object") return JSON.stringify(input) ?? "";
  return Object.entries(input)
    .map(([key, value]) =>
      typeof value === "string" && value.includes("\n")
        ? `${key}:\n${value}`
        : `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
    )
    .join("\n");
}

/** The turn with an item, from its first words to its last, with what was done folded between them. */
export function turnView(items, index, { close }) {
  const turn = turns(items).findLast(({ from }) => from <= index) ?? { from: 0, to: items.length - 1 };
  const shown = items.slice(turn.from, Math.min(turn.to + 1, turn.from + MAX_TURN_ITEMS));
  const left = turn.to + 1 - turn.from - shown.length;
  const body = shown.map((item) => {
    const told = words(item);
    if (item.kind === "tool") return item.calls.map((call) => callFold(call, false));
    if (item.kind === "text" || item.kind === "user") return h("section", { class: `turn-${item.kind}` }, said(item, told));
    if (item.kind === "thinking") return h("details.fold", h("summary", "It thought"), passage(told.text));
    return h("p.muted", `${told.icon} ${told.text ?? ""}`);
  });
  return [
    headOf("A turn", timeSpan(items, turn), close),
    h("div.turn", ...body),
    left > 0 && h("p.muted", `and ${plural(left, "more entry").replace("entrys", "entries")}: see the list`),
  ];
}

function timeSpan(items, { from, to }) {
  const [begin, end] = [firstOf(items[from]).ts, entriesOf(items[to]).at(-1).ts];
  return `${timeOf(begin)} to ${timeOf(end)}`;
}

/** The turns that are held, each with what was said first and what was done: `go` leads to one. */
export function outlineView(items, { close, go, earlier }) {
  const all = turns(items);
  const shown = all.slice(-MAX_TURNS);
  const rows = shown.map((turn) =>
    h("li", h("button.turn-row", { onclick: () => go(turn.from) }, turnLine(items, turn))),
  );
  return [
    headOf("Turns", plural(all.length, "turn"), close),
    earlier && h("button", { onclick: earlier }, "Read back to the first"),
    all.length > shown.length && h("p.muted", `${exact(all.length - shown.length)} earlier ones: see the list`),
    all.length ? h("ol.outline", rows) : h("p.muted", "No turn has begun yet."),
  ];
}

function turnLine(items, turn) {
  const told = words(turn.first);
  const label = gist(told.text ?? `${told.title} ${told.arg}`, 1, LABEL_CHARS)[0] ?? "";
  const began = Date.parse(firstOf(items[turn.from]).ts);
  const took = Date.parse(entriesOf(items[turn.to]).at(-1).ts) - began;
  const facts = [
    timeOf(firstOf(turn.first).ts),
    took >= 1000 && span(Date.now() - took),
    turn.calls > 0 && plural(turn.calls, "call"),
  ].filter(Boolean);
  return [
    h("span", { class: turn.isError ? "bad-text" : "" }, inline(label, { left: 50, flat: true })),
    h("span.muted", facts.join(" · "), turn.failed > 0 && h("span.bad-text", ` · ${turn.failed} failed`)),
  ];
}
