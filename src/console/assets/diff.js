// A diff, file by file: unified or side by side, with the words marked in which changed lines differ.

import { coloursOf } from "./colours.js";
import { button, empty, exact, fill, h, plural } from "./dom.js";

/** A file with more lines begins folded; one that is opened, and each fold, shows so many at once. */
const LINES_SHOWN = 500;
/** Lines of the files that begin open. */
const LINES_OPEN = 8000;
/** Height of a line that is not wrapped: what a file takes before it is laid out. */
const LINE_PX = 20;
/** Letters of a line that are shown. */
const LINE_CHARS = 5000;
/** Words are compared in so many pairs of lines, each line with at most so many characters and words. */
const PAIRS = 3000;
const PAIR_CHARS = 400;
const PAIR_WORDS = 160;

/** Unchanged lines around a change. */
const AROUND = 3;

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
  // Fewer unchanged lines at the end than stand around a change: the file ends there.
  const last = lines.slice(-AROUND);
  if (last.length === AROUND && last.every(({ kind, note }) => !kind && !note)) lines.push({ kind: "at", o, n, left: Infinity });
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

function cell({ kind, text, o, n, note }, { colours }, marks) {
  const rest = text.length - LINE_CHARS;
  const whole = rest > 0 ? `${text.slice(0, LINE_CHARS)} … and ${exact(rest)} more characters` : text || " ";
  const parts = colours?.(whole) ?? [[whole]];
  // So much of the line, in its colours.
  const next = (length) => {
    const out = [];
    for (let left = length; left > 0 && parts.length; ) {
      const [part, name] = parts[0];
      const piece = part.slice(0, left);
      left -= piece.length;
      if (piece.length < part.length) parts[0] = [part.slice(piece.length), name];
      else parts.shift();
      out.push(name ? h(`span.${name}`, piece) : piece);
    }
    return out;
  };
  const words = (marks ?? [[whole]]).map(([part, differs]) => {
    const pieces = next(part.length);
    return differs ? h("mark", part) : pieces;
  });
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
      if (!shown.length) shown.push(h("div.at", { tabIndex: -1 }, "The file ends here"));
      el.replaceWith(...shown);
      shown[0].focus();
      how.drawn?.();
    },
    { class: "at" },
  );
  return el;
}

function rows(file, lines, how) {
  const out = [];
  const pair = (left, right) => h("div.pair", left ?? h("div.l"), right ?? h("div.l"));
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
      const { left = 0, text } = line;
      if (!how.context || (text && !left)) left < Infinity && out.push(h("div.at", text || "…"));
      else if (left) {
        const what = left < Infinity ? `${plural(left, "line")} as before ${text}` : "what follows";
        out.push(fold(`⋯ ${what}`, file, how, () => how.context(file, line)));
      }
    } else if (line.kind) {
      const [minus, plus] = [run("minus"), run("plus")];
      const marks = minus.map((old, n) => (plus[n] && how.pairs-- > 0 ? differ(old.text, plus[n].text) : undefined));
      const [left, right] = [minus, plus].map((side, of) => side.map((one, n) => cell(one, file, marks[n]?.[of])));
      (left[0] ?? right[0]).classList.add("block");
      if (how.two) for (let n = 0; n < Math.max(left.length, right.length); n += 1) out.push(pair(left[n], right[n]));
      else out.push(...left, ...right);
    } else {
      at += 1;
      out.push(how.two ? pair(cell(line, file), cell(line, file)) : cell(line, file));
    }
  }
  const rest = lines.slice(end);
  if (rest.length) out.push(fold(plural(rest.length, "more line"), file, how, () => rest));
  return out;
}

/**
 * The diff as foldable files; `files` adds those that are cut off. Of `how`: `two` shows it side by side,
 * `context(file, gap)` answers lines that are left out, `drawn()` hears that lines came. Where the diff is `cut`,
 * `read(path)` answers a file of it, and whether that is `cut` too.
 */
export function diffView(text, files = [], how = {}) {
  const changed = parse(text);
  // The last one of a diff that is cut is not whole.
  if (how.cut && files.some(({ path }) => path === changed.at(-1)?.path)) changed.pop();
  const seen = new Set(changed.map((file) => file.path));
  const others = files.filter((file) => !seen.has(file.path));
  if (!changed.length && !others.length)
    return empty("Nothing has changed", "The folder matches its last commit.");
  let room = LINES_OPEN;
  const mine = { pairs: PAIRS, ...how };
  const fileOf = (file) => {
    const { length } = file.lines;
    const count = (kind, sign) =>
      h("span", { class: `count-${kind}` }, ` ${sign}${file[kind] ?? file.lines.filter((line) => line.kind === kind).length}`);
    room -= length;
    const el = h(
      "details.file",
      { open: !file.later && length <= LINES_SHOWN && room >= 0 },
      h(
        "summary", file.path,
        file.is && [" ", h("span.tag", file.is)],
        count("plus", "+"),
        count("minus", "−"),
        length > LINES_SHOWN && h("span.muted", ` ${plural(length, "line")}`),
      ),
    );
    Object.assign(el.dataset, { path: file.path, from: file.from });
    const show = async () => {
      if (!el.open || el.children.length > 1) return;
      // Where nobody comments, the keyboard scrolls it as a whole.
      const body = h("div.diff", { tabIndex: how.context ? null : 0 });
      el.append(body);
      try {
        if (file.later) Object.assign(file, await how.read(file.path));
      } catch (error) {
        return fill(body, h("p.notice.bad", error.message));
      }
      file.colours = coloursOf(file.path);
      const { lines, cut } = file;
      el.style.containIntrinsicBlockSize = `auto ${Math.min(lines.length, LINES_SHOWN) * LINE_PX + 40}px`;
      body.append(...rows(file, lines, mine));
      if (cut) body.append(h("p.notice", "What follows in this file is more than can be shown."));
      return how.drawn?.();
    };
    el.ontoggle = show;
    show();
    return el;
  };
  const cutOff = ({ path, from = path, added, removed, binary }) =>
    fileOf({ path, from, plus: added, minus: removed, lines: [], is: binary && "binary", later: true });
  return h(
    "div", changed.map(fileOf),
    how.read ? others.map(cutOff) : others.length > 0 && h("p.notice", `Changed, too: ${others.map((file) => file.path).join(", ")}`),
  );
}
