// Agents side by side: how far each is, what it has cost, and what it has changed.

import { cost, empty, exact, fill, h, plural, say, short, soon, span } from "./dom.js";
import { at, get } from "./api.js";
import { find, isLive, on } from "./store.js";
import { diffView } from "./diff.js";
import { prose } from "./prose.js";

/** Agents side by side at most. */
const MOST = 6;
/** Between two looks at what they have changed, while one is at work. */
const AGAIN_MS = 5000;

export default function compare(view, parts) {
  const keys = (parts[1] ?? "").split(",").filter(Boolean).slice(0, MOST);
  view.append(
    h("div.page-head", h("h1", "Compare")),
    keys.length
      ? h("div.board.compare", { tabIndex: 0, role: "region", ariaLabel: "Agents side by side" })
      : empty("Nobody to compare", "Choose several models under More when you start an agent."),
  );
  const sides = keys.map(side);
  view.querySelector(".compare")?.append(...sides.map(({ el }) => el));
  const draw = soon(() => {
    for (const one of sides) one.draw();
  }, 250);
  const read = () => {
    for (const one of sides) one.read();
  };
  read();
  draw();
  const timer = setInterval(() => sides.some((one) => one.isAtWork()) && read(), AGAIN_MS);
  const stops = [on("agents", draw), on("reconnect", read)];
  return {
    stop() {
      clearInterval(timer);
      draw.stop();
      for (const stop of stops) stop();
    },
  };
}

/** One agent: its figures, its last words, its changes. */
function side(key) {
  const name = h("h2");
  const status = h("span.status");
  const figures = h("dl.params");
  const words = h("div.prose");
  const changes = h("div");
  const links = h("div.actions");
  const el = h("section.phase", { ariaLabel: key }, h("div.card-head", name, status), figures, links, h("h3", "Last words"), words, changes);
  let files;
  let shown = "";
  let wasLive = true;
  const agent = () => find(key);
  const row = (label, value) => [h("dt", label), h("dd", value)];
  const draw = () => {
    const one = agent();
    if (!one) return say(status, "is not in the list");
    say(name, one.name);
    el.ariaLabel = one.name;
    say(status, one.status);
    status.className = `status ${one.status}`;
    const until = isLive(one) ? Date.now() : Date.parse(one.statusSince);
    fill(
      figures,
      row("Model", one.actualModel ?? one.model ?? "auto"),
      row("Cost", cost(one.costUsd, one.unpricedTokens)),
      row("Tokens", short(one.tokensUsed)),
      row("Turns", exact(one.turns)),
      row("Time", span(Date.now() - (until - Date.parse(one.spawnedAt)))),
      row("Changed", files ? `${plural(files.length, "file")}, +${sum("added")} −${sum("removed")}` : "…"),
    );
    if (!links.firstChild)
      fill(
        links,
        h("a.button", { href: at`#/agent/${one.id}` }, "Work"),
        h("a.button", { href: at`#/agent/${one.id}/diff`, ariaLabel: `Review ${one.name}` }, "Review and merge"),
      );
    // What it did last is read when it has ended, too.
    if (wasLive && !isLive(one)) read();
    wasLive = isLive(one);
  };
  const sum = (what) => exact(files.reduce((all, one) => all + (one[what] ?? 0), 0));
  const read = async () => {
    const id = agent()?.id ?? key;
    try {
      const [{ diff, files: list, truncated }, { entries }] = await Promise.all([
        get(at`/api/agents/${id}/diff`),
        get(at`/api/agents/${id}/log?tail=200`),
      ]);
      files = list;
      const said = entries.findLast((one) => one.type === "text" || (one.type === "turn-ended" && one.text))?.text;
      fill(words, said ? prose(said, { top: 3 }) : h("p.muted", "Nothing yet."));
      if (shown !== diff) {
        shown = diff;
        const open = changes.querySelector("details.all")?.open ?? false;
        fill(changes, h("details.all", { open }, h("summary", "What it has changed"), diffView(diff, list, { cut: truncated })));
      }
    } catch (error) {
      fill(changes, h("p.muted", error.message));
    }
    draw();
  };
  return { el, draw, read, isAtWork: () => Boolean(agent() && isLive(agent())) };
}
