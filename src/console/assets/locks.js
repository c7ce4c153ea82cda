// Who holds what, and who wrote where another works.

import { ago, button, fill, h, head, span, table, toast, unavailable } from "./dom.js";
import { get, post } from "./api.js";
import { find, on } from "./store.js";

export default function locks(view) {
  const held = h("section.panel");
  const met = h("section.panel");
  view.append(
    head("Locks and conflicts", "Agents take shared resources, for example a package install, one at a time; files have owners by scope."),
    held,
    met,
  );
  const who = (id, name) => (find(id) ? h("a", { href: `#/agent/${id}` }, name ?? find(id).name) : (name ?? id));
  const load = async () => {
    const [{ operations }, { conflicts }] = await Promise.all([get("/api/coordination"), get("/api/conflicts")]);
    const rows = Object.entries(operations).flatMap(([id, lock]) =>
      (lock.all ?? [lock]).map((one) => [
        who(id),
        one.name,
        one.resources.join(", "),
        ago(one.acquiredAt),
        `in ${span(one.expiresAt)}`,
        button(
          "Give back",
          async () => {
            await post("/api/coordination/complete", { agentId: id });
            toast("Given back");
            await load();
          },
          { ariaLabel: `Give back what ${find(id)?.name ?? id} holds` },
        ),
      ]),
    );
    fill(
      held,
      h("h2", "Held now"),
      rows.length
        ? table("Locks", ["Agent", "For", "Resources", "Since", "Expires", ""], rows)
        : h("p.hint", "Nothing is locked."),
    );
    fill(
      met,
      h("h2", "Writes outside of a scope"),
      conflicts.length
        ? table(
            "Conflicts",
            ["When", "Agent", "File", "Owner", "Seen", "Approval"],
            conflicts.map((one) => [
              ago(one.ts),
              one.agentId ? who(one.agentId, one.agentName) : one.agentName,
              h("a", { href: `#/files/${encodeURIComponent(one.filePath)}` }, one.filePath),
              one.ownerName ?? "nobody",
              one.seen === "before" ? "before it wrote" : seen(one),
              one.approvalId ? h("a", { href: "#/approvals" }, one.approvalId) : "",
            ]),
          )
        : h("p.hint", "No agent has written outside of its scope."),
    );
  };
  const safe = () => load().catch(unavailable(held));
  safe();
  const stops = ["coordination:declared", "coordination:completed", "conflict:detected", "approval:request", "reconnect"].map((type) =>
    on(type, safe),
  );
  return {
    stop() {
      for (const stop of stops) stop();
    },
  };
}

/** How a write that is done was seen, and whether it is still there after a person has rejected it. */
function seen({ certainty, afterRejection }) {
  const sure = { likely: "afterwards, likely", unknown: "afterwards, not sure who" }[certainty] ?? "after it wrote";
  return afterRejection === "in place" ? `${sure}; rejected, still in place` : sure;
}
