// Sessions that people had with agent programs themselves: listed, searched, and made agents.

import { ago, button, empty, exact, fill, formOf, h, head, short, table } from "./dom.js";
import { at, get, post } from "./api.js";

export default function sessions(view, parts) {
  const list = h("div", { role: "status" });
  const words = h("input.filter", { type: "search", value: parts[1] ?? "", placeholder: "Words that were said", ariaLabel: "Search these sessions" });
  const form = formOf("Search", () => load(words.value.trim()), words, { class: "actions" });
  view.append(head("Your sessions", "What you did here with Claude Code, Codex, Gemini CLI or opencode yourself.", form), list);
  const when = (time) => time && ago(time, " ago");
  const whose = ({ provider, account, folder }) => [provider, account, folder].filter(Boolean).join(" · ");
  const adopt = (id, name) =>
    button(
      "Adopt",
      async () => {
        const agent = await post(at`/api/sessions/${id}/adopt`, {});
        location.hash = `#/agent/${agent.id}`;
      },
      { ariaLabel: `Adopt ${name}` },
    );
  const owner = ({ id, agentId, agentName, pid, words }) =>
    agentId ? h("a", { href: `#/agent/${agentId}` }, agentName) : pid ? `open in process ${pid}` : adopt(id, words);
  const session = (one) => [when(one.changed), whose(one), one.words, exact(one.turns), short(one.tokens), owner(one)];
  const hit = (one) => [when(one.ts), whose(one), one.text, one.tool, adopt(one.sessionId, one.sessionId)];
  let turn = 0;
  async function load(q) {
    const mine = (turn += 1);
    fill(list, h("p.muted", "Reading the programs' own records…"));
    const { sessions = [], hits = [], notes } = await get(q ? at`/api/sessions/search?q=${q}` : "/api/sessions").catch((error) => ({ notes: [error.message] }));
    if (mine !== turn) return;
    fill(
      list,
      sessions.length > 0 && table("Sessions", ["Changed", "Program", "First words", "#Turns", "#Tokens", "Agent"], sessions.map(session)),
      hits.length > 0 && table("Hits", ["When", "Program", "Words", "Tool", ""], hits.map(hit)),
      !sessions.length && !hits.length && empty("None", q ? "No entry has all of these words." : "No session of yours was held in this project."),
      notes.map((note) => h("p.hint", note)),
    );
  }
  load(words.value);
  return {
    go(next) {
      words.value = next[1] ?? "";
      load(words.value);
      return true;
    },
  };
}
