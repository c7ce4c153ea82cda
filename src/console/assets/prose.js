// Markdown as agents, briefs and maps use it. Everything becomes text nodes of elements that are made here:
// nothing in a text can become markup, and no picture is loaded.
//
// **Bounds:** so many letters, elements, cells and levels are rendered; what is beyond them stands there as
// plain text, or is counted. Time grows with the length of a text, whatever stands in it: blocks are read by
// lines, one level of quotes and lists at a time, and marks within a line with at most one open of each kind.

import { exact, h, toast, visibleLine } from "./dom.js";

/** Letters of one text that are rendered; the rest is counted. */
export const MAX_CHARS = 200_000;
/** Elements of one text; what comes then is plain text. */
export const MAX_ELEMENTS = 12_000;
/** Quotes and lists within each other. */
export const MAX_DEPTH = 6;
/** Columns of a table, and cells of one: rows beyond stand below it as they are. */
export const MAX_COLUMNS = 40;
export const MAX_CELLS = 4_000;
/** Letters of an address that can be a link. */
const MAX_ADDRESS = 2_000;
/** Letters of an address that are shown beside its words. */
const SHOWN_ADDRESS = 90;
/** Parentheses within each other in an address. */
const MAX_PARENTHESES = 4;
/** What a line may be indented and still begin a block. */
const TAB = "    ";

const FENCE = /^ *(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const ITEM = /^( {0,9})([-*+]|\d{1,9}[.)])(?: {1,4}|$)/;
const QUOTE = /^ {0,3}> ?/;
const RULE = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const MARKS = /\\|`+|\*+|_+|~~|!?\[|\]|<|\bhttps?:\/\/[^\s<>"'`[\]]+/g;
const HAS_MARK = /[\\\x60*_~[\]<]|\/\//;
const PUNCTUATION = /[\p{P}\p{S}]/u;

/** A text of an agent's, below a heading of the page. */
export const passage = (text) => h("div.prose", prose(text, { top: 3 }));

/**
 * Elements for a text. `top` is the level that `#` becomes; with `join` the lines of a paragraph are one, as
 * in documents; `bare` leaves out comments of HTML; at most `most` letters are read.
 */
export function prose(text, { top = 2, join = false, bare = false, most = MAX_CHARS } = {}) {
  let words = String(text ?? "");
  if (bare) words = withoutComments(words);
  const rest = words.length - most;
  if (rest > 0) words = words.slice(0, most);
  const out = blocks(words.replaceAll("\r\n", "\n").split("\n"), 0, { top, join, left: MAX_ELEMENTS });
  if (rest > 0) out.push(h("p.muted", `… and ${exact(rest)} more characters, which the raw line has`));
  return out;
}

function withoutComments(text) {
  const parts = [];
  let from = 0;
  for (;;) {
    const begin = text.indexOf("<!--", from);
    const end = begin < 0 ? -1 : text.indexOf("-->", begin + 4);
    if (end < 0) return parts.length ? parts.join("") + text.slice(from) : text;
    parts.push(text.slice(from, begin));
    from = end + 3;
  }
}

/** An element, which is counted. */
function make(cx, tag, props, ...children) {
  cx.left -= 1;
  return h(tag, props, ...children);
}

/** Elements of some lines. */
function blocks(lines, depth, cx) {
  const out = [];
  let at = 0;
  while (at < lines.length) {
    if (cx.left <= 0) {
      out.push(h("pre.rest", lines.slice(at).join("\n")));
      break;
    }
    const line = lines[at];
    const [next, el] =
      fenced(lines, at, line, cx) ??
      headline(at, line, cx) ??
      quoted(lines, at, line, depth, cx) ??
      listed(lines, at, line, depth, cx) ??
      tabled(lines, at, line, cx) ??
      paragraph(lines, at, depth, cx);
    if (el) out.push(el);
    at = next;
  }
  return out;
}

function fenced(lines, at, line, cx) {
  const open = FENCE.exec(line);
  if (!open) return null;
  const [, fence, info] = open;
  const closes = (one) => {
    const bare = one.trim();
    return bare.length >= fence.length && bare.startsWith(fence) && !bare.replaceAll(fence[0], "");
  };
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) end += 1;
  return [end + 1, codeBlock(lines.slice(at + 1, end).join("\n"), info.trim().split(" ", 1)[0], cx)];
}

