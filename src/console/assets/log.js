// The log of one agent as items of a timeline: a tool's start and end are one item, bookkeeping is left out.
//
// The daemon numbers entries without gaps. Output events only say that there is more; the entries themselves
// are read after the last number that is here, so nothing is missed and nothing comes twice, also over
// breaks. Only a window of a long log is held: what was dropped at its beginning is read again when it is
// scrolled to.

import { at, get } from "./api.js";
import { exact } from "./dom.js";
import { gist } from "./prose.js";

const PAGE = 1000;
const FIRST = 400;
/** Output is followed at most this often. */
const FOLLOW_MS = 150;

/** Items held while the newest are watched, and while somebody reads further up. */
const WATCHED_ITEMS = 10_000;
const READ_ITEMS = 150_000;

/** Lines of a text in the list, and letters of it; the rest stands in the detail. */
export const SHOWN_LINES = 4;
const SHOWN_CHARS = 2000;
/** Calls of one kind, one behind the other, that are one item at most. */
export const MAX_FOLDED = 100;
/** Calls that have no end yet. */
const MAX_OPEN = 512;
/** Items before an entry's place that may hold its other half. */
const HALVES_APART = 600;
/** Lines of a task in the list, with one more about its briefing. */
const TASK_LINES = 3;
/** First words of what an agent is told at its start, and the headline of its task in it. */
const BRIEFING = "# Briefing for ";
const TASK = /\n# Task\n+/;

const QUIET = new Set(["turn-started", "usage", "session", "noise"]);

/** What calls are for, by the names that agent programs give their tools; others are a kind of their own. */
const FAMILIES = [
  ["change", /^(multi_?)?(write|edit|patch|apply_?patch|create|replace|str_?replace|notebook_?edit)/i],
  ["look", /^(read|grep|glob|ls|list|search|find|view|open|fetch|web_?fetch|web_?search)/i],
  ["run", /^(bash|shell|exec|run|command|terminal|local_shell)/i],
];

function familyOf({ name = "", writes }) {
  if (writes) return "change";
  return FAMILIES.find(([, names]) => names.test(name))?.[0] ?? name;
}

/** The entries of an item, in their order. */
export const entriesOf = (item) =>
  item.kind === "tool" ? item.calls.flatMap(({ start, end }) => [start, end]).filter(Boolean) : [item.start];

/** The first entry of an item. */
export const firstOf = (item) => (item.kind === "tool" ? (item.calls[0].start ?? item.calls[0].end) : item.start);

export class Log {
  constructor(id, changed) {
    this.id = id;
    this.changed = changed;
    this.items = [];
    this.entries = 0;
    /** The absolute number of the first item: it falls when older ones come, and rises when they go. */
    this.base = 0;
    this.first = null;
    this.last = 0;
    this.tools = new Map();
    this.reading = null;
    this.again = false;
    this.stopped = false;
  }

  /** Reads the newest entries; with a number those around it first, and from there to the newest. */
  async start(number) {
    const from = number ? `since=${Math.max(0, number - 1 - FIRST / 2)}` : `tail=${FIRST}`;
    const page = await get(`${at`/api/agents/${this.id}/log`}?${from}`);
    // A page is bounded in bytes too: what is left of it follows.
    this.append(page.entries);
    this.first = page.entries[0]?.n ?? 1;
    this.changed(0);
    await this.follow();
  }

  get whole() {
    return this.first !== null && this.first <= 1;
  }

  /** Reads what has come since; calls while it runs are one more round. */
  async follow() {
    if (this.reading || this.stopped) {
      this.again = true;
      return this.reading;
    }
    this.reading = (async () => {
      do {
        this.again = false;
        const page = await get(at`/api/agents/${this.id}/log?since=${this.last}`);
        if (this.stopped) return;
        const from = this.append(page.entries);
        if (page.entries.length) this.changed(from);
        if (page.next) this.again = true;
        else if (this.again) await new Promise((done) => setTimeout(done, FOLLOW_MS));
      } while (this.again && !this.stopped);
    })();
    try {
      await this.reading;
    } finally {
      this.reading = null;
    }
    return undefined;
  }

