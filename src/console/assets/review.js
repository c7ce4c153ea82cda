// What a person says of an agent's changes and does with them: comments at their lines, merge, undo, discard.

import { ago, button, confirm, dialog, empty, fill, formOf, h, keep, kept, plural, say, toast } from "./dom.js";
import { at, del, get, patch, post } from "./api.js";
import { find } from "./store.js";
import { diffView, parse } from "./diff.js";
import { fileList } from "./viewed.js";

/** Where the choice between unified and side by side is kept. */
const TWO = "svc-diff";
/** Lines around a change that are asked for when a fold is opened: all of the file. */
const WHOLE = 100000;

const lines = ({ path, line, lastLine }) => `${path}:${line}${lastLine > line ? `-${lastLine}` : ""}`;

export function diff(body, key) {
  const base = at`/api/agents/${key}/`;
  const name = () => find(key)?.name ?? key;
  const bar = h("div.follow");
  const elsewhere = h("ul.rows");
  const place = h("div.review", { tabIndex: -1 });
  const whole = new Map();
  let answer;
  let comments = [];
  let two = kept(TWO) === "two";
  /** The line or file that was looked at last. */
  let here = place;
  /** The lines that are chosen: `path`, `old` side or not, `from` and `to` as they were chosen. */
  let chosen;

  const load = async () => {
    try {
      answer = await get(`${base}diff`);
    } catch (error) {
      return fill(body, empty("No diff", error.message));
    }
    whole.clear();
    fill(
      bar,
      plural(answer.files.length, "file"),
      " changed ",
      { snapshots: "in its turns", base: "in its worktree" }[answer.source] ?? "in its folder against HEAD",
      answer.truncated && "; it is long: the last files are read when opened",
      h("div.actions", sides, again, undo, redo, answer.branch && merges, discards, asks, sends),
    );
    if (!place.isConnected) fill(body, bar, list.el, elsewhere, place);
    // By the name in the address the agent may not be known yet: the page is there before the list of agents is.
    list.draw(find(answer.agentId)?.lineageId ?? answer.agentId, answer.diff, answer.files);
    draw();
    return reread();
  };
  const draw = () => {
    const top = scrollY;
    const writing = form.isConnected;
    const held = document.activeElement === here;
    const was = here.matches(".l") && placeOf(here);
    sides.ariaPressed = two;
    fill(place, diffView(answer.diff, answer.files, { two, context, read, cut: answer.truncated, drawn: tell }));
    for (const el of place.querySelectorAll("details.file")) fold(el, list.isViewed(el.dataset.path));
    tell();
    here = (was && cellOf(was)) || place;
    if (writing) write();
    else if (held) here.focus({ preventScroll: true });
    scrollTo(0, top);
  };
  const fileOf = (path) => [...place.querySelectorAll("details.file")].find(({ dataset }) => dataset.path === path);
  /** What was looked at is folded and stands back. */
  const fold = (el, is) => {
    el.classList.toggle("viewed", is);
    if (is) el.open = false;
  };
  const list = fileList({
    go(path) {
      const summary = fileOf(path)?.firstChild;
      summary?.focus({ preventScroll: true });
      summary?.scrollIntoView({ block: "start" });
    },
    changed(path, is) {
      const el = fileOf(path);
      if (el) fold(el, is);
    },
  });
  /** One file of the diff. */
  const read = async (path, more = "") => {
    const { diff, truncated } = await get(`${base}diff${at`?path=${path}`}${more}`);
    const [file] = parse(diff);
    if (!file) throw new Error("Nothing of it can be shown");
    return { ...file, cut: truncated };
  };
  /** The lines of a gap, as they stand now; behind the last change as many as there are. */
  const context = async ({ path }, { o, n, left }) => {
    if (!whole.has(path)) {
      const file = await read(path, `&context=${WHOLE}`);
      const standing = file.lines.filter(({ kind, n }) => n && kind !== "at");
      whole.set(path, { texts: new Map(standing.map((line) => [line.n, line.text])), end: standing.at(-1)?.n ?? 0, cut: file.cut });
    }
    const { texts, end, cut } = whole.get(path);
    const length = Math.max(0, Math.min(left, end + 1 - n));
    const found = Array.from({ length }, (_, by) => ({ kind: "", text: texts.get(n + by) ?? "", o: o + by, n: n + by }));
    if (cut && length < left) found.push({ kind: "at", text: "What follows is more than can be shown." });
    return found;
  };

  const isOld = (el) => el.matches(".minus");
  const numberOf = (el) => Number(el.dataset[isOld(el) ? "o" : "n"]);
  /** What stands in a file on one side. */
  const cells = (path, old) => {
    const file = [...place.querySelectorAll("details.file")].find(({ dataset }) => dataset[old ? "from" : "path"] === path);
    return [...(file?.querySelectorAll(old ? ".minus" : ".l[data-n]") ?? [])];
  };
  const placeOf = (el) => {
    const old = isOld(el);
    return { old, path: el.closest("details.file").dataset[old ? "from" : "path"], line: numberOf(el) };
  };
  const cellOf = ({ path, old, line }) => cells(path, old).find((one) => numberOf(one) === line);
  const rowOf = (spot) => {
    const el = cellOf(spot);
    return el?.closest(".pair") ?? el;
  };
  const choose = (el, further) => {
    const { old, path, line: to } = placeOf(el);
    const from = further && chosen?.path === path && chosen.old === old ? chosen.from : to;
    chosen = { path, old, from, to, line: Math.min(from, to), lastLine: Math.max(from, to) };
    for (const one of place.querySelectorAll(".sel")) one.classList.remove("sel");
    for (const one of cells(path, old)) one.classList.toggle("sel", numberOf(one) >= chosen.line && numberOf(one) <= chosen.lastLine);
  };

  const words = h("textarea", { rows: 3, required: true, "aria-labelledby": "said-of" });
  const of = h("p", { id: "said-of" });
  const form = formOf(
    "Comment",
    async () => {
      const { path, old, line, lastLine } = chosen;
      await post(`${base}comments`, { path, line, lastLine, text: words.value, side: old ? "old" : undefined });
      words.value = "";
      close();
      await reread();
    },
    [of, words],
    { class: "said" },
    h("button", { onclick: () => close() }, "Cancel"),
  );
  const write = () => {
    if (!chosen) return;
    say(of, `Comment on ${chosen.old ? "what was " : ""}${lines(chosen)}`);
    const row = rowOf({ ...chosen, line: chosen.lastLine });
    if (row) row.after(form);
    else place.prepend(form);
    words.focus();
  };
  const close = () => {
    form.remove();
    chosen = undefined;
    for (const one of place.querySelectorAll(".sel")) one.classList.remove("sel");
    here.focus();
  };
  form.onkeydown = (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    else return;
    event.stopPropagation();
  };

  const reread = async () => {
    ({ comments } = await get(`${base}comments`));
    tell();
  };
  /** Each comment at its last line, or above all where its lines are not shown. */
  const tell = () => {
    for (const el of place.querySelectorAll(".said:not(form)")) el.remove();
    const away = [];
    for (const one of comments.toReversed()) {
      const moved = (one.stands ?? one.line) - one.line;
      const row = (one.state !== "done" || !one.changed) && rowOf({ path: one.path, old: one.side === "old", line: one.lastLine + moved });
      if (row) row.after(note(one, "div", "said"));
      else away.unshift(note(one, "li", ""));
    }
    fill(elsewhere, away);
    const waiting = open();
    sends.hidden = !waiting;
    say(sends, `Send ${plural(waiting, "comment")}`);
  };
  const open = () => comments.filter((one) => one.state === "open").length;
  const note = (one, tag, name) => {
    const path = `${base}comments/${one.id}`;
    const tick = one.state === "done" ? one.doneAt && ["Open again", false] : ["Done", true];
    const change = (label, call) =>
      button(label, async () => {
        await call();
        await reread();
      });
    return h(
      tag,
      { class: name },
      h("span.tag", one.state),
      h("span.mono", one.side === "old" && "− ", lines(one)),
      h("span.grow", one.text),
      ago(one.at, " ago"),
      tick && change(tick[0], () => patch(path, { done: tick[1] })),
      change("Remove", () => del(path)),
    );
  };

  const tellAgent = async (message) => {
    if (!open()) {
      await post(`${base}instruct`, { message });
      toast(`${name()} is asked for changes`);
    } else {
      const { sent, left } = await post(`${base}comments/send`, { message });
      toast(`${name()} was told ${plural(sent.length, "comment")}${left ? `, ${left} did not fit` : ""}`);
    }
    await reread();
  };
  const restore = async (verb, wish) => {
    const { turn, files } = await post(base + verb, wish);
    toast(`Turn ${turn} is ${verb === "undo" ? "undone" : "redone"}: ${plural(files.length, "file")}`);
    await load();
  };
  const keeps = "What is there now is kept, so that it can be redone. Its session still remembers.";
  const again = button("Read again", load);
  const sides = button("Side by side", () => {
    two = !two;
    keep(TWO, two ? "two" : "");
    draw();
  });
  const undo = button("Undo its last turn", () =>
    confirm("Undo its last turn?", `What it has changed comes to be as before. ${keeps}`, "Undo", () => restore("undo")),
  );
  const redo = button("Redo", () => restore("redo"));
  const discards = button("Discard…", async () => {
    const { turns } = await get(`${base}snapshots`);
    const turn = turns.find((one) => !one.undone && !one.missed)?.turn;
    const text = `All files that it has changed since turn ${turn ?? 1} come to be as before. ${keeps}`;
    const back = () => restore("undo", { turn });
    if (answer.branch) discard(key, name(), answer.branch, text, back);
    else confirm(`Discard what ${name()} has changed?`, text, "Take back", back);
  });
  const sends = button("", () => tellAgent());
  const asks = button("Ask for changes", () => {
    const text = h("textarea", { rows: 4, ariaLabel: "What has to change" });
    const told = open() ? `${plural(open(), "comment")} of yours go with it.` : "It goes on with what you write.";
    const ask = async () => {
      const message = text.value.trim();
      if (!message && !open()) return text.focus();
      await tellAgent(message || undefined);
      return el.close();
    };
    const el = dialog(`Ask ${name()} for changes`, formOf("Ask", ask, [h("p", told), text]));
    text.focus();
  });
  const merges = button("Merge…", () => merge(key, name(), load));

  /** Goes to the next of some elements, or to the one before. */
  const go = (what, by) => {
    const all = [...place.querySelectorAll(what)];
    const side = by > 0 ? Node.DOCUMENT_POSITION_FOLLOWING : Node.DOCUMENT_POSITION_PRECEDING;
    const ahead = here === place ? all : all.filter((el) => here.compareDocumentPosition(el) & side);
    const el = ahead.at(by > 0 ? 0 : -1);
    el?.focus({ preventScroll: true });
    el?.scrollIntoView({ block: by && what.includes("summary") ? "start" : "nearest" });
  };
  const comment = () => {
    if (!here.matches(".l")) return;
    if (!place.querySelector(".sel")) choose(here);
    write();
  };
  place.addEventListener("focusin", ({ target }) => {
    if (target.matches(".l,summary,.at")) here = target;
  });
  place.onclick = (event) => {
    const el = event.target.closest(".l");
    if (!el?.dataset.n && !el?.dataset.o) return;
    if (!getSelection().isCollapsed) return;
    here = el;
    choose(el, event.shiftKey || (form.isConnected && chosen?.from === chosen?.to));
    write();
  };
  place.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!event.target.matches(".l")) return;
    const beside = event.target.closest(".pair")?.querySelector(event.key === "ArrowLeft" ? ".l" : ".l:last-child");
    if (event.shiftKey && by && !place.querySelector(".sel")) choose(event.target);
    if (by) go(!two ? ".l" : event.target === beside ? ".pair > .l:last-child" : ".pair > .l:first-child", by);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") beside?.focus();
    else return;
    if (event.shiftKey && by) choose(here, true);
    event.preventDefault();
  };
  load();
  const keys = {
    R: load,
    j: () => go("[open] .block", 1),
    k: () => go("[open] .block", -1),
    n: () => go("summary", 1),
    p: () => go("summary", -1),
    s: () => sides.click(),
    c: comment,
    Enter: comment,
    e: () => {
      const file = here.closest("details");
      if (file && !file.open) file.open = true;
      else {
        const folds = [...(file ?? place).querySelectorAll("button.at")];
        (folds.find((el) => here.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_FOLLOWING) ?? folds[0])?.click();
      }
    },
    v: () => {
      const file = here.closest("details.file");
      if (!file) return go("summary", 1);
      if (list.mark(file.dataset.path)) {
        here = file.firstChild;
        go("details.file > summary", 1);
        if (here === file.firstChild) here.focus();
      }
      return undefined;
    },
    m: () => answer?.branch && merges.click(),
    A: () => asks.click(),
    X: () => discards.click(),
    Escape: close,
  };
  return { keys };
}

