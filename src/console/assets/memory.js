// What every new agent is told: rules, what worked, handoffs, who is good at what.

import { ago, button, dayOf, exact, faults, field, fill, h, head, select, table, toast } from "./dom.js";
import { at, del, get, post } from "./api.js";
import { on } from "./store.js";
import { prose } from "./prose.js";

const DISCOVERIES = 200;

export default function memory(view) {
  const rules = h("section.panel");
  const found = h("section.panel");
  const chain = h("section.panel");
  const known = h("section.panel");
  view.append(
    head("Memory", "What every new agent is told, the most relevant first. It is stored below .svc/memory/ as plain files."),
    h("div.columns", rules, found, chain, known),
  );
  const failed = (el, title) => (error) => fill(el, h("h2", title), h("p.fault", error.message));

  const text = h("textarea", { rows: 2, placeholder: "Use tabs. Never touch the migrations folder." });
  const category = h("input", { placeholder: "general" });
  const rest = h("p.fault", { role: "alert" });
  const form = h(
    "form",
    { noValidate: true, class: "inline three" },
    field("text", "New rule", text),
    field("category", "Category", category),
    h("button.primary", { type: "submit" }, "Add"),
  );
  form.onsubmit = async (event) => {
    event.preventDefault();
    const body = { text: text.value };
    if (category.value.trim()) body.category = category.value.trim();
    try {
      const answer = await post("/api/memory/constraints", body);
      if (answer.added) text.value = "";
      toast(answer.added ? "Every new agent is told" : "This rule is there already");
      fill(rest, "");
      faults(form, null);
      await drawRules();
    } catch (error) {
      fill(rest, faults(form, error).join("; "));
    }
  };
  const list = h("div");
  fill(rules, h("h2", "Rules for all agents"), form, rest, list);
  const drawRules = () =>
    get("/api/memory/constraints").then(
      ({ constraints }) =>
        fill(
          list,
          constraints.length
            ? h(
                "ul.rows",
                constraints.map((one) =>
                  h(
                    "li",
                    h("span", h("span.tag", one.category), " ", one.text),
                    button(
                      "Lift",
                      async () => {
                        await del(at`/api/memory/constraints/${one.hash}`);
                        await drawRules();
                      },
                      { ariaLabel: `Lift the rule: ${one.text}` },
                    ),
                  ),
                ),
              )
            : h("p.hint", "No rules yet. Write one above; all agents that start from now on follow it."),
        ),
      failed(list, ""),
    );

  const drawFound = () =>
    get(`/api/memory/discoveries?limit=${DISCOVERIES}`).then(
      ({ discoveries }) =>
        fill(
          found,
          h("h2", "What worked"),
          discoveries.length
            ? table(
                "Discoveries",
                ["When", "Role", "When this happens", "do this", "Met", "Of use"],
                discoveries.map((one) => [
                  ago(one.ts),
                  one.mined ? `${one.role}, from a log` : one.role,
                  one.trigger,
                  one.otherwise ? `${one.fix} (of the same was said: ${one.otherwise})` : one.fix,
                  `${exact(one.again + 1)} ×`,
                  `${exact(one.endedWell)} of ${exact(one.told)}`,
                ]),
              )
            : h("p.hint", "Agents write down here what solved a problem, so that the next one need not find it again."),
        ),
      failed(found, "What worked"),
    );

  const role = select([], "");
  role.ariaLabel = "Role";
  const entries = h("div");
  const drawChain = async () => {
    const { roles } = await get("/api/memory/handoff-chain");
    const before = role.value;
    fill(role, ...roles.map((one) => h("option", { value: one, selected: one === before }, one)));
    fill(
      chain,
      h("h2", "Handoffs"),
      roles.length
        ? [role, entries]
        : h("p.hint", "Each rotation leaves a brief for its successor; the last ten of each role are kept."),
    );
    if (!roles.length) return;
    const answer = await get(at`/api/memory/handoff-chain/${role.value}`);
    fill(
      entries,
      ...answer.entries.map((one, index) =>
        h(
          "details.file",
          { open: index === 0 },
          h("summary", `Rotation ${one.rotationN}`, one.ts ? ` · ${dayOf(one.ts)}` : ""),
          h("div.panel.prose", prose(one.body, { top: 3, bare: true })),
        ),
      ),
    );
  };
  const safeChain = () => drawChain().catch(failed(chain, "Handoffs"));
  role.onchange = safeChain;

  const drawKnown = () =>
    get("/api/memory/specializations").then(
      ({ perAgent, perProjectRole }) => {
        const roles = Object.entries(perProjectRole);
        fill(
          known,
          h("h2", "Who is good at what"),
          roles.length
            ? [
                table(
                  "Roles",
                  ["Role", "#Sessions", "#Quality", "Files it changes most"],
                  roles.map(([name, one]) => [
                    name,
                    one.sessionCount,
                    one.avgQualityScore === null ? "–" : Math.round(one.avgQualityScore),
                    churn(one.topFileChurn),
                  ]),
                ),
                table(
                  "Agents",
                  ["Agent", "#Sessions", "#Quality", "#Rotates at"],
                  Object.values(perAgent)
                    .slice(0, 50)
                    .map((one) => [
                      one.agentName ?? one.agentId,
                      exact(one.sessionCount),
                      one.avgQualityScore === null ? "–" : Math.round(one.avgQualityScore),
                      one.preferredThreshold,
                    ]),
                ),
              ]
            : h("p.hint", "Sessions are scored when they end; what they show is kept here."),
        );
      },
      failed(known, "Who is good at what"),
    );

  drawRules();
  drawFound();
  safeChain();
  drawKnown();
  const stops = [
    on("memory:constraint:added", drawRules),
    on("memory:constraint:removed", drawRules),
    on("memory:discovery:added", drawFound),
    on("rotation:complete", safeChain),
    on("agent:exit", drawKnown),
  ];
  return {
    stop() {
      for (const stop of stops) stop();
    },
    keys: { "/": () => text.focus() },
  };
}

const churn = (files) =>
  Object.entries(files ?? {})
    .sort((a, b) => b[1] - a[1])
    .slice(0, 4)
    .map(([path, n]) => `${path} (${n})`)
    .join(", ");
