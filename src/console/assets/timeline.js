// An agent's work, live: a virtual list of what it did, and one entry, a turn or the outline beside it.

import { exact, fill, h, say, select, soon, timeOf } from "./dom.js";
import { find, isLive, on } from "./store.js";
import { Log, SHOWN_LINES, entriesOf, firstOf, words } from "./log.js";
import { inline } from "./prose.js";
import { entryView, outlineView, turnView } from "./reading.js";
import { talk } from "./talk.js";
import { VList } from "./vlist.js";

const LINE_PX = 20;
const PAD_PX = 11;
/** What a row has beside its text: time, icon, gaps; a narrow one leaves the time out. */
const GUTTER_PX = 124;
const NARROW_GUTTER_PX = 74;
const NARROW = matchMedia("(max-width: 900px), (hover: none)");
/** Letters a line loses on the average because words are not cut. */
const RAGGED = 3;
/** An outline that is open is drawn again at most so often. */
const OUTLINE_MS = 1000;
/** Marks within the lines of one row. */
const ROW_MARKS = 40;
/** Pages of a log that are read at once for a filter that shows less than the list has room for. */
const FILTER_PAGES = 10;
/** What a filter lets through. */
const FILTERS = {
  said: ({ kind }) => kind === "text" || kind === "user",
  tools: ({ kind }) => kind === "tool",
  errors: ({ kind, calls, start }) => (kind === "tool" ? calls.some(({ end }) => end?.error) : Boolean(start.isError)),
};
const SAMPLE = "There is no session module yet, so I keep the session next to the login for now.";

/** The mean width of a letter in the font of an element. */
function letterWidth(el) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = getComputedStyle(el).font;
  return pen.measureText(SAMPLE).width / SAMPLE.length;
}

