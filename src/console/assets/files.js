// The project's files: a tree, and an editor that never overwrites what somebody else has changed meanwhile.

import { button, bytes, confirm, dialog, empty, field, fill, formOf, h, head, plural, say, select, soon, toast, unavailable } from "./dom.js";
import { at, del, get, post } from "./api.js";
import { isLive, on, store } from "./store.js";
import { diffView } from "./diff.js";
import { editorOf, openLink } from "./editor.js";

const DEPTH = 2;
/** Changes on the disk come in bursts; the tree is read again at most so often. */
const REREAD_MS = 1500;
const IMAGE = /\.(png|jpe?g|gif|webp|avif|bmp|ico)$/i;

/** Says something of lines of a file to an agent: at once, or with what is said later. Who has a worktree may have them elsewhere. */
function comment(path, quote, line, lastLine) {
  const rank = (agent) => isLive(agent) * 2 - Boolean(agent.worktree);
  const here = [...store.agents.values()].sort((a, b) => rank(b) - rank(a));
  if (!here.length) return toast("There is no agent to be told");
  const who = select(here.map(({ id, name, status, worktree }) => [id, `${name} · ${status}${worktree ? " · own worktree" : ""}`]));
  const text = h("textarea", { rows: 4, required: true });
  const tell = async (sends) => {
    const base = at`/api/agents/${who.value}/comments`;
    await post(base, { path, line, lastLine, quote, text: text.value });
    const sent = sends && (await post(`${base}/send`, {})).sent;
    toast(sent ? `It was told ${plural(sent.length, "comment")}` : "It is sent from the agent's Diff, with the others");
    el.close();
  };
  const keeps = button("Keep for later", () => tell(false));
  const form = formOf("Send", () => tell(true), [field("agent", "Agent", who), field("text", "What you think of them", text)], {}, [keeps]);
  form.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  };
  const el = dialog(`Comment on ${path}:${line}${lastLine > line ? `-${lastLine}` : ""}`, form);
  return text.focus();
}

