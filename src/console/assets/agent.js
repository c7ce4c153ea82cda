// One agent: what it does, live; and everything one can do with it.

import {
  ago,
  button,
  confirm,
  dayOf,
  dollars,
  empty,
  exact,
  fill,
  h,
  percent,
  say,
  select,
  short,
  span,
  table,
  timeOf,
  toast,
} from "./dom.js";
import { at, del, get, post } from "./api.js";
import { find, isLive, on, store } from "./store.js";
import { gauge, setGauge } from "./home.js";
import { Log, words } from "./log.js";
import { VList } from "./vlist.js";
import { diffView } from "./diff.js";

const LINE_PX = 20;
const PAD_PX = 11;
const TABS = [
  ["", "Work"],
  ["diff", "Diff"],
  ["files", "Files"],
  ["rotate", "Rotate"],
  ["about", "About"],
];

export default function agentPage(view, parts) {
  let key = parts[1];
  const stops = [];
  const name = h("h1");
  const status = h("span", { class: "status" });
  const reason = h("span", { class: "muted" });
  const context = gauge({ contextUsage: 0 });
  const facts = h("div", { class: "facts" });
  const actions = h("div", { class: "actions right" });
  const tabs = h("nav", { class: "tabs", "aria-label": "Agent" });
  const body = h("div");
  const gone = h("div");
  view.append(
    h("div", { class: "agent-top" }, h("div", {}, name, " ", status), reason, context, actions),
    facts,
    tabs,
    gone,
    body,
  );

  let tab = { stop() {}, keys: {} };
  let word = parts[2] ?? "";
  let shownFor = "";
  const current = () => find(key);

  const top = () => {
    const agent = current();
    if (!agent) {
      if (store.connected)
        fill(
          gone,
          empty(
            "This agent is not there",
            "It was removed, or it never was. ",
            h("a", { href: "#/" }, "All agents"),
          ),
        );
      return;
    }
    fill(gone);
    say(name, agent.name);
    say(status, agent.status);
    status.className = `status ${agent.status}`;
    say(reason, `${agent.statusReason} · ${span(agent.statusSince)}`);
    setGauge(context, agent);
    const about = [
      ["role", agent.role],
      ["provider", agent.provider],
      ["model", agent.actualModel ?? agent.model ?? "auto"],
      ["tokens", short(agent.tokensUsed)],
      ["cost", dollars(agent.costUsd)],
      ["turns", agent.turns],
    ];
    if (agent.pendingInstructions)
      about.push(["waiting for rotation", `${agent.pendingInstructions} messages`]);
    const line = about.map(([label, value]) => `${label} ${value}`).join();
    if (facts.dataset.line !== line) {
      facts.dataset.line = line;
      fill(facts, ...about.map(([label, value]) => h("span", {}, `${label} `, h("b", {}, value))));
    }
    const does = isLive(agent) ? "live" : "ended";
    if (actions.dataset.does !== does + agent.id) {
      actions.dataset.does = does + agent.id;
      fill(
        actions,
        ...(isLive(agent)
          ? [
              h("a", { class: "button", href: `#/agent/${key}/rotate` }, "Rotate"),
              h("button", { type: "button", class: "danger", onclick: kill }, "Kill"),
            ]
          : [
              button(
                "Resume",
                async () => {
                  const answer = await post(at`/api/agents/${agent.id}/resume`);
                  toast(`${agent.name} goes on`);
                  moved(answer?.id ?? answer?.agent?.id);
                },
                { class: "primary" },
              ),
              button("Remove", async () => {
                await del(at`/api/agents/${agent.id}`);
                toast(`${agent.name} is removed`);
                location.hash = "#/";
              }),
            ]),
      );
    }
  };

  const kill = () => {
    const agent = current();
    if (agent)
      confirm(
        `Kill ${agent.name}?`,
        "It ends at once, with everything it started. What it wrote to files stays; it can be resumed.",
        "Kill",
        async () => {
          await del(at`/api/agents/${agent.id}`);
          toast(`${agent.name} was killed`);
        },
      );
  };
  /** The lineage goes on under another id. */
  const moved = (id) => {
    if (!id || id === key) return;
    key = id;
    history.replaceState(null, "", `#/agent/${id}${word ? `/${word}` : ""}`);
    open(true);
  };

  const open = (again = false) => {
    const agent = current();
    if (word === "kill") {
      word = "";
      if (agent && isLive(agent)) kill();
    }
    const wanted = word === "say" || word === "query" ? "" : word;
    fill(
      tabs,
      ...TABS.map(([one, title]) =>
        h(
          "a",
          { href: `#/agent/${key}${one ? `/${one}` : ""}`, "aria-current": one === wanted ? "page" : null },
          title,
        ),
      ),
    );
    const shown = `${wanted}:${key}`;
    if (shown !== shownFor || again) {
      shownFor = shown;
      tab.stop?.();
      fill(body);
      tab = { keys: {}, ...({ "": work, diff, files, rotate, about }[wanted] ?? work)(body, key, moved) };
    }
    if (word === "say") tab.focus?.();
    top();
  };

  stops.push(
    on("agents", top),
    on("tick", top),
    on("rotation:complete", ({ oldAgentId, agentId }) => {
      if (oldAgentId === key || find(key)?.id === agentId) moved(agentId);
    }),
  );
  open();
  return {
    go(next) {
      if (next[1] !== key) return false;
      word = next[2] ?? "";
      open();
      return true;
    },
    stop() {
      tab.stop?.();
      for (const stop of stops) stop();
    },
    get keys() {
      return {
        i: () => tab.focus?.(),
        r: () => {
          location.hash = `#/agent/${key}/rotate`;
        },
        K: kill,
        ...tab.keys,
      };
    },
  };
}

