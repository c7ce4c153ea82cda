// The log of one agent as items of a timeline: a tool's start and end are one item, bookkeeping is left out.
//
// The daemon numbers entries without gaps. Output events only say that there is more; the entries themselves
// are read after the last number that is here, so nothing is missed and nothing comes twice, also over
// breaks. Only a window of a long log is held: what was dropped at its beginning is read again when it is
// scrolled to.

import { at, get } from "./api.js";
import { exact } from "./dom.js";

const PAGE = 1000;
const FIRST = 400;
/** Output is followed at most this often. */
const FOLLOW_MS = 150;

/** Items held while the newest are watched, and while somebody reads further up. */
const WATCHED_ITEMS = 10_000;
const READ_ITEMS = 150_000;

/** Lines of a task in the list, with one more about its briefing. */
const TASK_LINES = 3;
/** First words of what an agent is told at its start, and the headline of its task in it. */
const BRIEFING = "# Briefing for ";
const TASK = /\n# Task\n+/;

const QUIET = new Set(["turn-started", "usage", "session", "noise"]);

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

  async start() {
    const page = await get(at`/api/agents/${this.id}/log?tail=${FIRST}`);
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
      // Ends that stood alone find their starts.
      for (const item of before) {
        const start = item.kind === "tool" && !item.start && this.tools.get(item.key);
        if (start) {
          start.end = item.end;
          this.tools.delete(item.key);
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
    const first = (this.items[0].start ?? this.items[0].end).n;
    this.entries -= first - this.first;
    this.first = first;
    return gone;
  }

  add(entry) {
    const { type } = entry;
    const at = this.items.length;
    if (type === "tool-started") {
      const item = { kind: "tool", key: entry.id, start: entry, at: this.base + at };
      this.tools.set(entry.id, item);
      if (this.tools.size > 512) this.tools.delete(this.tools.keys().next().value);
      this.items.push(item);
    } else if (type === "tool-ended") {
      const item = this.tools.get(entry.id);
      this.tools.delete(entry.id);
      if (item) {
        item.end = entry;
        return Math.max(0, Math.min(item.at - this.base, at));
      }
      this.items.push({ kind: "tool", key: entry.id, end: entry });
    } else if (!QUIET.has(type)) {
      const before = this.items[at - 1];
      const said = type === "turn-ended" && entry.isError && before?.kind === "text" ? before.start.text : "";
      this.items.push({ kind: type, start: entry, again: said && sameWords(entry.error || entry.text, said) });
    }
    return at;
  }

  stop() {
    this.stopped = true;
  }
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

/** What the list shows of a text: of a briefing, which is long and much the same for all, the task. */
export function shown({ kind, start }) {
  const text = start.text ?? "";
  if (kind !== "user" || !text.startsWith(BRIEFING)) return text;
  const task = text.split(TASK).pop();
  const lines = exact(text.trimEnd().split("\n").length);
  const end = `(with a briefing of ${lines} lines, which this entry shows in full)`;
  if (task === text) return `Told at its start ${end}`;
  return `${task.trim().split("\n", TASK_LINES).join("\n")}\n${end}`;
}

/** The one line about a tool's input that says most. */
export function argument(entry) {
  if (!entry) return "";
  const input = entry.input ?? {};
  for (const key of [
    "command",
    "path",
    "file_path",
    "filePath",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
  ]) {
    if (typeof input[key] === "string") return first(input[key]);
  }
  return (
    entry.path ??
    (typeof input === "string" ? first(input) : first(JSON.stringify(input) ?? "").slice(0, 200))
  );
}

/** How an item stands in the list: class, icon, words. */
export function words(item) {
  const entry = item.start ?? item.end;
  switch (item.kind) {
    case "tool": {
      const state = item.end ? (item.end.error ? "error" : "ok") : "open";
      const took = item.start && item.end ? Date.parse(item.end.ts) - Date.parse(item.start.ts) : null;
      return {
        type: `tool ${state}`,
        icon: { ok: "✓", error: "✗", open: "…" }[state],
        title: item.start?.name ?? "tool",
        arg: argument(item.start) || first(item.end?.output),
        end: took > 100 ? `${(took / 1000).toFixed(1)} s` : "",
      };
    }
    case "text":
      return { type: "text", icon: "", text: entry.text };
    case "thinking":
      return { type: "thinking", icon: "·", text: entry.text };
    case "user":
      return { type: "user", icon: "›", text: (item.shown ??= shown(item)) };
    case "turn-ended":
      return {
        type: entry.isError ? "quiet error" : "quiet",
        icon: entry.isError ? "✗" : "■",
        text: !entry.isError
          ? "turn ended"
          : item.again
            ? "turn failed with that"
            : `turn failed: ${entry.error || entry.text}`,
      };
    case "life":
      return { type: "life quiet", icon: "◆", text: entry.text };
    default:
      return { type: "quiet", icon: "·", text: `${item.kind}${entry.text ? `: ${entry.text}` : ""}` };
  }
}
