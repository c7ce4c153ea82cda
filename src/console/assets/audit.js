// Who changed what, newest first.

import { button, dayOf, empty, fill, h, head, timeOf, unavailable } from "./dom.js";
import { get } from "./api.js";

const PAGE = 100;

export default function audit(view, parts) {
  const filter = h("input.filter", {
    type: "search",
    placeholder: "Event, such as approval",
    ariaLabel: "Filter by event",
    value: parts[1] ?? "",
  });
  const body = h("tbody");
  const none = h("div");
  const more = button("Older", () => load(false), { hidden: true });
  view.append(
    head("Audit", "Every change that somebody made, written to .svc/audit.jsonl.", filter),
    h(
      "div.panel.scroll",
      { tabIndex: 0, role: "region", ariaLabel: "Audit entries" },
      h(
        "table.stacks",
        h("thead", h("tr", ["When", "Event", "By", "What"].map((word) => h("th", { scope: "col" }, word)))),
        body,
      ),
      none,
    ),
    more,
  );
  let last = null;
  let run = 0;
  const load = async (anew) => {
    const mine = (run += 1);
    const query = new URLSearchParams({ limit: PAGE });
    if (filter.value.trim()) query.set("event", filter.value.trim());
    if (!anew && last) query.set("before", last);
    const answer = await get(`/api/audit?${query}`);
    if (mine !== run) return;
    if (anew) fill(body);
    for (const entry of answer.entries) {
      const { ts, event, actor, ...rest } = entry;
      const raw = h("pre", { hidden: true }, JSON.stringify(entry, null, 2));
      const words = Object.entries(rest)
        .filter(([, value]) => value !== null)
        .map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`)
        .join(" · ");
      body.append(
        h(
          "tr", h("td", { title: dayOf(ts), "data-label": "When" }, `${dayOf(ts)}:${timeOf(ts).slice(-2)}`),
          h("td", { "data-label": "Event" }, h("span.tag", event)),
          h("td", { "data-label": "By" }, typeof actor === "string" ? actor : JSON.stringify(actor)),
          h(
            "td",
            { "data-label": "What" },
            h(
              "button.link",
              {
                ariaLabel: `Whole entry: ${event}`,
                onclick: () => {
                  raw.hidden = !raw.hidden;
                },
              },
              words.slice(0, 160) || event,
            ),
            raw,
          ),
        ),
      );
      last = ts;
    }
    more.hidden = !answer.more;
    fill(
      none,
      !body.children.length &&
        empty(
          "Nothing is noted",
          filter.value
            ? "No event begins with these words."
            : "Starting an agent or changing a setting leaves a line here.",
        ),
    );
  };
  const safe = () => load(true).catch(unavailable(none));
  let wait = 0;
  filter.oninput = () => {
    clearTimeout(wait);
    wait = setTimeout(safe, 250);
  };
  safe();
  return {
    keys: { "/": () => filter.focus(), r: safe },
    stop() {
      clearTimeout(wait);
      run += 1;
    },
  };
}
