// An agent's work, live: a virtual list of what it did, and one entry in full beside it.

import { dayOf, exact, fill, h, say, timeOf } from "./dom.js";
import { find, isLive, on } from "./store.js";
import { Log, words } from "./log.js";
import { talk } from "./talk.js";
import { VList } from "./vlist.js";

const LINE_PX = 20;
const PAD_PX = 11;
/** Lines of a text in the list; the rest stands in the detail. */
const SHOWN_LINES = 4;
const SHOWN_CHARS = 2000;
/** What a row has beside its text: time, icon, gaps; a narrow one leaves the time out. */
const GUTTER_PX = 124;
const NARROW_GUTTER_PX = 74;
const NARROW = matchMedia("(max-width: 900px), (hover: none)");
/** Letters a line loses on the average because words are not cut. */
const RAGGED = 3;
const SAMPLE = "There is no session module yet, so I keep the session next to the login for now.";

/** The mean width of a letter in the font of an element. */
function letterWidth(el) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = getComputedStyle(el).font;
  return pen.measureText(SAMPLE).width / SAMPLE.length;
}

/** The timeline, and the box to write to the agent. */
export function work(body, key) {
  let columns = 90;
  let letter = null;
  const detail = h("aside", {
    class: "detail",
    hidden: true,
    tabIndex: 0,
    "aria-label": "The selected entry",
  });
  const note = h("span");
  const jump = h(
    "button",
    {
      type: "button",
      hidden: true,
      onclick: () => {
        list.toEnd();
        following = true;
        jump.hidden = true;
      },
    },
    "Newest",
  );
  let following = true;
  let drawn = false;
  const log = new Log(key, (from) => {
    const stick = following;
    forget(log.trim(stick));
    list.set(log.items.length, from);
    if (stick) list.toEnd();
    else jump.hidden = false;
    count();
  });
  const list = new VList({
    label: "What it did",
    rowClass: "",
    height: (index) => heightOf(log.items[index], columns),
    render: (index, row) => entryRow(log.items[index], row),
  });
  const count = () => {
    const more = log.whole ? "" : "; older ones are read when you scroll up";
    say(note, log.items.length ? `${exact(log.entries)} of ${exact(log.last)} entries${more}` : "");
    if (!log.items.length && drawn)
      fill(
        list.body,
        h("p", { class: "empty" }, "Nothing yet. The agent's work appears here as it happens."),
      );
    else list.body.querySelector(":scope > .empty")?.remove();
  };
  /** The first `gone` items are no longer held: what can be seen stays where it is. */
  const forget = (gone) => {
    if (!gone) return;
    const height = list.offsets[gone];
    list.selected = list.selected < gone ? -1 : list.selected - gone;
    list.set(log.items.length, 0);
    list.el.scrollTop -= height;
  };
  let reading = null;
  /** Reads the page before what is held, for all who ask meanwhile; answers how many items came. */
  const older = () => {
    reading ??= readOlder().finally(() => {
      reading = null;
    });
    return reading;
  };
  const readOlder = async () => {
    const top = list.el.scrollTop;
    const added = await log.older();
    if (!added) return 0;
    const at = list.selected;
    list.set(log.items.length, 0);
    list.el.scrollTop = top + list.offsets[added];
    if (at >= 0) list.selected = at + added;
    list.draw();
    count();
    return added;
  };
  /** To the very first entry: all pages are read, the newest first. */
  const home = async () => {
    following = false;
    while (!log.whole && !log.stopped) if (!(await older())) break;
    list.el.scrollTop = 0;
    list.draw();
  };
  list.onscroll = () => {
    following = list.atEnd;
    if (following) jump.hidden = true;
    if (list.el.scrollTop < 600) older().catch(() => {});
  };
  list.onresize = () => {
    letter ??= letterWidth(list.el);
    const gutter = NARROW.matches ? NARROW_GUTTER_PX : GUTTER_PX;
    const next = Math.max(20, Math.floor((list.el.clientWidth - gutter) / letter));
    if (Math.abs(next - columns) < 4) return;
    columns = next;
    list.set(log.items.length, 0);
    if (following) list.toEnd();
  };
  const show = (index, raw = false) => {
    list.select(index);
    const item = log.items[list.selected];
    if (!item) return;
    fill(
      detail,
      ...detailOf(item, raw, () => {
        detail.hidden = true;
        frame.classList.remove("open");
        list.el.focus();
      }),
    );
    detail.hidden = false;
    detail.scrollTop = 0;
    frame.classList.add("open");
  };
  list.el.addEventListener("click", (event) => {
    const row = event.target.closest(".vrow");
    if (row) show(Number(row.dataset.index), Boolean(event.target.closest(".raw")));
  });
  const move = (by) => {
    const from = list.selected < 0 ? list.indexAt(list.el.scrollTop) : list.selected + by;
    if (detail.hidden) list.select(from);
    else show(from);
  };
  const frame = h("div", { class: "work" }, list.el, detail);
  const box = talk(key);
  body.append(frame, h("div", { class: "follow" }, note, jump), box.el);

  log.start().then(
    () => {
      drawn = true;
      count();
    },
    (error) => fill(note, error.message),
  );
  const mine = () => find(key)?.id ?? key;
  const follow = () => {
    // Of an agent that was removed there is nothing more to read.
    if (find(key)) log.follow().catch(() => {});
  };
  const stops = [
    on("output", (id) => {
      if (id === mine()) follow();
    }),
    on("reconnect", follow),
    on("resync", follow),
    on("agent:exit", follow),
    on("agents", () => {
      const agent = find(key);
      if (agent && isLive(agent) !== drawnLive) {
        drawnLive = !drawnLive;
        follow();
      }
    }),
  ];
  let drawnLive = isLive(find(key) ?? {});
  return {
    focus: box.focus,
    keys: {
      j: () => move(1),
      k: () => move(-1),
      Enter: () => show(list.selected),
      R: () => show(list.selected, true),
      Home: () => home().catch(() => {}),
      End: () => {
        list.toEnd();
        following = true;
        jump.hidden = true;
      },
      Escape: () => {
        detail.hidden = true;
        frame.classList.remove("open");
      },
    },
    stop() {
      log.stop();
      list.stop();
      for (const stop of stops) stop();
    },
  };
}