export default function files(view, parts) {
  const tree = h("nav.tree", { ariaLabel: "Files", tabIndex: 0 });
  const pane = h("section.editor", { ariaLabel: "File" });
  const line = h("span");
  view.append(
    head("Files", line, button("New file", () => create("file")), button("New folder", () => create("folder"))),
    h("div.files", tree, pane),
  );
  let changed = new Map();
  let current = null;

  const entry = (one) => {
    if (one.type === "dir") {
      const inner = h("ul");
      const el = h("details", h("summary", { title: one.path }, one.name), inner);
      el.dataset.path = one.path;
      const load = async () => {
        if (!el.open || el.loaded) return;
        el.loaded = true;
        try {
          const answer = await get(at`/api/files/tree?path=${one.path}&depth=1`);
          fill(
            inner,
            ...answer.entries.map(entry),
            answer.truncated && h("li.muted", "…"),
            !answer.entries.length && h("li.muted", "empty"),
          );
          mark();
        } catch (error) {
          el.loaded = false;
          toast(error.message, "bad");
        }
      };
      el.ontoggle = load;
      // The way to the file that is shown stands open.
      if (current?.path.startsWith(`${one.path}/`)) el.open = true;
      return h("li", el);
    }
    const letter = changed.get(one.path);
    return h(
      "li",
      h(
        "a",
        { href: `#/files/${encodeURIComponent(one.path)}`, "data-path": one.path, title: one.path },
        letter && h("span.changed", { title: letter }, letter[0].toUpperCase()),
        one.name,
      ),
    );
  };
  const mark = () => {
    for (const link of tree.querySelectorAll("a[data-path]")) {
      if (link.dataset.path === current?.path) link.ariaCurrent = "page";
      else link.removeAttribute("aria-current");
    }
  };
  const load = async () => {
    const open = [...tree.querySelectorAll("details[open]")].map((el) => el.dataset.path);
    const [answer, git] = await Promise.all([get(`/api/files/tree?depth=${DEPTH - 1}`), get("/api/files/git-status").catch(() => null)]);
    changed = new Map((git?.files ?? []).map((file) => [file.path, file.status]));
    say(line, git?.repository ? `On ${git.branch}, ${changed.size} changed` : "");
    fill(tree, h("ul", answer.entries.map(entry)));
    for (const path of open) {
      const el = tree.querySelector(`details[data-path="${CSS.escape(path)}"]`);
      if (el) el.open = true;
    }
    mark();
  };

  const create = (kind) => {
    const path = h("input", { value: current?.path.includes("/") ? current.path.replace(/[^/]*$/, "") : "" });
    const form = formOf("Make", submit, [field("path", "Path in the project", path)]);
    const el = dialog(`New ${kind}`, form);
    async function submit() {
      await post(
        kind === "file" ? "/api/files/create" : "/api/files/mkdir",
        kind === "file" ? { path: path.value, content: "" } : { path: path.value },
      );
      el.close();
      await load();
      if (kind === "file") location.hash = `#/files/${encodeURIComponent(path.value)}`;
    }
    path.focus();
  };

  const show = async (path) => {
    if (current?.dirty && current.path !== path && !window.confirm(`${current.path} is not saved. Leave it?`)) return history.back();
    if (!path) {
      current = null;
      return fill(pane, empty("Choose a file", "The tree shows the project; a letter marks what has changed since the last commit."));
    }
    current = { path, dirty: false };
    mark();
    try {
      const file = await get(at`/api/files/read?path=${path}`);
      if (current.path === path) edit(file);
    } catch (error) {
      fill(pane, empty(path, error.message));
    }
    return undefined;
  };

  const edit = (file) => {
    current = { path: file.path, etag: file.etag, dirty: false };
    const note = h("span.muted", bytes(file.size));
    const remove = () =>
      confirm(`Delete ${file.path}?`, "The file is removed from the project's folder.", "Delete", async () => {
        await del(at`/api/files/delete?path=${file.path}`);
        current = null;
        location.hash = "#/files";
        await load();
      });
    const download = h("a.button", { href: at`api/files/raw?path=${file.path}&download=1` }, "Download");
    if (file.binary) {
      return fill(
        pane,
        h("div.editor-head", h("span.path", file.path), note, h("span.right.actions", download)),
        IMAGE.test(file.path)
          ? h("img.preview", { src: at`api/files/raw?path=${file.path}`, alt: file.path })
          : empty("Not a text file", "It can be downloaded."),
      );
    }
    const text = h("textarea", {
      value: file.content,
      spellcheck: false,
      wrap: "off",
      ariaLabel: `Text of ${file.path}`,
    });
    const clash = h("div");
    const save = async (force) => {
      try {
        const body = { path: file.path, content: text.value };
        if (!force) body.etag = current.etag;
        const answer = await post("/api/files/write", body);
        current.etag = answer.etag;
        dirty(false);
        fill(clash);
        say(note, `${bytes(answer.size)} · saved`);
        await load();
      } catch (error) {
        if (error.status !== 409) throw error;
        fill(
          clash,
          h(
            "div.notice.bad",
            { role: "alert" },
            h("p", "Somebody has changed this file since you opened it. Your text is still here."),
            h(
              "div.actions",
              button("Read theirs", () => show(file.path)),
              button("Overwrite with mine", () => save(true), { class: "danger" }),
            ),
          ),
        );
      }
    };
    const go = button("Save", () => save(false), { class: "primary", disabled: true, ariaKeyShortcuts: "Control+S" });
    const dirty = (is) => {
      current.dirty = is;
      // The button is off while its own work runs.
      setTimeout(() => {
        go.disabled = !current?.dirty;
      });
      if (is) say(note, "not saved");
    };
    text.oninput = () => dirty(true);
    text.onkeydown = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "s") {
        event.preventDefault();
        // The button follows the text a moment later; the keys must not miss that moment.
        go.disabled = !current.dirty;
        go.click();
      }
    };
    const editor = editorOf(text);
    const below = h("div");
    const changes = button("Changes", async () => {
      const answer = await get(at`/api/files/git-diff?path=${file.path}`);
      fill(below, diffView(answer.diff));
      below.scrollIntoView({ block: "nearest" });
    });
    return fill(
      pane,
      h(
        "div.editor-head",
        h("span.path", file.path),
        note,
        h(
          "span.right.actions",
          h("button", { onclick: editor.find, ariaKeyShortcuts: "Control+F" }, "Find"),
          changes,
          h("button", { onclick: () => (current.dirty ? toast("Save it first: a comment is on what is in the file") : comment(file.path, editor.chosen(), ...editor.range())) }, "Comment…"),
          openLink(file.path, editor.line),
          download,
          h("button", { onclick: remove }, "Delete"),
          go,
        ),
      ),
      clash,
      editor.el,
      below,
    );
  };

  const safe = () => load().catch(unavailable(tree));
  safe();
  show(parts[1]);
  const later = soon(safe, REREAD_MS);
  const stops = [on("file:changed", later), on("agent:exit", later), on("reconnect", later)];
  const leave = (event) => {
    if (current?.dirty) event.preventDefault();
  };
  addEventListener("beforeunload", leave);
  return {
    go(next) {
      show(next[1]);
      return true;
    },
    stop() {
      later.stop();
      removeEventListener("beforeunload", leave);
      for (const stop of stops) stop();
    },
  };
}