/** The timeline, and the box to write to the agent. */
function work(body, key) {
  let columns = 90;
  const detail = h("aside", {
    class: "detail",
    hidden: true,
    tabIndex: 0,
    "aria-label": "The selected entry",
  });
  const note = h("span");
  const jump = h(
    "button",
    {
      type: "button",
      hidden: true,
      onclick: () => {
        list.toEnd();
        following = true;
        jump.hidden = true;
      },
    },
    "Newest",
  );
  let following = true;
  let drawn = false;
  const log = new Log(key, (from) => {
    const stick = following;
    list.set(log.items.length, from);
    if (stick) list.toEnd();
    else jump.hidden = false;
    count();
  });
  const list = new VList({
    label: "What it did",
    rowClass: "",
    height: (index) => heightOf(log.items[index], columns),
    render: (index, row) => entryRow(log.items[index], row),
  });
  const count = () => {
    say(
      note,
      log.items.length
        ? `${exact(log.entries)} of ${exact(log.last)} entries${log.whole ? "" : "; older ones are read when you scroll up"}`
        : "",
    );
    if (!log.items.length && drawn)
      fill(
        list.body,
        h("p", { class: "empty" }, "Nothing yet. The agent's work appears here as it happens."),
      );
    else list.body.querySelector(":scope > .empty")?.remove();
  };
  const older = async () => {
    const top = list.el.scrollTop;
    const added = await log.older();
    if (!added) return 0;
    const at = list.selected;
    list.set(log.items.length, 0);
    list.el.scrollTop = top + list.offsets[added];
    if (at >= 0) list.selected = at + added;
    list.draw();
    count();
    return added;
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
    const next = Math.max(20, Math.floor((list.el.clientWidth - 190) / 7));
    if (Math.abs(next - columns) < 4) return;
    columns = next;
    list.set(log.items.length, 0);
    if (following) list.toEnd();
  };
  const show = (index) => {
    list.select(index);
    const item = log.items[list.selected];
    if (!item) return;
    fill(
      detail,
      ...detailOf(item, () => {
        detail.hidden = true;
        frame.classList.remove("open");
        list.el.focus();
      }),
    );
    detail.hidden = false;
    detail.scrollTop = 0;
    frame.classList.add("open");
  };
  list.el.addEventListener("click", (event) => {
    const row = event.target.closest(".vrow");
    if (row) show(Number(row.dataset.index));
  });
  const move = (by) => {
    const from = list.selected < 0 ? list.indexAt(list.el.scrollTop) : list.selected + by;
    if (detail.hidden) list.select(from);
    else show(from);
  };
  const frame = h("div", { class: "work" }, list.el, detail);
  const box = talk(key);
  body.append(frame, h("div", { class: "follow" }, note, jump), box.el);

  log.start().then(
    () => {
      drawn = true;
      count();
    },
    (error) => fill(note, error.message),
  );
  const mine = () => find(key)?.id ?? key;
  const follow = () => {
    log.follow().catch(() => {});
  };
  const stops = [
    on("output", (id) => {
      if (id === mine()) follow();
    }),
    on("reconnect", follow),
    on("resync", follow),
    on("agent:exit", follow),
    on("agents", () => {
      if (isLive(find(key) ?? {}) !== drawnLive) {
        drawnLive = !drawnLive;
        follow();
      }
    }),
  ];
  let drawnLive = isLive(find(key) ?? {});
  return {
    focus: box.focus,
    keys: {
      j: () => move(1),
      k: () => move(-1),
      Enter: () => show(list.selected),
      Home: () => home().catch(() => {}),
      End: () => {
        list.toEnd();
        following = true;
        jump.hidden = true;
      },
      Escape: () => {
        detail.hidden = true;
        frame.classList.remove("open");
      },
    },
    stop() {
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
    for (const line of (item.start.text ?? "").trimEnd().split("\n", 4))
      lines += Math.max(1, Math.ceil(line.length / columns));
    item.lines = Math.min(4, Math.max(1, lines));
    item.columns = columns;
  }
  return item.lines * LINE_PX + PAD_PX;
}

function entryRow(item, row) {
  if (!item) return;
  if (!row.parts) {
    row.parts = {
      time: h("time"),
      icon: h("span", { class: "icon", "aria-hidden": "true" }),
      body: h("span", { class: "body" }),
      end: h("span", { class: "end" }),
    };
    row.append(row.parts.time, row.parts.icon, row.parts.body, row.parts.end);
  }
  const told = words(item);
  row.className = `vrow entry ${told.type}${row.classList.contains("selected") ? " selected" : ""}`;
  say(row.parts.time, timeOf((item.start ?? item.end).ts));
  say(row.parts.icon, told.icon);
  say(row.parts.end, told.end ?? "");
  if (told.title) fill(row.parts.body, h("b", {}, told.title), h("span", { class: "arg" }, told.arg));
  else say(row.parts.body, (told.text ?? "").slice(0, 2000).trimEnd());
}

/** Everything an item holds: its words, and the lines as they stand in the log. */
function detailOf(item, close) {
  const entry = item.start ?? item.end;
  const told = words(item);
  const parts = [
    h(
      "div",
      { class: "dialog-head" },
      h("h2", {}, told.title ?? item.kind),
      h("span", { class: "muted" }, dayOf(entry.ts)),
      h("button", { type: "button", class: "ghost", "aria-label": "Close the entry", onclick: close }, "×"),
    ),
  ];
  if (item.kind === "tool") {
    if (item.start)
      parts.push(
        h("h3", {}, "Input"),
        h("pre", {}, typeof item.start.input === "string" ? item.start.input : pretty(item.start.input)),
      );
    if (item.end)
      parts.push(
        h("h3", {}, item.end.error ? "Failed with" : "Output"),
        h("pre", {}, item.end.output || "(nothing)"),
      );
    else parts.push(h("p", { class: "muted" }, "Still running."));
  } else parts.push(h("div", { class: "prose" }, told.text));
  const raw = h(
    "div",
    { hidden: true },
    ...[item.start, item.end].filter(Boolean).map((line) => h("pre", {}, JSON.stringify(line, null, 2))),
  );
  const toggle = h(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      onclick: () => {
        raw.hidden = !raw.hidden;
        toggle.setAttribute("aria-expanded", String(!raw.hidden));
      },
    },
    "Raw line",
  );
  parts.push(toggle, raw);
  return parts;
}