/** Code with what it is written in, and a button that copies it. */
function codeBlock(text, language, cx) {
  cx.left -= 4;
  return h(
    "div.code",
    h(
      "div.code-head",
      h("span.muted", visibleLine(language).slice(0, 30)),
      h("button", { onclick: () => copy(text), ariaLabel: "Copy this code" }, "Copy"),
    ),
    h("pre.panel", { tabIndex: 0 }, text),
  );
}

/** Puts text into the clipboard; where the page may not, which plain HTTP from afar means, it says so. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser lets only pages of this machine, or by HTTPS, copy: mark the text instead", "bad");
  }
}

function headline(at, line, cx) {
  const found = HEADING.exec(line);
  if (found) {
    const level = Math.min(6, found[1].length - 1 + cx.top);
    return [at + 1, make(cx, `h${level}`, {}, inline(found[2], cx))];
  }
  return line.length < 200 && RULE.test(line) ? [at + 1, make(cx, "hr")] : null;
}

function quoted(lines, at, line, depth, cx) {
  if (depth >= MAX_DEPTH || !QUOTE.test(line)) return null;
  let end = at;
  const inner = [];
  while (end < lines.length && QUOTE.test(lines[end])) {
    inner.push(lines[end].replace(QUOTE, ""));
    end += 1;
  }
  return [end, make(cx, "blockquote", {}, blocks(inner, depth + 1, cx))];
}

const indentOf = (line) => line.length - line.trimStart().length;
const untabbed = (line) => (line.includes("\t") ? line.replace(/^[ \t]+/, (all) => all.replaceAll("\t", TAB)) : line);

function listed(lines, at, line, depth, cx) {
  const first = ITEM.exec(untabbed(line));
  if (!first || depth >= MAX_DEPTH) return null;
  const ordered = first[2].length > 1;
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  const list = ordered ? make(cx, "ol", { start: start === 1 ? null : start }) : make(cx, "ul");
  let end = at;
  while (end < lines.length && cx.left > 0) {
    const one = untabbed(lines[end]);
    const item = ITEM.exec(one);
    if (!item || item[2].length > 1 !== ordered || item[1].length > first[1].length + 1) break;
    const inner = [one.slice(item[0].length)];
    const body = item[1].length + item[2].length + 1;
    end = itemEnd(lines, end + 1, body, inner);
    list.append(listItem(inner, depth, cx));
  }
  return [end, list];
}

/** Takes the lines that belong to an item whose words begin at column `body`; answers where it ends. */
function itemEnd(lines, from, body, inner) {
  let at = from;
  while (at < lines.length) {
    const line = untabbed(lines[at]);
    if (!line.trim()) {
      const next = lines[at + 1] === undefined ? "" : untabbed(lines[at + 1]);
      if (!next.trim() || indentOf(next) < Math.min(body, 2)) {
        return ITEM.test(next) ? at + 1 : at;
      }
      inner.push("");
    } else if (indentOf(line) >= Math.min(body, 2)) inner.push(line.slice(Math.min(body, indentOf(line))));
    else if (ITEM.test(line) || FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || !inner.at(-1)) return at;
    // A line that is not indented goes on with the words before it.
    else inner.push(line);
    at += 1;
  }
  return at;
}

function listItem(inner, depth, cx) {
  const box = /^\[([ xX])\] /.exec(inner[0]);
  if (box) inner[0] = inner[0].slice(4);
  const li = make(cx, "li", {}, box && (box[1] === " " ? "☐ " : "☑ "));
  for (const el of blocks(inner, depth + 1, cx)) {
    if (el.tagName === "P" && !li.querySelector(":scope > *")) li.append(...el.childNodes);
    else li.append(el);
  }
  return li;
}

/** The cells of a row: split at bars that stand in no code and are not escaped. */
function cellsOf(line) {
  const cells = [];
  let from = 0;
  let code = false;
  const row = line.trim();
  for (let at = 0; at < row.length && cells.length <= MAX_COLUMNS; at += 1) {
    const letter = row[at];
    if (letter === "\\") at += 1;
    else if (letter === "`") code = !code && row.indexOf("`", at + 1) > 0;
    else if (letter === "|" && !code) {
      if (at > 0) cells.push(row.slice(from, at).trim().replaceAll("\\|", "|"));
      from = at + 1;
    }
  }
  if (from < row.length) cells.push(row.slice(from).trim().replaceAll("\\|", "|"));
  return cells;
}

