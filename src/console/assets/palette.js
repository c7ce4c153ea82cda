// The command palette: agents, pages and commands by a few letters of their names.

import { dialog, fill, h } from "./dom.js";
import { isLive, store } from "./store.js";

const SHOWN = 40;

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
      list.push(
        [`${agent.name}: diff`, "agent", go("/diff")],
        [`${agent.name}: files`, "agent", go("/files")],
      );
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

export function openPalette(pages, commands) {
  if (document.querySelector("dialog.palette")) return;
  const all = entries(pages, commands);
  const input = h("input", {
    type: "text",
    placeholder: "Agent, page or command",
    role: "combobox",
    "aria-label": "Search",
    "aria-expanded": "true",
    "aria-controls": "palette-list",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: false,
  });
  const list = h("ul", { id: "palette-list", role: "listbox", "aria-label": "Results" });
  const el = dialog("Search and commands", h("div", {}, input, list), { class: "palette" });
  let found = [];
  let at = 0;
  const run = (entry) => {
    el.close();
    entry?.[2]();
  };
  const mark = () => {
    [...list.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === at)));
    const row = list.children[at];
    row?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", row?.id ?? "");
  };
  const draw = () => {
    const words = input.value.trim().toLowerCase();
    found = all
      .map((entry, index) => [rank(words, entry[0]), index, entry])
      .filter(([score]) => score >= 0)
      .sort((a, b) => a[0] - b[0] || a[1] - b[1])
      .slice(0, SHOWN)
      .map(([, , entry]) => entry);
    at = 0;
    fill(
      list,
      ...found.map((entry, index) =>
        h(
          "li",
          { role: "option", id: `palette-${index}`, onclick: () => run(entry) },
          h("span", {}, entry[0]),
          h("span", { class: "muted" }, entry[1]),
        ),
      ),
      !found.length &&
        h("li", { role: "option", "aria-disabled": "true", class: "muted" }, "Nothing is called that."),
    );
    mark();
  };
  input.addEventListener("input", draw);
  input.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      event.preventDefault();
      at = (at + move + found.length) % Math.max(1, found.length);
      mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[at]);
    }
  });
  draw();
  input.focus();
}