/** The timeline, and the box to write to the agent. `spot` is the number of an entry to begin at. */
export function work(body, key, _moved, spot) {
  let columns = 90;
  let letter = null;
  const detail = h("aside.detail", { hidden: true, tabIndex: 0, ariaLabel: "What is read" });
  const note = h("span");
  const jump = h(
    "button",
    {
      hidden: true,
      onclick: () => {
        list.toEnd();
        following = true;
        jump.hidden = true;
      },
    },
    "Newest",
  );
  let following = !spot;
  let drawn = false;
  /** Whether the outline stands in the detail. */
  let outlined = false;
  /** Whether the entry to begin at has been shown. */
  let spotted = false;
  /** What the list has: all items that are held, or those that the filter lets through. */
  let items = [];
  const filter = select(
    [
      ["", "All entries"],
      ["said", "Only what was said"],
      ["tools", "Only tools"],
      ["errors", "Only errors"],
    ],
    "",
  );
  filter.ariaLabel = "What is shown";
  filter.setAttribute("aria-keyshortcuts", "f");
  /** Takes the items over as they are now; how many went at the beginning. */
  const sift = (gone = 0) => {
    const fits = FILTERS[filter.value];
    const before = items;
    items = fits ? log.items.filter(fits) : log.items;
    return fits ? Math.max(0, before.indexOf(items[0])) : gone;
  };
  const log = new Log(key, (from) => {
    const stick = following;
    forget(sift(log.trim(stick)));
    list.set(items.length, filter.value ? 0 : from);
    if (stick) list.toEnd();
    else jump.hidden = false;
    if (spot && !spotted) spotted = goTo(spot);
    count();
    if (outlined) outlineLater();
  });
  const list = new VList({
    label: "What it did",
    rowClass: "",
    height: (index) => heightOf(items[index], columns),
    render: (index, row) => entryRow(items[index], row),
  });
  const count = () => {
    const more = log.whole ? "" : "; older ones are read when you scroll up";
    const sifted = filter.value ? `${exact(items.length)} shown of ` : "";
    say(note, log.items.length ? `${sifted}${exact(log.entries)} of ${exact(log.last)} entries${more}` : "");
    if (!log.items.length && drawn)
      fill(list.body, h("p.empty", "Nothing yet. The agent's work appears here as it happens."));
    else list.body.querySelector(":scope > .empty")?.remove();
  };
  /** The first `gone` items are no longer held: what can be seen stays where it is. */
  const forget = (gone) => {
    if (!gone) return;
    const height = list.offsets[gone];
    list.selected = list.selected < gone ? -1 : list.selected - gone;
    list.set(items.length, 0);
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
    const read = await log.older();
    if (!read) return 0;
    const before = items.length;
    sift();
    const added = filter.value ? items.length - before : read;
    const at = list.selected;
    list.set(items.length, 0);
    list.el.scrollTop = top + list.offsets[added];
    if (at >= 0) list.selected = at + added;
    list.draw();
    count();
    return read;
  };
  /** Shows what the filter lets through; older entries are read until the list is full. */
  const choose = async () => {
    const item = items[list.selected];
    sift();
    list.selected = item ? items.indexOf(item) : -1;
    list.set(items.length, 0);
    if (following) list.toEnd();
    count();
    const room = () => list.offsets[items.length] < list.el.clientHeight;
    for (let page = 0; page < FILTER_PAGES && filter.value && room() && !log.whole; page += 1) if (!(await older())) break;
  };
  filter.onchange = () => choose().catch(() => {});
  /** Before one goes to what the filter may hide. */
  const showAll = () => {
    if (!filter.value) return;
    filter.value = "";
    choose();
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
    list.set(items.length, 0);
    if (following) list.toEnd();
  };
  const close = () => {
    outlined = false;
    detail.hidden = true;
    frame.classList.remove("open");
    list.el.focus();
  };
  const read = (parts) => {
    outlined = false;
    fill(detail, ...parts);
    detail.hidden = false;
    detail.scrollTop = 0;
    frame.classList.add("open");
  };
  const show = (index, raw = false) => {
    list.select(index);
    const item = items[list.selected];
    if (item) read(entryView(item, raw, { close, turn: readTurn }));
  };
  /** The whole turn with the selected entry; the one at the top where none is. */
  const readTurn = () => {
    if (!items.length) return;
    if (list.selected < 0) list.select(list.indexAt(list.el.scrollTop));
    read(turnView(log.items, log.items.indexOf(items[list.selected]), { close }));
    detail.focus();
  };
  const go = (index) => {
    showAll();
    following = false;
    list.select(index);
    list.el.scrollTop = list.offsets[index];
    list.draw();
    readTurn();
  };
  const outline = () => {
    const earlier = log.whole ? null : () => home().then(outline, () => {});
    read(outlineView(log.items, { close, go, earlier }));
    outlined = true;
  };
  const outlineLater = soon(() => {
    // Whoever is in it with the keyboard keeps its place.
    if (outlined && !detail.contains(document.activeElement)) {
      const top = detail.scrollTop;
      outline();
      detail.scrollTop = top;
    }
  }, OUTLINE_MS);
  /** To an entry by its number; false where it is not held. */
  const goTo = (n) => {
    const index = log.indexOf(n);
    if (index < 0) return false;
    showAll();
    following = false;
    show(index);
    list.el.scrollTop = Math.max(0, list.offsets[index] - list.el.clientHeight / 3);
    list.draw();
    return true;
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
  const frame = h("div.work", list.el, detail);
  const box = talk(key);
  const turnsButton = h("button", { onclick: outline, ariaKeyShortcuts: "o" }, "Turns");
  const foot = h("div.follow", note, h("span.actions", jump, filter, turnsButton));
  body.append(frame, foot, box.el);

  log.start(spot).then(
    () => {
      // It is shown as soon as it is here; what came after it was read behind it.
      if (spot && !spotted) goTo(Math.min(spot, log.last));
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
    goTo,
    keys: {
      o: outline,
      t: readTurn,
      f: () => filter.focus(),
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
      Escape: () => detail.hidden || close(),
    },
    stop() {
      outlineLater.stop();
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
    for (const line of words(item).lines) lines += line.length <= columns ? 1 : Math.ceil(line.length / (columns - RAGGED));
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
      icon: h("span.icon", { ariaHidden: "true" }),
      title: h("b"),
      arg: h("span.arg"),
      body: h("span.body"),
      end: h("span.end"),
    };
    // Not a stop of the Tab key, there are too many: the keyboard has R.
    const raw = h("button.raw", { tabIndex: -1, ariaLabel: "Raw line" }, "{ }");
    row.append(row.parts.time, row.parts.icon, row.parts.body, row.parts.end, raw);
  }
  const told = words(item);
  const { time, icon, title, arg, body, end } = row.parts;
  const name = `vrow entry ${told.type}${row.classList.contains("selected") ? " selected" : ""}`;
  const lines = item.lines ?? 1;
  row.dataset.entries = entriesOf(item)
    .map(({ n }) => n)
    .join(" ");
  if (row.className !== name) row.className = name;
  say(time, timeOf(firstOf(item).ts));
  say(icon, told.icon);
  say(end, told.end ?? "");
  if (told.title) {
    if (body.firstChild !== title) body.replaceChildren(title, arg);
    say(title, told.title);
    say(arg, told.arg);
  } else {
    if (body.firstChild === title) body.replaceChildren();
    saying(body, told);
  }
  if (row.lines !== lines) body.style.webkitLineClamp = lines;
  row.lines = lines;
}

/** Words of a row: most have no marks and are one text node, which is written only when it changes. */
function saying(body, told) {
  const text = told.lines ? told.lines.join("\n") : (told.text ?? "");
  const parts = told.lines ? inline(text, { left: ROW_MARKS, flat: true }) : [text];
  if (parts.length < 2 && typeof parts[0] !== "object") {
    body.said = null;
    // What stood there with marks is no text node.
    if (body.firstElementChild) body.replaceChildren();
    say(body, parts[0] ?? "");
  } else if (body.said !== text) {
    body.said = text;
    fill(body, ...parts);
  }
}