function tabled(lines, at, line, cx) {
  const under = lines[at + 1];
  if (!line.includes("|") || !under?.includes("-") || !/^[|:\- \t]+$/.test(under)) return null;
  const heads = cellsOf(line);
  const sides = cellsOf(under);
  if (heads.length > MAX_COLUMNS || heads.length !== sides.length) return null;
  if (!sides.every((side) => /^:?-+:?$/.test(side))) return null;
  const classes = sides.map((side) => (side.endsWith(":") ? (side.startsWith(":") ? "mid" : "num") : ""));
  let left = Math.min(MAX_CELLS, cx.left);
  const rows = [];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && left > 0) {
    const cells = cellsOf(lines[end]);
    left -= heads.length;
    const row = heads.map((_, n) => make(cx, "td", { class: classes[n] }, inline(cells[n] ?? "", cx)));
    rows.push(make(cx, "tr", {}, row));
    end += 1;
  }
  const head = heads.map((cell, n) =>
    make(cx, cell ? "th" : "td", { scope: cell ? "col" : null, class: classes[n] }, inline(cell, cx)),
  );
  const el = make(
    cx,
    "div",
    { class: "scroll", tabIndex: 0, role: "group", ariaLabel: "Table" },
    h("table", h("thead", h("tr", head)), h("tbody", rows)),
  );
  if (left > 0) return [end, el];
  const rest = end;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const more = end > rest && h("pre.rest", lines.slice(rest, end).join("\n"));
  return [end, h("div", el, more)];
}

const begins = (line) => FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line);

function paragraph(lines, at, depth, cx) {
  if (!lines[at].trim()) return [at + 1, null];
  let end = at + 1;
  // Below the deepest level marks of quotes and lists are words.
  const stops = depth < MAX_DEPTH ? begins : (line) => FENCE.test(line) || HEADING.test(line);
  const goesOn = (line) => line.trim() && !stops(untabbed(line));
  while (end < lines.length && goesOn(lines[end]) && !startsTable(lines, end)) end += 1;
  const words = lines.slice(at, end).map((line) => line.trim());
  const text = words.join(cx.join ? " " : "\n");
  return [end, make(cx, "p", { class: cx.join ? null : "lines" }, inline(text, cx))];
}

const startsTable = (lines, at) => lines[at].includes("|") && lines[at + 1]?.includes("|") && /^[|:\- \t]+$/.test(lines[at + 1]);

/** Nodes and strings for the words of a block; in what is `flat`, links are their words. */
export function inline(text, cx = { left: MAX_ELEMENTS }) {
  if (!HAS_MARK.test(text) || cx.left <= 0) return [text];
  return new Line(text, cx).read();
}

/** One pass over the words of a block. Of each kind of mark one at most is open. */
class Line {
  constructor(text, cx) {
    this.text = text;
    this.cx = cx;
    /** What is open, the innermost last: its mark, and what has come since. */
    this.open = [{ mark: "", parts: [] }];
    this.ticks = null;
  }

  get top() {
    return this.open[this.open.length - 1];
  }

  add(part) {
    const { parts } = this.top;
    if (typeof part === "string" && typeof parts.at(-1) === "string") parts[parts.length - 1] += part;
    else if (part !== "") parts.push(part);
  }

  read() {
    const { text } = this;
    const marks = new RegExp(MARKS);
    let from = 0;
    for (let found = marks.exec(text); found && this.cx.left > 0; found = marks.exec(text)) {
      this.add(text.slice(from, found.index));
      from = this.mark(found[0], found.index);
      marks.lastIndex = from;
    }
    this.add(text.slice(from));
    while (this.open.length > 1) this.fold();
    return this.open[0].parts;
  }

  /** The innermost that is open was none: its mark is a word. */
  fold() {
    const { mark, parts } = this.open.pop();
    this.add(mark);
    for (const part of parts) this.add(part);
  }

  /** What the mark at a place comes to; answers where to go on. */
  mark(mark, at) {
    const end = at + mark.length;
    switch (mark[0]) {
      case "\\":
        return this.escaped(at);
      case "\x60":
        return this.code(mark, at);
      case "*":
      case "_":
      case "~":
        this.emphasis(mark, at);
        return end;
      case "!":
      case "[":
        return this.bracket(mark, end);
      case "]":
        return this.unbracket(at);
      case "<":
        return this.angle(at);
      default:
        return this.address(mark, at);
    }
  }

