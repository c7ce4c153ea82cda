// What a person says of an agent's changes, and takes back of them.

import { ago, button, confirm, field, fill, h, plural, toast } from "./dom.js";
import { at, del, get, patch, post } from "./api.js";

/** `src/a.js:10-12` as what the daemon is told of lines; nothing where it is no place. */
export function place(text) {
  const [, path, line, last] = /^(.+):(\d+)(?:-(\d+))?$/.exec(text.trim()) ?? [];
  return path && { path, line: Number(line), lastLine: Number(last ?? line) };
}

/**
 * The comments on an agent's work, and a form for another. `mark` of what it answers puts a line into the form,
 * a second one of the same file behind it makes a range.
 */
export function comments(key) {
  const where = h("input", { required: true, placeholder: "src/login.js:10-14", autocomplete: "off" });
  const words = h("textarea", { rows: 2, required: true });
  const list = h("ul", { class: "rows" });
  const open = h("b");
  const load = async () => {
    const { comments: all } = await get(at`/api/agents/${key}/comments`);
    const waiting = all.filter((one) => one.state === "open").length;
    fill(open, waiting ? `${plural(waiting, "comment")} to send` : "Nothing to send");
    send.hidden = !waiting;
    fill(list, all.map(row));
  };
  const change = (label, call) =>
    button(label, async () => {
      await call();
      await load();
    });
  const row = (one) => {
    const path = at`/api/agents/${key}/comments/${one.id}`;
    const lines = one.lastLine > one.line ? `${one.line}-${one.lastLine}` : one.line;
    const tick = one.state === "done" ? one.doneAt && ["Open again", false] : ["Done", true];
    return h(
      "li",
      {},
      h("span", { class: "tag" }, one.state),
      h("span", { class: "mono" }, `${one.path}:${lines}`),
      h("span", { class: "grow" }, one.text),
      ago(one.at, " ago"),
      tick && change(tick[0], () => patch(path, { done: tick[1] })),
      change("Remove", () => del(path)),
    );
  };
  const send = change("Send them", async () => {
    const { agentName, sent, left } = await post(at`/api/agents/${key}/comments/send`);
    toast(`${agentName} was told ${plural(sent.length, "comment")}${left ? `, ${left} did not fit` : ""}`);
  });
  const form = h(
    "form",
    {},
    field("path", "Lines", where, "choose a line of the diff, and another one for a range"),
    field("text", "What you say of them", words),
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Comment"), open, send),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const lines = place(where.value);
    if (!lines) return toast("Lines are named as src/login.js:10 or src/login.js:10-14", "bad");
    try {
      await post(at`/api/agents/${key}/comments`, { ...lines, text: words.value });
      words.value = "";
      where.value = "";
      await load();
    } catch (error) {
      toast(error.message, "bad");
    }
    return undefined;
  });
  const mark = (path, line) => {
    const known = place(where.value);
    const other = known?.path === path && known.line === known.lastLine ? known.line : line;
    const [first, last] = [Math.min(other, line), Math.max(other, line)];
    where.value = `${path}:${first}${last > first ? `-${last}` : ""}`;
    words.focus();
  };
  return { el: h("section", { class: "panel" }, h("h2", {}, "Comments"), form, list), load, mark };
}

/** Takes back what an agent has changed last, and that again. */
export function undo(key, done) {
  const restore = async (verb) => {
    const { turn, files } = await post(at`/api/agents/${key}/${verb}`);
    toast(`Turn ${turn} is ${verb === "undo" ? "undone" : "redone"}: ${plural(files.length, "file")}`);
    await done();
  };
  return [
    button("Undo its last turn", () =>
      confirm(
        "Undo its last turn?",
        "What it has changed comes to be as before. What is there now is kept, so that it can be redone. Its session still remembers.",
        "Undo",
        () => restore("undo"),
      ),
    ),
    button("Redo", () => restore("redo")),
  ];
}