/** Values as JSON, with texts of several lines readable. */
function pretty(input) {
  if (!input || typeof input !== "object") return JSON.stringify(input);
  return Object.entries(input)
    .map(([key, value]) =>
      typeof value === "string" && value.includes("\n")
        ? `${key}:\n${value}`
        : `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
    )
    .join("\n");
}

/** Instruct and query. */
function talk(key) {
  const text = h("textarea", { rows: 1, placeholder: "Write to the agent", "aria-label": "Message" });
  const how = select(
    [
      ["now", "Now"],
      ["idle", "When its turn ends"],
      ["rotation", "With its next rotation"],
      ["query", "Ask aside, without disturbing it"],
    ],
    "now",
  );
  how.setAttribute("aria-label", "How it is delivered");
  const answer = h("div", { class: "answer", hidden: true, role: "status" });
  const send = button(
    "Send",
    async () => {
      const message = text.value.trim();
      if (!message) return text.focus();
      const id = find(key)?.id ?? key;
      if (how.value === "query") {
        answer.hidden = false;
        say(answer, "Asking; at most 60 s.");
        try {
          say(answer, (await post(at`/api/agents/${id}/query`, { question: message })).answer);
        } catch (error) {
          answer.hidden = true;
          throw error;
        }
      } else {
        const told = await post(at`/api/agents/${id}/instruct`, { message, deliver: how.value });
        toast(
          { rotation: "It is told with its next rotation", idle: "It is told when its turn ends" }[
            told.deliverOn
          ] ?? "Sent",
        );
      }
      text.value = "";
      return undefined;
    },
    { class: "primary" },
  );
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send.click();
    }
  });
  return {
    el: h("div", {}, h("div", { class: "say" }, text, h("div", { class: "how" }, how, send)), answer),
    focus: () => text.focus(),
  };
}

function diff(body, key) {
  const load = async () => {
    try {
      const answer = await get(at`/api/agents/${key}/diff`);
      fill(
        body,
        h(
          "div",
          { class: "follow" },
          `${answer.files.length} files changed in its folder against HEAD${answer.truncated ? "; the diff is cut" : ""}`,
          again,
        ),
        diffView(answer.diff, answer.files),
      );
    } catch (error) {
      fill(body, empty("No diff", error.message));
    }
  };
  const again = button("Read again", load);
  load();
  return { keys: { R: load } };
}

function files(body, key) {
  get(at`/api/agents/${key}/files`).then(
    ({ files: list }) =>
      fill(
        body,
        list.length
          ? h(
              "div",
              { class: "panel" },
              table(
                "Files it touched",
                ["File", "#Reads", "#Writes"],
                list
                  .sort((a, b) => b.writes - a.writes || b.reads - a.reads)
                  .map((file) => [
                    h("a", { href: `#/files/${encodeURIComponent(file.path)}` }, file.path),
                    file.reads,
                    file.writes,
                  ]),
              ),
            )
          : empty("It has touched no files", "Files it reads and writes are counted here."),
      ),
    (error) => fill(body, empty("Not to be had", error.message)),
  );
}

