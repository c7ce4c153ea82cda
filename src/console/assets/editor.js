// What makes a text area an editor: numbers beside its lines, find, indentation, and the way to one's own editor.

import { h, kept, say, select } from "./dom.js";
import { get } from "./api.js";

/** Where the browser keeps which editor is a person's own. */
export const EDITOR = "svc-editor";
/** Editors that open a file by an address: their names and how the address begins. */
export const EDITORS = {
  vscode: ["VS Code", "vscode://file"],
  cursor: ["Cursor", "cursor://file"],
  zed: ["Zed", "zed://file"],
};

/** A link that opens a file in the person's own editor; nothing where none is chosen, or the files are elsewhere. */
export function openLink(path, line) {
  const [name, begin] = EDITORS[kept(EDITOR)] ?? [];
  if (!name || !/^(localhost|127\.|\[::1\])/.test(location.hostname)) return false;
  const link = h("a.button", { hidden: true }, `Open in ${name}`);
  get("/api/status").then(
    ({ projectDir }) => {
      link.href = begin + encodeURI(`${projectDir}/${path}`).replace(/[?#]/g, encodeURIComponent) + (line ? `:${line()}` : "");
      link.onclick = line && (() => (link.href = link.href.replace(/:\d+$/, `:${line()}`)));
      link.hidden = false;
    },
    () => {},
  );
  return link;
}

/** The choice of an editor, for the page of settings. */
export function editorChoice(keep) {
  const choice = select([["", "None"], ...Object.entries(EDITORS).map(([id, [name]]) => [id, name])], kept(EDITOR));
  choice.onchange = () => keep(EDITOR, choice.value);
  return choice;
}

/** How the lines of a text are indented. */
const stepOf = (text) => (/^\t/m.test(text) ? "\t" : " ".repeat(Math.min(8, /^( {2,})\S/m.exec(text)?.[1].length ?? 2)));

/** Writes over what is selected, so that the browser can undo it. */
function write(text, words) {
  if (!document.execCommand("insertText", false, words)) text.setRangeText(words, text.selectionStart, text.selectionEnd, "end");
}

/** Numbers, find and indentation around `text`: `el` holds it, `find` begins to look, `line` is where one is, `range` what is chosen, `chosen` its text. */
export function editorOf(text) {
  const gutter = h("pre.gutter", { ariaHidden: "true" });
  let counted = 0;
  const count = () => {
    const lines = text.value.split("\n").length;
    if (lines === counted) return;
    counted = lines;
    gutter.textContent = Array.from({ length: lines }, (_, at) => at + 1).join("\n");
  };
  const line = () => text.value.slice(0, text.selectionStart).split("\n").length;
  /** The first and the last of the lines that are chosen, or where one is. */
  const range = () => {
    const upTo = text.selectionEnd > text.selectionStart ? text.selectionEnd - 1 : text.selectionEnd;
    return [line(), text.value.slice(0, upTo).split("\n").length];
  };
  const chosen = () => text.value.split("\n").slice(line() - 1, range()[1]).join("\n");
  const field = h("input", { type: "search", ariaLabel: "Find in the file", placeholder: "Find, or :line" });
  const told = h("span.muted", { role: "status" });
  const bar = h("div.actions.find", { hidden: true }, field, told);
  const show = (from, to) => {
    text.setSelectionRange(from, to);
    const height = Number.parseFloat(getComputedStyle(text).lineHeight);
    text.scrollTop = Math.max(0, (line() - 1) * height - text.clientHeight / 3);
  };
  /** Places where the words stand, whatever their case. */
  const places = () => {
    const [all, words] = [text.value.toLowerCase(), field.value.toLowerCase()];
    const out = [];
    for (let at = words ? all.indexOf(words) : -1; at >= 0; at = all.indexOf(words, at + words.length)) out.push(at);
    return out;
  };
  const look = (by) => {
    const wanted = /^:(\d+)$/.exec(field.value);
    if (wanted) {
      const lines = text.value.split("\n").slice(0, Number(wanted[1]) - 1);
      const at = lines.reduce((sum, one) => sum + one.length + 1, 0);
      show(Math.min(at, text.value.length), Math.min(at, text.value.length));
      return say(told, `line ${line()}`);
    }
    const all = places();
    if (!all.length) return say(told, field.value ? "not found" : "");
    const here = text.selectionStart;
    const ahead = by < 0 ? all.findLastIndex((at) => at < here) : all.findIndex((at) => (by ? at > here : at >= here));
    const place = ahead < 0 ? (by < 0 ? all.length - 1 : 0) : ahead;
    show(all[place], all[place] + field.value.length);
    return say(told, `${place + 1} of ${all.length}`);
  };
  const find = () => {
    bar.hidden = false;
    field.focus();
    field.select();
  };
  field.oninput = () => look(0);
  field.onkeydown = (event) => {
    if (event.key === "Enter") look(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      bar.hidden = true;
      text.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  /** Tab indents the lines that are chosen; Escape and Tab leave the field. */
  const indent = (back) => {
    const [from, to] = [text.selectionStart, text.selectionEnd];
    const step = stepOf(text.value);
    if (from === to && !back) return write(text, step);
    const begin = text.value.lastIndexOf("\n", from - 1) + 1;
    const old = text.value.slice(begin, to);
    const now = old
      .split("\n")
      .map((one) => (!back ? step + one : one.startsWith(step) ? one.slice(step.length) : one.replace(/^[ \t]+/, "")))
      .join("\n");
    if (now === old) return undefined;
    text.setSelectionRange(begin, to);
    write(text, now);
    const at = Math.max(begin, from - (old.length - now.length));
    return from === to ? text.setSelectionRange(at, at) : text.setSelectionRange(begin, begin + now.length);
  };
  text.addEventListener("keydown", (event) => {
    const held = event.ctrlKey || event.metaKey;
    if (held && event.key === "f") find();
    else if (event.key === "Tab" && !held && !event.altKey) indent(event.shiftKey);
    else return;
    event.preventDefault();
  });
  text.addEventListener("input", count);
  text.addEventListener("scroll", () => {
    gutter.scrollTop = text.scrollTop;
  }, { passive: true });
  count();
  text.setSelectionRange(0, 0);
  return { el: h("div", bar, h("div.lined", gutter, text)), find, line, range, chosen };
}
