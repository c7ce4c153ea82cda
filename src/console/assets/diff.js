// A diff, file by file: unified or side by side, with the words marked in which changed lines differ.

import { button, empty, h, plural } from "./dom.js";

/** A file with more lines begins folded; one that is opened, and each fold, shows so many at once. */
const LINES_SHOWN = 500;
/** Lines of the files that begin open. */
const LINES_OPEN = 8000;
/** Height of a line that is not wrapped: what a file takes before it is laid out. */
const LINE_PX = 20;
/** Words are compared in so many pairs of lines, each line with at most so many characters and words. */
const PAIRS = 3000;
const PAIR_CHARS = 400;
const PAIR_WORDS = 160;

const KINDS = { "+": "plus", "-": "minus", "@": "at" };

/** The files of a diff with their lines: `kind`, `text`, and their number `o` in the old text and `n` in the new. */
export function parse(text) {
  return text
    .split(/^(?=diff --git )/m)
    .filter((part) => part.startsWith("diff --git "))
    .map((part) => {
      const all = part.replace(/\n$/, "").split("\n");
      const at = all.findIndex((line) => line.startsWith("@@"));
      const head = all.slice(0, at < 0 ? all.length : at).join("\n");
      const told = (...ways) => ways.map((way) => way.exec(head)?.[1]).find(Boolean);
      const path = told(/^\+\+\+ b\/(.*)$/m, /^rename to (.*)$/m, /^--- a\/(.*)$/m, / b\/(.*)$/m) ?? all[0];
      const from = told(/^rename from (.*)$/m);
      const alike = told(/^similarity index (\d+)/m);
      const is = from ? `moved from ${from}${alike < 100 ? `, ${alike} % alike` : ""}` : told(/^(new|deleted) file/m);
      return { path, from: from ?? path, is: told(/^(Binary)/m) ? "binary" : is, lines: at < 0 ? [] : numbered(all.slice(at)) };
    });
}

function numbered(all) {
  const lines = [];
  let [o, n] = [1, 1];
  for (const text of all) {
    const kind = KINDS[text[0]] ?? "";
    if (kind === "at") {
      const [, old, now, what = ""] = /^@@ -(\d+)\S* \+(\d+)\S* @@(.*)/.exec(text) ?? [text, o, n];
      // What is left out: from `n` to before the next line.
      lines.push({ kind, text: what, o, n, left: Math.max(0, Number(now) - n) });
      [o, n] = [Number(old), Number(now)];
    } else if (text[0] === "\\") (lines.at(-1) ?? {}).note = text.slice(1);
    else {
      const line = { kind, text: text.slice(1) };
      if (kind !== "plus") line.o = o++;
      if (kind !== "minus") line.n = n++;
      lines.push(line);
    }
  }
  return lines;
}

/** What differs between two lines, for each a list of `[text, differs]`; nothing where too little is alike. */
export function differ(old, now) {
  if (Math.max(old.length, now.length) > PAIR_CHARS) return undefined;
  const [a, b] = [old, now].map((line) => line.match(/[\p{L}\p{N}_]+|\s+|./gu) ?? []);
  if (Math.max(a.length, b.length) > PAIR_WORDS) return undefined;
  // The most words in common from each place on.
  const wide = b.length + 1;
  const most = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1, at = i * wide + j; j >= 0; j -= 1, at -= 1)
      most[at] = a[i] === b[j] ? most[at + wide + 1] + 1 : Math.max(most[at + wide], most[at + 1]);
  const out = [[], []];
  const put = (to, word, differs) => {
    const last = to.at(-1);
    if (last?.[1] === differs) last[0] += word;
    else to.push([word, differs]);
  };
  let [i, j, same] = [0, 0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && a[i] === b[j]) {
      same += a[i].trim().length;
      put(out[0], a[i++], false);
      put(out[1], b[j++], false);
    } else if (j >= b.length || (i < a.length && most[(i + 1) * wide + j] >= most[i * wide + j + 1])) put(out[0], a[i++], true);
    else put(out[1], b[j++], true);
  }
  return same * 3 >= Math.max(old.trim().length, now.trim().length) ? out : undefined;
}