  /** Reads the page before the first entry that is here; answers how many items came before. */
  async older() {
    if (this.whole || this.olderRuns || this.first === null) return 0;
    this.olderRuns = true;
    try {
      const goal = this.first - 1;
      let since = Math.max(0, goal - PAGE);
      const from = since;
      const entries = [];
      while (since < goal) {
        const page = await get(at`/api/agents/${this.id}/log?since=${since}`);
        const wanted = page.entries.filter((entry) => entry.n <= goal);
        if (!wanted.length) break;
        entries.push(...wanted);
        since = wanted[wanted.length - 1].n;
      }
      if (this.stopped) return 0;
      const before = this.items;
      const open = this.tools;
      const base = this.base;
      this.items = [];
      // Their own numbers do not matter: nothing that is older changes any more.
      this.base = 0;
      this.tools = new Map();
      for (const entry of entries) this.add(entry);
      const added = this.items.length;
      for (const item of before) {
        const alone = item.kind === "tool" && !item.calls[0].start && item.calls[0].end;
        const begun = alone && this.tools.get(alone.id);
        if (begun) {
          begun.call.end = alone;
          this.tools.delete(alone.id);
        } else this.items.push(item);
      }
      this.tools = open;
      this.base = base + before.length - this.items.length;
      this.entries += entries.length;
      this.first = from + 1;
      return added;
    } finally {
      this.olderRuns = false;
    }
  }

  /** Takes entries after the last; answers the first item that is new or changed. */
  append(entries) {
    let from = this.items.length;
    for (const entry of entries) {
      if (entry.n <= this.last) continue;
      this.last = entry.n;
      this.entries += 1;
      from = Math.min(from, this.add(entry));
    }
    return from;
  }

  /** Drops the oldest items when there are too many; answers how many went. */
  trim(watched) {
    const limit = watched ? WATCHED_ITEMS : READ_ITEMS;
    if (this.items.length <= limit || this.olderRuns) return 0;
    const gone = this.items.length - Math.floor(limit * 0.75);
    this.items.splice(0, gone);
    this.base += gone;
    const first = firstOf(this.items[0]).n;
    this.entries -= first - this.first;
    this.first = first;
    return gone;
  }

  add(entry) {
    const { type } = entry;
    const at = this.items.length;
    if (type === "tool-started") {
      const call = { start: entry };
      const family = familyOf(entry);
      let item = this.items[at - 1];
      const folds = item?.family === family && item.calls.length < MAX_FOLDED;
      if (folds) item.calls.push(call);
      else this.items.push((item = { kind: "tool", family, calls: [call], at: this.base + at }));
      this.tools.set(entry.id, { item, call });
      if (this.tools.size > MAX_OPEN) this.tools.delete(this.tools.keys().next().value);
      return folds ? at - 1 : at;
    }
    if (type === "tool-ended") {
      const begun = this.tools.get(entry.id);
      this.tools.delete(entry.id);
      if (begun) {
        begun.call.end = entry;
        return Math.max(0, Math.min(begun.item.at - this.base, at));
      }
      this.items.push({ kind: "tool", calls: [{ end: entry }] });
    } else if (!QUIET.has(type)) {
      const before = this.items[at - 1];
      const said = type === "turn-ended" && entry.isError && before?.kind === "text" ? before.start.text : "";
      this.items.push({ kind: type, start: entry, again: said && sameWords(entry.error || entry.text, said) });
    }
    return at;
  }

  /** The item with an entry, or the one before its place; -1 when it is not held. */
  indexOf(n) {
    if (this.first === null || n < this.first || n > this.last) return -1;
    let low = 0;
    let high = this.items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (firstOf(this.items[middle]).n <= n) low = middle;
      else high = middle - 1;
    }
    for (let at = low; at >= Math.max(0, low - HALVES_APART); at -= 1)
      if (entriesOf(this.items[at]).some((entry) => entry.n === n)) return at;
    return low;
  }

  stop() {
    this.stopped = true;
  }
}

/** Turns of the items that are held: where each begins and ends, what was said first, what was done. */
export function turns(items) {
  const out = [];
  let turn = null;
  items.forEach((item, at) => {
    const isEnd = item.kind === "turn-ended";
    if (item.kind === "user" || (!turn && item.kind !== "life" && !isEnd)) {
      turn = { from: at, to: at, first: item, calls: 0, failed: 0 };
      out.push(turn);
    }
    if (!turn) return;
    turn.to = at;
    if (item.kind === "tool") {
      turn.calls += item.calls.length;
      turn.failed += item.calls.filter(({ end }) => end?.error).length;
    }
    if (isEnd) {
      turn.isError = item.start.isError;
      turn = null;
    }
  });
  return out;
}