  escaped(at) {
    const next = this.text[at + 1];
    const is = next !== undefined && /[!-/:-@[-\x60{-~]/.test(next);
    this.add(is ? next : "\\");
    return at + (is ? 2 : 1);
  }

  /** Where runs of so many backticks stand, each found once. */
  ticksOf(length) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const run of this.text.matchAll(/\x60+/g)) {
        const known = this.ticks.get(run[0].length);
        if (known) known.places.push(run.index);
        else this.ticks.set(run[0].length, { places: [run.index], next: 0 });
      }
    }
    return this.ticks.get(length);
  }

  code(mark, at) {
    const end = at + mark.length;
    const runs = this.ticksOf(mark.length);
    while (runs && runs.next < runs.places.length && runs.places[runs.next] < end) runs.next += 1;
    const close = runs?.places[runs.next];
    if (close === undefined) {
      this.add(mark);
      return end;
    }
    const inside = this.text.slice(end, close);
    const padded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
    this.add(make(this.cx, "code", {}, padded ? inside.slice(1, -1) : inside));
    return close + mark.length;
  }

  /** Whether a run may open and close, by what stands beside it. */
  sides(mark, at) {
    const before = this.text[at - 1] ?? " ";
    const after = this.text[at + mark.length] ?? " ";
    const blank = (letter) => /\s/.test(letter);
    const point = (letter) => PUNCTUATION.test(letter);
    if (before === "/" || after === "/") return { opens: false, closes: false };
    const left = !blank(after) && (!point(after) || blank(before) || point(before));
    const right = !blank(before) && (!point(before) || blank(after) || point(after));
    if (mark[0] !== "_") return { opens: left, closes: right };
    return { opens: left && (!right || point(before)), closes: right && (!left || point(after)) };
  }

  emphasis(mark, at) {
    const letter = mark[0];
    if (mark.length > 3) return this.add(mark);
    const { opens, closes } = this.sides(mark, at);
    const isOpen = (kind) => this.open.some((one) => one.mark === kind);
    let left = mark.length;
    while (left > 0) {
      const fitting = [letter.repeat(2), letter].filter((kind) => kind.length <= left && kind !== "~");
      // The innermost of those that can end here.
      const ends = closes && this.open.findLast((one) => fitting.includes(one.mark))?.mark;
      const begin = !ends && opens && fitting.find((kind) => !isOpen(kind));
      const kind = ends || begin;
      if (!kind) {
        this.add(letter.repeat(left));
        return undefined;
      }
      if (ends) this.close(kind);
      else this.open.push({ mark: kind, parts: [] });
      left -= kind.length;
    }
    return undefined;
  }

  close(kind) {
    while (this.top.mark !== kind) this.fold();
    const { parts } = this.open.pop();
    const tag = kind === "~~" ? "s" : kind.length === 2 ? "strong" : "em";
    this.add(make(this.cx, tag, {}, parts));
  }

  /** The words of a link begin; one that has begun before was none. */
  bracket(mark, end) {
    const is = (one) => one.mark === "[" || one.mark === "![";
    while (this.open.some(is)) this.fold();
    this.open.push({ mark, parts: [] });
    return end;
  }

  unbracket(at) {
    const begun = this.open.findLast((one) => one.mark === "[" || one.mark === "![");
    const target = begun && destination(this.text, at + 1);
    if (!target) {
      while (begun && this.open.includes(begun)) this.fold();
      this.add("]");
      return at + 1;
    }
    while (this.top !== begun) this.fold();
    this.open.pop();
    for (const part of link(this.cx, begun.parts, target.to)) this.add(part);
    return target.end;
  }

  /** An address between angles; whatever else begins so is words. */
  angle(at) {
    const near = /\w/.test(this.text[at + 1] ?? "") ? this.text.slice(at, at + MAX_ADDRESS) : "";
    const found = /^<(https?:\/\/[^\s<>]{1,2000}|[\w.+-]{1,64}@[\w.-]{1,200})>/.exec(near);
    if (!found) {
      this.add("<");
      return at + 1;
    }
    const to = found[1].includes("://") ? found[1] : `mailto:${found[1]}`;
    for (const part of link(this.cx, [found[1]], to)) this.add(part);
    return at + found[0].length;
  }

  /** An address in the middle of words: without the marks that end a sentence. */
  address(words, at) {
    let end = words.length;
    let open = 0;
    for (const letter of words) open += letter === "(" ? 1 : letter === ")" ? -1 : 0;
    while (end > 0) {
      const last = words[end - 1];
      if (last === ")" && open < 0) open += 1;
      else if (!".,;:!?*_~|".includes(last)) break;
      end -= 1;
    }
    const to = words.slice(0, end);
    const within = this.open.some((one) => one.mark === "[" || one.mark === "![");
    if (within) this.add(to);
    else for (const part of link(this.cx, [to], to)) this.add(part);
    return at + end;
  }
}