function cell({ kind, text, o, n, note }, marks) {
  const words = marks?.map(([part, differs]) => (differs ? h("mark", part) : part)) ?? (text || " ");
  const el = h("div", { class: `l ${kind}`, tabIndex: -1 }, h("span", words, note && h("i", note)));
  if (o) el.dataset.o = o;
  if (n) el.dataset.n = n;
  return el;
}

/** A line in the place of others, which `open` answers. */
function fold(label, file, how, open) {
  const el = button(
    label,
    async () => {
      const shown = rows(file, await open(), how);
      el.replaceWith(...shown);
      shown[0]?.focus();
      how.drawn?.();
    },
    { class: "at" },
  );
  return el;
}

function rows(file, lines, how) {
  const out = [];
  const pair = (left, right) => h("div", { class: "pair" }, left ?? h("div", { class: "l" }), right ?? h("div", { class: "l" }));
  const end = lines.length > LINES_SHOWN * 1.2 ? LINES_SHOWN : lines.length;
  let at = 0;
  const run = (kind) => {
    const from = at;
    while (at < end && lines[at].kind === kind) at += 1;
    return lines.slice(from, at);
  };
  while (at < end) {
    const line = lines[at];
    if (line.kind === "at") {
      at += 1;
      if (!how.context) out.push(h("div", { class: "at" }, line.text || "…"));
      else if (line.left) out.push(fold(`⋯ ${plural(line.left, "line")} as before ${line.text}`, file, how, () => how.context(file, line)));
    } else if (line.kind) {
      const [minus, plus] = [run("minus"), run("plus")];
      const marks = minus.map((old, n) => (plus[n] && how.pairs-- > 0 ? differ(old.text, plus[n].text) : undefined));
      const [left, right] = [minus, plus].map((side, of) => side.map((one, n) => cell(one, marks[n]?.[of])));
      (left[0] ?? right[0]).classList.add("block");
      if (how.two) for (let n = 0; n < Math.max(left.length, right.length); n += 1) out.push(pair(left[n], right[n]));
      else out.push(...left, ...right);
    } else {
      at += 1;
      out.push(how.two ? pair(cell(line), cell(line)) : cell(line));
    }
  }
  const rest = lines.slice(end);
  if (rest.length) out.push(fold(plural(rest.length, "more line"), file, how, () => rest));
  return out;
}

/**
 * The diff as foldable files; `files` adds those that are cut off. Of `how`: `two`
 * shows it side by side, `context(file, gap)` answers lines that are left out, `drawn()` hears that lines came.
 */
export function diffView(text, files = [], how = {}) {
  const changed = parse(text);
  const seen = new Set(changed.map((file) => file.path));
  const others = files.filter((file) => !seen.has(file.path));
  if (!changed.length && !others.length)
    return empty("Nothing has changed", "The folder matches its last commit.");
  let room = LINES_OPEN;
  const mine = { pairs: PAIRS, ...how };
  return h(
    "div", changed.map((file) => {
      const { length } = file.lines;
      const count = (kind, sign) =>
        h("span", { class: `count-${kind}` }, ` ${sign}${file.lines.filter((line) => line.kind === kind).length}`);
      room -= length;
      const el = h(
        "details",
        { class: "file", open: length <= LINES_SHOWN && room >= 0 },
        h(
          "summary", file.path,
          file.is && [" ", h("span", { class: "tag" }, file.is)],
          count("plus", "+"),
          count("minus", "−"),
          length > LINES_SHOWN && h("span", { class: "muted" }, ` ${plural(length, "line")}`),
        ),
      );
      Object.assign(el.dataset, { path: file.path, from: file.from });
      const show = () => {
        if (!el.open || el.children.length > 1) return;
        el.style.containIntrinsicBlockSize = `auto ${Math.min(length, LINES_SHOWN) * LINE_PX + 40}px`;
        // Where nobody comments, the keyboard scrolls it as a whole.
        el.append(h("div", { class: "diff", tabIndex: how.context ? null : 0 }, rows(file, file.lines, mine)));
        how.drawn?.();
      };
      el.addEventListener("toggle", show);
      show();
      return el;
    }),
    others.length > 0 && h("p", { class: "notice" }, `Changed, too: ${others.map((file) => file.path).join(", ")}`),
  );
}