/** What a successor would be told, before one decides. */
function rotate(body, key, moved) {
  const go = button(
    "Rotate now",
    async () => {
      const answer = await post(at`/api/agents/${key}/rotate`);
      toast(`${find(answer.new)?.name ?? "It"} goes on with a fresh context`);
      moved(answer.new);
      location.hash = `#/agent/${answer.new}`;
    },
    { class: "primary" },
  );
  get(at`/api/agents/${key}/brief`).then(
    (brief) => {
      const agent = find(key) ?? {};
      fill(
        body,
        h(
          "p",
          { class: "notice" },
          `Its context is ${percent(agent.contextUsage)} full. Rotating ends this session and starts a fresh one, which is told what stands below: ${exact(brief.chars)} of ${exact(brief.maxChars)} characters.`,
        ),
        h(
          "div",
          { class: "actions" },
          go,
          !isLive(agent) && h("span", { class: "muted" }, "It has ended: resume it instead."),
        ),
        brief.instructions?.length > 0 &&
          h(
            "section",
            {},
            h("h2", {}, "It is also told"),
            h(
              "ul",
              {},
              brief.instructions.map((text) => h("li", {}, text)),
            ),
          ),
        h("h2", { class: "list-head" }, "Handoff brief"),
        h("pre", { class: "brief", tabIndex: 0 }, brief.brief),
        brief.leftOut?.length > 0 &&
          h(
            "section",
            {},
            h("h2", { class: "list-head" }, "What would not fit"),
            h(
              "ul",
              {},
              brief.leftOut.map((one) => h("li", {}, typeof one === "string" ? one : JSON.stringify(one))),
            ),
          ),
      );
      go.disabled = !isLive(agent);
    },
    (error) => fill(body, empty("No brief", error.message)),
  );
}

function about(body, key) {
  get(at`/api/agents/${key}`).then(
    (agent) => {
      const rows = [
        ["Task", h("pre", {}, agent.prompt || "(none)")],
        ["Owns", agent.scope.join(", ") || "nothing"],
        ["Permission", agent.permission === "full" ? "Full Send" : "Auto"],
        ["Effort", agent.effort],
        ["Folder", agent.worktree ?? (agent.workingDir || "the project's root")],
        ["Team", agent.teamId],
        ["Skills", agent.skills.join(", ") || "none"],
        ["Integrations", agent.integrations.join(", ") || "none"],
        ["Started", dayOf(agent.spawnedAt)],
        ["Last activity", ago(agent.lastActivity, " ago")],
        [
          "Tokens",
          `${exact(agent.tokens.input)} in, ${exact(agent.tokens.output)} out, ${exact(agent.tokens.cacheRead)} from cache, ${exact(agent.tokens.cacheCreation)} to cache`,
        ],
        ["Process", agent.pid ?? "none"],
        ["Session", agent.sessionId ?? "none"],
        ["Lineage", agent.lineageId],
        ["Replaces", agent.predecessorId ?? "nobody"],
        ["Exit", agent.exit ? JSON.stringify(agent.exit) : "it lives"],
        ["Error", agent.error ? h("pre", {}, agent.error) : "none"],
      ];
      fill(
        body,
        h(
          "div",
          { class: "panel" },
          table(
            "About the agent",
            ["", ""],
            rows.map(([label, value]) => [h("span", { class: "muted" }, label), value]),
          ),
        ),
        agent.instructions?.length > 0 &&
          h(
            "div",
            { class: "panel" },
            h("h2", {}, "Waiting to be told"),
            h(
              "ul",
              {},
              agent.instructions.map((one) => h("li", {}, one.text ?? String(one))),
            ),
          ),
      );
    },
    (error) => fill(body, empty("Not to be had", error.message)),
  );
}