/** `(address "title")` at a place: the address, and where it ends. */
function destination(text, at) {
  if (text[at] !== "(") return null;
  const limit = Math.min(text.length, at + MAX_ADDRESS);
  let from = at + 1;
  while (text[from] === " " && from < limit) from += 1;
  let end = from;
  let open = 0;
  for (; end < limit; end += 1) {
    const letter = text[end];
    if (letter === "(" && (open += 1) > MAX_PARENTHESES) return null;
    if (letter === ")" && (open -= 1) < 0) break;
    else if (letter <= " ") break;
  }
  const to = text.slice(from, end).replace(/^<|>$/g, "");
  while (text[end] === " " && end < limit) end += 1;
  const quote = text[end];
  if (quote === '"' || quote === "'") {
    end = text.indexOf(quote, end + 1) + 1;
    if (end <= 0 || end > limit) return null;
  }
  return text[end] === ")" && to ? { to, end: end + 1 } : null;
}

/**
 * Words that lead somewhere, and where: an address that is not its own words stands beside them as the browser
 * reads it. Paths of the project lead to its files; whatever else is no link.
 */
function link(cx, parts, to) {
  const words = parts.length ? parts : [to];
  if (cx.flat) return words;
  const target = targetOf(to);
  if (!target) return [...words, " (", make(cx, "code", {}, cut(visibleLine(to))), ")"];
  const own = parts.length === 1 && (parts[0] === target.shown || `${parts[0]}/` === target.shown);
  const props = target.far ? { target: "_blank", rel: "noopener noreferrer nofollow" } : {};
  const el = make(cx, "a", { href: target.href, title: target.shown, ...props }, words);
  return own ? [el] : [el, make(cx, "span", { class: "goes" }, ` (${cut(target.shown)})`)];
}

/** The end of an address tells less than its beginning, which has the host. */
const cut = (text) => (text.length > SHOWN_ADDRESS ? `${text.slice(0, SHOWN_ADDRESS)}…` : text);

/** Where an address leads: elsewhere, or to a file of the project; nothing for all other kinds. */
function targetOf(to) {
  if (to.length > MAX_ADDRESS) return null;
  if (/^[a-z][a-z\d+.-]*:/i.test(to) && !/^[\w./-]+\.\w+:\d+/.test(to)) {
    let url;
    try {
      url = new URL(to);
    } catch {
      return null;
    }
    // A name before the host passes for the host.
    const web = /^https?:$/.test(url.protocol) && !url.username && !url.password;
    const fits = web || url.protocol === "mailto:";
    return fits ? { href: url.href, shown: visibleLine(url.href), far: true } : null;
  }
  const path = to.replace(/^\.\//, "").replace(/(?:#L?|:)\d[\d:,L-]*$/, "");
  if (!/^[\p{L}\p{N}_.@+-][\p{L}\p{N}_.@+/ -]*$/u.test(path) || path.split("/").includes("..")) return null;
  return { href: `#/files/${encodeURIComponent(path)}`, shown: path, far: false };
}

/** Lines of the gist of a text are looked for in so many lines of it. */
const LOOKED_AT = 40;

/**
 * The first lines of a text for a row of a list: without marks of blocks, with those within lines. The marks
 * are made by [`inline`].
 */
export function gist(text, most, chars) {
  const out = [];
  let fence = false;
  for (const raw of String(text ?? "")
    .slice(0, chars)
    .split("\n", LOOKED_AT)) {
    if (out.length >= most) break;
    if (FENCE.test(raw)) {
      fence = !fence;
      continue;
    }
    if (fence) {
      out.push(raw);
      continue;
    }
    if (!raw.trim() || (raw.includes("-") && /^[|:\- \t]+$/.test(raw))) continue;
    out.push(
      raw
        .trimEnd()
        .replace(HEADING, (_, __, words) => `**${words.replaceAll("*", "")}**`)
        .replace(/^( *)[-*+] +/, "$1• ")
        .replace(/^ *\|(.*)\|$/, (_, cells) => cellsOf(cells).join(" · ")),
    );
  }
  return out;
}
