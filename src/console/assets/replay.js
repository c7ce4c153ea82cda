// What the flight recorder has, played again: any event of it, what followed, and why agents were as they were.

import { button, dayOf, empty, exact, fill, h, head, plural, table, timeOf, unavailable, visibleLine } from "./dom.js";
import { get } from "./api.js";

/** Events shown on each side of the one that is looked at. */
const AROUND = 6;
/** Bytes of a file that is read, at most: a browser holds it several times. */
const MAX_BYTES = 256 << 20;

export default function replay(view) {
  let events = [];
  let sum = null;
  let own = true;
  const slider = h("input", { type: "range", min: "0", max: "0", ariaLabel: "Event", oninput: () => show() });
  const file = h("input", { type: "file", accept: ".json,.jsonl", id: "replay-file", hidden: true });
  const list = h("section.panel");
  const one = h("section.panel", { ariaLive: "polite" });
  const told = h("p.hint");
  view.append(
    head(
      "Replay",
      "What came into the daemon, played again. For a file: svc replay FILE --json > replay.jsonl, and open that.",
      button("Read again", () => load()),
      button("Older", () => load(events[0]?.n), { title: "The 200 events before these" }),
      button("Open a file", () => file.click()),
      file,
    ),
    told,
    slider,
    list,
    one,
  );
  file.onchange = async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    try {
      if (chosen.size > MAX_BYTES) throw new Error("larger than 256 MiB: take a part of it with --from and --until");
      const lines = (await chosen.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
      const last = lines.pop();
      if (!last?.hashes || !lines.every((line) => line.n)) throw new Error("not made by svc replay --json");
      take(lines, last, false);
    } catch (error) {
      fill(list, empty("This file cannot be played", error.message));
    }
    file.value = "";
  };
  function take(lines, last, isOwn) {
    [events, sum, own] = [lines, last, isOwn];
    slider.max = String(Math.max(0, events.length - 1));
    slider.value = slider.max;
    const { compared, equal } = sum.hashes;
    const parts = sum.parts ? `; IT PARTS after event ${exact(sum.parts.after)}` : "";
    const unread = sum.unread ? `; not played: ${sum.unread.why}` : "";
    fill(
      told,
      `${own ? "This daemon" : "The file"}, ${plural(events.length, "event")}, `,
      `${exact(equal)} of ${plural(compared, "hash")} equal${parts}${unread}`.replace("hashs", "hashes"),
    );
    show();
  }
  async function load(before) {
    const limit = 200;
    const until = before > 1 ? `&until=${before - 1}&from=${Math.max(1, before - limit)}` : "";
    const answer = await get(`/api/record/replay?limit=${limit}${until}`);
    take(answer.timeline, answer, true);
  }
  function show() {
    const at = Number(slider.value);
    const event = events[at];
    if (!event) return fill(list, empty("Nothing is recorded yet", "Spawn an agent, and read again."));
    slider.ariaValueText = `event ${event.n}, ${event.event}`;
    const first = Math.max(0, Math.min(at - AROUND, events.length - 2 * AROUND - 1));
    const rows = events.slice(first, first + 2 * AROUND + 1).map((near, index) => [
      h(
        "button.ghost",
        { ariaCurrent: near === event ? "true" : null, onclick: () => go(first + index) },
        `${near === event ? "▸ " : ""}${exact(near.n)}`,
      ),
      h("time", { dateTime: near.at, title: dayOf(near.at) }, timeOf(near.at)),
      near.event,
      near.agents.map((agent) => `${agent.name} ${agent.status ?? "gone"}`).join(", "),
    ]);
    fill(list, table("Events", ["Event", "When", "What", "Agents"], rows));
    const whole = h("pre", { hidden: true, tabIndex: 0, role: "region", ariaLabel: "State" });
    fill(
      one,
      h("h2", `Event ${exact(event.n)}: ${event.event}`),
      event.note && h("p.hint", event.note),
      event.panicked && h("p.notice.bad", "Its handling panicked: the state before it was kept."),
      h("p", visibleLine(event.detail)),
      h("h3", "What was ordered"),
      event.effects.length
        ? h("ul", event.effects.map((effect) => h("li", visibleLine(effect))))
        : h("p.hint", "Nothing."),
      h("h3", "Agents after it, and why"),
      agents(at),
      (own || at === events.length - 1) &&
        button("The whole state after it", async () => {
          const all = own ? await get(`/api/record/replay?limit=1&from=${event.n}&until=${event.n}`) : sum;
          fill(whole, JSON.stringify(all.state, null, 2));
          whole.hidden = false;
        }),
      whole,
    );
  }
  /** What has become of each agent until then: the first event tells of all. */
  function agents(at) {
    const known = new Map();
    for (const event of events.slice(0, at + 1)) {
      if (event.note) known.clear();
      for (const agent of event.agents) {
        if (agent.status) known.set(agent.id, agent);
        else known.delete(agent.id);
      }
    }
    const rows = [...known.values()].map((agent) => [agent.name, agent.status, agent.why]);
    return rows.length
      ? table("Agents", ["Agent", "Status", "Why"], rows)
      : h("p.hint", "There was none.");
  }
  const go = (at) => {
    slider.value = String(at);
    show();
  };
  load().catch(unavailable(list));
  return {
    keys: { j: () => go(Number(slider.value) + 1), k: () => go(Number(slider.value) - 1) },
  };
}