const first = (value) => String(value ?? "").split("\n", 1)[0];

/** Whether two say the same, whatever their case and marks. */
function sameWords(one, other) {
  const bare = (text) =>
    String(text ?? "")
      .toLowerCase()
      .replace(/[^\p{L}\p{N}]+/gu, " ")
      .trim();
  return bare(one) === bare(other);
}

/** A briefing, which is long and much the same for all, and the task that stands at its end. */
export function briefingOf(text) {
  if (!text.startsWith(BRIEFING)) return null;
  const task = text.split(TASK).pop();
  return { lines: text.trimEnd().split("\n").length, task: task === text ? "" : task.trim() };
}

/** What the list shows of a text: of a briefing the task. */
export function shown({ kind, start }) {
  const text = start.text ?? "";
  const briefing = kind === "user" ? briefingOf(text) : null;
  if (!briefing) return text;
  const end = `(with a briefing of ${exact(briefing.lines)} lines, which this entry shows in full)`;
  if (!briefing.task) return `Told at its start ${end}`;
  return `${briefing.task.split("\n", TASK_LINES).join("\n")}\n${end}`;
}

/** The one line about a tool's input that says most. */
export function argument(entry) {
  if (!entry) return "";
  const input = entry.input ?? {};
  for (const key of ["command", "path", "file_path", "filePath", "pattern", "query", "url", "description", "prompt"]) {
    if (typeof input[key] === "string") return first(input[key]);
  }
  return entry.path ?? (typeof input === "string" ? first(input) : first(JSON.stringify(input) ?? "").slice(0, 200));
}

const STATES = { ok: "✓", error: "✗", open: "…" };
const stateOf = ({ end }) => (end ? (end.error ? "error" : "ok") : "open");

/** How one call stands in a list. */
export function callWords(call) {
  const state = stateOf(call);
  const took = call.start && call.end ? Date.parse(call.end.ts) - Date.parse(call.start.ts) : null;
  return {
    type: `tool ${state}`,
    icon: STATES[state],
    title: call.start?.name ?? "tool",
    arg: argument(call.start) || first(call.end?.output),
    end: took > 100 ? `${(took / 1000).toFixed(1)} s` : "",
  };
}

/** How calls of one kind stand in a list: how many, what came of them, and each one's subject. */
function toolWords(calls) {
  if (calls.length === 1) return callWords(calls[0]);
  const count = (state) => calls.filter((call) => stateOf(call) === state).length;
  const [failed, open] = [count("error"), count("open")];
  const state = failed ? "error" : open ? "open" : "ok";
  const names = calls.map(({ start }) => start?.name ?? "tool");
  const title = [...new Set(names)].slice(0, 3).join(", ");
  return {
    type: `tool folded ${state}`,
    icon: STATES[state],
    title: `${calls.length} × ${title}`,
    // What runs now, or ran last, is what one looks for.
    arg: calls
      .map(({ start }) => argument(start))
      .filter(Boolean)
      .reverse()
      .join(" · ")
      .slice(0, SHOWN_CHARS),
    end: failed ? `${failed} failed` : "",
  };
}

/** How an item stands in the list: class, icon, words. */
export function words(item) {
  const entry = item.start;
  switch (item.kind) {
    case "tool":
      return toolWords(item.calls);
    case "text":
      item.gist ??= gist(entry.text, SHOWN_LINES, SHOWN_CHARS);
      return { type: "text", icon: "", text: entry.text, lines: item.gist };
    case "thinking":
      return { type: "thinking", icon: "·", text: entry.text };
    case "user":
      item.shown ??= shown(item);
      item.gist ??= gist(item.shown, SHOWN_LINES, SHOWN_CHARS);
      return { type: "user", icon: "›", text: item.shown, lines: item.gist };
    case "turn-ended":
      return {
        type: entry.isError ? "quiet error" : "quiet",
        icon: entry.isError ? "✗" : "■",
        text: !entry.isError ? "turn ended" : item.again ? "turn failed with that" : `turn failed: ${entry.error || entry.text}`,
      };
    case "life":
      return { type: "life quiet", icon: "◆", text: entry.text };
    default:
      return { type: "quiet", icon: "·", text: `${item.kind}${entry.text ? `: ${entry.text}` : ""}` };
  }
}
