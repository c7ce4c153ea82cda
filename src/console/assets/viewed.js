// The files of a review: a list that leads to each, and marks of what a person has looked at.

import { fill, h, keep, kept, plural } from "./dom.js";

/** Where this browser keeps the marks, and how many of all agents. */
const VIEWED = "svc-viewed";
const MARKS_MAX = 2000;
/** A list of so few files begins closed. */
const FEW = 3;

/** A number that is another one when the text is: FNV-1a over its letters. */
function digest(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return (hash >>> 0).toString(36);
}

/** The marks, the latest last: of what change of which file of whom. */
function marks() {
  try {
    const list = JSON.parse(kept(VIEWED) || "[]");
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

/** The list for the changes of an agent; `go` leads to a file, `changed` hears of a mark. */
export function fileList({ go, changed }) {
  const summary = h("summary");
  const list = h("ul", { ariaLabel: "Files" });
  const el = h("details.changed-files", summary, list);
  let files = [];
  let known = new Set();
  /** A change of a file that is looked at is another one as soon as it changes: it has to be looked at again. */
  const keyOf = (agent, { path, patch, added, removed }) => `${agent} ${digest(`${path}\n${patch ?? `${added} ${removed}`}`)}`;
  const isViewed = (path) => files.some((file) => file.path === path && known.has(file.key));
  const head = () => {
    const seen = files.filter(({ key }) => known.has(key)).length;
    fill(summary, `${plural(files.length, "file")}, ${seen} viewed`);
  };
  const mark = (path, is = !isViewed(path)) => {
    const file = files.find((one) => one.path === path);
    if (!file) return false;
    const others = marks().filter((one) => one !== file.key);
    keep(VIEWED, JSON.stringify([...others, ...(is ? [file.key] : [])].slice(-MARKS_MAX)));
    if (is) known.add(file.key);
    else known.delete(file.key);
    const box = [...list.querySelectorAll("input")].find(({ dataset }) => dataset.of === path);
    if (box) box.checked = is;
    head();
    changed(path, is);
    return is;
  };
  const row = (file, folder) => {
    const cut = file.path.lastIndexOf("/") + 1;
    return [
      folder !== file.path.slice(0, cut) && h("li.muted", file.path.slice(0, cut) || "./"),
      h(
        "li",
        h("input", {
          type: "checkbox",
          checked: known.has(file.key),
          "data-of": file.path,
          ariaLabel: `Viewed ${file.path}`,
          onchange: ({ target }) => mark(file.path, target.checked),
        }),
        h("button.link", { onclick: () => go(file.path), ariaLabel: `To ${file.path}` }, file.path.slice(cut)),
        h("span.count-plus", `+${file.added ?? 0}`),
        h("span.count-minus", `−${file.removed ?? 0}`),
      ),
    ];
  };
  return {
    el,
    mark,
    isViewed,
    /** Takes over what `agent` has changed: the lineage, as the next life of it goes on with the same files. */
    draw(agent, diff, all) {
      const patches = new Map();
      for (const part of diff.split(/^(?=diff --git )/m)) {
        const path = all.find((one) => part.startsWith("diff --git ") && part.split("\n", 1)[0].endsWith(` b/${one.path}`))?.path;
        if (path) patches.set(path, part.replace(/^index .*$/m, ""));
      }
      files = all.map((file) => ({ ...file, patch: patches.get(file.path) }));
      for (const file of files) file.key = keyOf(agent, file);
      known = new Set(marks());
      let folder = null;
      fill(
        list,
        files.map((file) => {
          const rows = row(file, folder);
          folder = file.path.slice(0, file.path.lastIndexOf("/") + 1);
          return rows;
        }),
      );
      if (!el.dataset.drawn) el.open = files.length > FEW;
      el.dataset.drawn = "1";
      el.hidden = !files.length;
      head();
    },
  };
}
