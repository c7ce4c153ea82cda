// A unified diff, file by file.

import { empty, h } from "./dom.js";

const LINES_SHOWN = 3000;

/** Splits a diff at its files. */
export function split(text) {
  const files = [];
  for (const part of text.split(/^(?=diff --git )/m)) {
    if (!part.startsWith("diff --git ")) continue;
    const lines = part.split("\n");
    const path =
      /^\+\+\+ b\/(.*)$/m.exec(part)?.[1] ??
      /^--- a\/(.*)$/m.exec(part)?.[1] ??
      / b\/(.*)$/.exec(lines[0])?.[1] ??
      lines[0];
    const from = lines.findIndex((line) => line.startsWith("@@"));
    files.push({ path, lines: from < 0 ? lines.slice(1) : lines.slice(from) });
  }
  return files;
}

function body(lines, mark) {
  const kind = { "+": "plus", "-": "minus", "@": "at" };
  const shown = lines.slice(0, LINES_SHOWN);
  let number = 0;
  const el = h(
    "pre",
    { class: "diff", tabIndex: 0 },
    shown.map((line, at) => {
      if (!line && at === shown.length - 1) return false;
      const span = h("span", { class: kind[line[0]] ?? "" }, line || " ");
      if (line[0] === "@") number = Number(/\+(\d+)/.exec(line)?.[1] ?? 1);
      else if (line[0] !== "-" && line[0] !== "\\") span.dataset.line = number++;
      return span;
    }),
  );
  if (mark)
    el.addEventListener("click", (event) => {
      const { line } = event.target.dataset;
      if (line && getSelection().isCollapsed) mark(Number(line));
    });
  if (lines.length > LINES_SHOWN)
    el.append(h("span", { class: "at" }, `${lines.length - LINES_SHOWN} more lines`));
  return el;
}

/**
 * The diff as foldable files; `files` adds those that git does not show, for example new ones. `mark` hears of
 * the path and the number of a line that somebody chooses.
 */
export function diffView(text, files = [], mark = undefined) {
  const changed = split(text);
  const seen = new Set(changed.map((file) => file.path));
  const others = files.filter((file) => !seen.has(file.path));
  if (!changed.length && !others.length)
    return empty("Nothing has changed", "The folder matches its last commit.");
  return h(
    "div",
    {},
    changed.map((file, at) => {
      const plus = file.lines.filter((line) => line[0] === "+").length;
      const minus = file.lines.filter((line) => line[0] === "-").length;
      const el = h(
        "details",
        { class: "file", open: at < 8 },
        h(
          "summary",
          {},
          file.path,
          " ",
          h("span", { class: "count-plus" }, `+${plus}`),
          " ",
          h("span", { class: "count-minus" }, `−${minus}`),
        ),
      );
      const show = () => {
        if (el.open && el.children.length < 2) el.append(body(file.lines, mark && ((line) => mark(file.path, line))));
      };
      el.addEventListener("toggle", show);
      show();
      return el;
    }),
    others.length > 0 &&
      h(
        "div",
        { class: "panel" },
        h("h2", {}, "Not yet in git"),
        h(
          "ul",
          { class: "rows" },
          others.map((file) =>
            h(
              "li",
              {},
              h("a", { class: "mono", href: `#/files/${encodeURIComponent(file.path)}` }, file.path),
              h("span", { class: "tag" }, file.status === "??" ? "new" : file.status),
            ),
          ),
        ),
      ),
  );
}