function heightOf(item, columns) {
  if (item.kind !== "text" && item.kind !== "user") return LINE_PX + PAD_PX;
  if (item.lines === undefined || item.columns !== columns) {
    let lines = 0;
    for (const line of (words(item).text ?? "").trimEnd().split("\n", SHOWN_LINES))
      lines += line.length <= columns ? 1 : Math.ceil(line.length / (columns - RAGGED));
    item.lines = Math.min(SHOWN_LINES, Math.max(1, lines));
    item.columns = columns;
  }
  return item.lines * LINE_PX + PAD_PX;
}

function entryRow(item, row) {
  if (!item) return;
  if (!row.parts) {
    row.parts = {
      time: h("time"),
      icon: h("span", { class: "icon", "aria-hidden": "true" }),
      title: h("b"),
      arg: h("span", { class: "arg" }),
      body: h("span", { class: "body" }),
      end: h("span", { class: "end" }),
    };
    // Not a stop of the Tab key, there are too many: the keyboard has R.
    const raw = h("button", { type: "button", class: "raw", tabIndex: -1, "aria-label": "Raw line" }, "{ }");
    row.append(row.parts.time, row.parts.icon, row.parts.body, row.parts.end, raw);
  }
  const told = words(item);
  const { time, icon, title, arg, body, end } = row.parts;
  const name = `vrow entry ${told.type}${row.classList.contains("selected") ? " selected" : ""}`;
  const lines = item.lines ?? 1;
  row.dataset.entries = [item.start?.n, item.end?.n].filter(Boolean).join(" ");
  if (row.className !== name) row.className = name;
  say(time, timeOf((item.start ?? item.end).ts));
  say(icon, told.icon);
  say(end, told.end ?? "");
  if (told.title) {
    if (body.firstChild !== title) body.replaceChildren(title, arg);
    say(title, told.title);
    say(arg, told.arg);
  } else {
    if (body.firstChild === title) body.replaceChildren();
    say(body, (told.text ?? "").slice(0, SHOWN_CHARS).trimEnd());
  }
  if (row.lines !== lines) body.style.webkitLineClamp = lines;
  row.lines = lines;
}

/** Everything an item holds: its words, and the lines as they stand in the log. */
function detailOf(item, isRaw, close) {
  const entry = item.start ?? item.end;
  const told = words(item);
  const parts = [
    h(
      "div",
      { class: "dialog-head" },
      h("h2", {}, told.title ?? item.kind),
      h("span", { class: "muted" }, dayOf(entry.ts)),
      h("button", { type: "button", class: "ghost", "aria-label": "Close the entry", onclick: close }, "×"),
    ),
  ];
  if (item.kind === "tool") {
    if (item.start)
      parts.push(
        h("h3", {}, "Input"),
        h("pre", {}, typeof item.start.input === "string" ? item.start.input : pretty(item.start.input)),
      );
    if (item.end)
      parts.push(
        h("h3", {}, item.end.error ? "Failed with" : "Output"),
        h("pre", {}, item.end.output || "(nothing)"),
      );
    else parts.push(h("p", { class: "muted" }, "Still running."));
  } else parts.push(h("div", { class: "prose" }, item.kind === "user" ? entry.text : told.text));
  const raw = h(
    "div",
    { hidden: !isRaw },
    ...[item.start, item.end].filter(Boolean).map((line) => h("pre", {}, JSON.stringify(line, null, 2))),
  );
  const toggle = h(
    "button",
    {
      type: "button",
      "aria-expanded": String(isRaw),
      onclick: () => {
        raw.hidden = !raw.hidden;
        toggle.setAttribute("aria-expanded", String(!raw.hidden));
      },
    },
    "Raw line",
  );
  if (isRaw) parts.splice(1, 0, toggle, raw);
  else parts.push(toggle, raw);
  return parts;
}

/** Values as JSON, with texts of several lines readable. */
function pretty(input) {
  if (!input || typeof input !== "object") return JSON.stringify(input);
  return Object.entries(input)
    .map(([key, value]) =>
      typeof value === "string" && value.includes("\n")
        ? `${key}:\n${value}`
        : `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
    )
    .join("\n");
}