/** What a merge would do, or what is in its way, before it is done. */
function merge(key, name, done) {
  const path = at`/api/agents/${key}/merge`;
  const body = h("div", { role: "status" }, "Tried without changing anything…");
  const el = dialog(`Merge the work of ${name}`, body);
  const act = (label, work, props = { class: "primary" }) => button(label, () => work().catch(refused), props);
  const end = async (text) => {
    el.close();
    toast(text);
    await done();
  };
  const refused = (error) => {
    const { code, body: told } = error;
    const ask = async () => {
      const message = `Merge ${told.into} into your branch and resolve the conflicts in ${told.files.join(", ")}.`;
      await post(at`/api/agents/${key}/instruct`, { message });
      await end(`${name} is asked to resolve them`);
    };
    fill(
      body,
      h("p.notice.bad", error.message),
      h(
        "div.actions",
        code === "merge_conflict" && act(`Let ${name} resolve them`, ask),
        code === "agent_running" && act("What it has committed so far", () => look(true)),
        act("Try again", () => look()),
      ),
    );
  };
  const look = async (force = false) => {
    const { branch, into, files } = await post(path, { dryRun: true, force });
    const remove = h("input", { type: "checkbox" });
    const go = act("Merge", async () => {
      const { commit, note } = await post(path, { force, remove: remove.checked });
      await end(commit ? `Merged into ${into} as ${commit.slice(0, 9)}` : note);
    });
    fill(
      body,
      h("p", files.length ? `${branch} goes into ${into}: nothing conflicts.` : `${into} holds all of ${branch} already.`),
      h(
        "ul.rows",
        files.map((one) =>
          h("li", h("span.mono", one.path), h("span", one.from && `was ${one.from} `, `+${one.added} −${one.removed}`)),
        ),
      ),
      h("label", remove, " Remove its worktree afterwards"),
      h("div.actions", go),
    );
    go.focus();
  };
  look().catch(refused);
}

/** Two ways to be rid of what an agent in a worktree has done: its files as before, or its worktree gone. */
function discard(key, name, branch, text, back) {
  const refused = h("p.fault", { role: "alert" });
  const does = (label, work, props) =>
    button(
      label,
      async () => {
        try {
          await work();
        } catch (error) {
          return say(refused, error.message);
        }
        return el.close();
      },
      props,
    );
  const remove = async () => {
    const { note } = await post(at`/api/agents/${key}/discard`);
    toast(note ?? `The worktree of ${name} is removed; its work stays on ${branch}`);
    location.hash = at`#/agent/${key}`;
  };
  const first = does("Take back its turns", back, { class: "danger" });
  const lost = `Its folder goes, with what git ignores in it. Nothing is merged. Its work stays on the branch ${branch}, what it had not committed as a commit of its own, until you delete that: `;
  const el = dialog(
    `Discard what ${name} has changed?`,
    h(
      "div",
      h("p", text),
      h("div.actions", first),
      h("p", lost, h("code", `git branch -D ${branch}`)),
      refused,
      h("div.actions", h("button", { onclick: () => el.close() }, "Cancel"), does("Remove its worktree", remove, { class: "danger" })),
    ),
  );
  first.focus();
}
