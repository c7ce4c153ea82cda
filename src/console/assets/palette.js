// The command palette: agents, pages and commands by a few letters of their names, and what agents said and
// did by the words in it.

import { dayOf, dialog, fill, h } from "./dom.js";
import { at as path, get } from "./api.js";
import { isLive, store } from "./store.js";

const SHOWN = 40;
/** Names beside hits of the logs, these hits, and the letters from which they are looked for. */
const NAMES_BESIDE_HITS = 6;
const HITS = 12;
const SEARCH_CHARS = 3;
/** Who types on is not asked for. */
const SEARCH_MS = 200;

/** How well `words` match: lower is better, -1 is not at all. Letters must come in order. */
export function rank(words, text) {
  const low = text.toLowerCase();
  const at = low.indexOf(words);
  if (at >= 0) return at === 0 ? 0 : 1 + at / 100;
  let from = 0;
  for (const letter of words) {
    from = low.indexOf(letter, from) + 1;
    if (!from) return -1;
  }
  return 3 + text.length / 100;
}

function entries(pages, commands) {
  const list = [
    ["New agent", "command", () => commands.openSpawn()],
    ["Light or dark", "command", commands.toggleTheme],
    ["Keys", "command", commands.help],
  ];
  for (const [word, title] of pages) {
    const go = () => {
      location.hash = `#/${word}`;
    };
    list.push([title, "page", go]);
  }
  for (const agent of store.agents.values()) {
    const go =
      (tab = "") =>
      () => {
        location.hash = `#/agent/${agent.id}${tab}`;
      };
    list.push([agent.name, `${agent.role} · ${agent.status}`, go()]);
    if (store.agents.size <= 200) {
      list.push([`${agent.name}: diff`, "agent", go("/diff")], [`${agent.name}: files`, "agent", go("/files")]);
      if (isLive(agent))
        list.push(
          [`${agent.name}: write to it`, "agent", go("/say")],
          [`${agent.name}: rotate`, "agent", go("/rotate")],
          [`${agent.name}: kill`, "agent", go("/kill")],
        );
    }
  }
  return list;
}

/** A hit: its words, whose and when, and the way to its place in the timeline. */
const hitEntry = ({ agentId, agentName, n, ts, tool, text }) => [
  text,
  [agentName, tool, dayOf(ts)].filter(Boolean).join(" · "),
  () => {
    location.hash = `#/agent/${agentId}/at/${n}`;
  },
  "hit",
];

/** Words with those that were looked for marked. */
function marked(text, words) {
  const low = text.toLowerCase();
  const wanted = words.split(/["\s]+/).filter(Boolean);
  const out = [];
  let from = 0;
  while (from < text.length) {
    const next = wanted
      .map((word) => [low.indexOf(word, from), word.length])
      .filter(([place]) => place >= 0)
      .sort((a, b) => a[0] - b[0])[0];
    if (!next || low.length !== text.length) break;
    out.push(text.slice(from, next[0]), h("mark", text.slice(next[0], next[0] + next[1])));
    from = next[0] + next[1];
  }
  return [...out, text.slice(from)];
}

export function openPalette(pages, commands) {
  if (document.querySelector("dialog.palette")) return;
  const all = entries(pages, commands);
  const input = h("input", {
    placeholder: "Agent, page, command, or words that were said",
    role: "combobox",
    ariaLabel: "Search",
    ariaExpanded: "true",
    "aria-controls": "palette-list",
    ariaAutoComplete: "list",
    autocomplete: "off",
    spellcheck: false,
  });
  const list = h("ul", { id: "palette-list", role: "listbox", ariaLabel: "Results" });
  const told = h("p.muted.palette-note", { role: "status" });
  const el = dialog("Search and commands", h("div", input, list, told), { class: "palette" });
  let found = [];
  let at = 0;
  let hits = [];
  let wait = 0;
  let asked = 0;
  el.addEventListener("close", () => {
    asked = -1;
    clearTimeout(wait);
  });
  const run = (entry) => {
    el.close();
    entry?.[2]();
  };
  const mark = () => {
    [...list.children].forEach((row, index) => row.ariaSelected = String(index === at));
    const row = list.children[at];
    row?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", row?.id ?? "");
  };
  /** Looks in the logs for what stands there when nobody has typed for a moment. */
  const look = () => {
    clearTimeout(wait);
    hits = [];
    const words = input.value.trim();
    told.textContent = "";
    if (words.length < SEARCH_CHARS) return;
    wait = setTimeout(async () => {
      const mine = (asked += 1);
      told.textContent = "Looking in the logs";
      let answer;
      try {
        answer = await get(path`/api/search?q=${words}&limit=${HITS}`);
      } catch (error) {
        if (mine === asked) told.textContent = error.message;
        return;
      }
      if (mine !== asked || input.value.trim() !== words) return;
      hits = answer.hits.filter(({ agentId }) => agentId).map(hitEntry);
      const count = hits.length;
      hits.push([words, "look in the sessions that you had yourself", () => (location.hash = `#/sessions/${encodeURIComponent(words)}`)]);
      told.textContent = count
        ? `${count}${answer.more ? " newest" : ""} in the logs with ${words.includes(" ") ? "all these words" : "this word"}`
        : "No entry of a log has all of these words";
      draw(found[at]);
    }, SEARCH_MS);
  };
  const draw = (chosen) => {
    const words = input.value.trim().toLowerCase();
    found = all
      .map((entry, index) => [rank(words, entry[0]), index, entry])
      .filter(([score]) => score >= 0)
      .sort((a, b) => a[0] - b[0] || a[1] - b[1])
      .slice(0, hits.length ? NAMES_BESIDE_HITS : SHOWN)
      .map(([, , entry]) => entry)
      .concat(hits);
    // What somebody had chosen stays chosen when hits come.
    at = Math.max(0, found.indexOf(chosen));
    fill(
      list,
      ...found.map((entry, index) =>
        h(
          "li",
          { role: "option", id: `palette-${index}`, class: entry[3] ?? null, onclick: () => run(entry) },
          h("span", entry[3] ? marked(entry[0], words) : entry[0]),
          h("span.muted", entry[1]),
        ),
      ),
      !found.length && h("li.muted", { role: "option", ariaDisabled: "true" }, "Nothing is called that."),
    );
    mark();
  };
  input.oninput = () => {
    look();
    draw();
  };
  input.onkeydown = (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      event.preventDefault();
      at = (at + move + found.length) % Math.max(1, found.length);
      mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[at]);
    }
  };
  draw();
  input.focus();
}
