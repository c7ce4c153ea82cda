// Teams, what the planner recommends, and plans as a board: one column a phase.

import { ago, button, confirm, dialog, empty, faults, field, fill, h, head, toast } from "./dom.js";
import { at, del, get, post } from "./api.js";
import { find, on, store } from "./store.js";

export default function teams(view) {
  const board = h("section", { "aria-label": "Plans" });
  const wish = h("section", { "aria-label": "Recommended team" });
  const saved = h("section", { "aria-label": "Saved teams" });
  view.append(
    head(
      "Teams and plans",
      "A planner designs a team; its phases start one after the other, and quality control comes last.",
      button("Save a team", async () => save()),
      button(
        "Ask a planner",
        async () =>
          (await import("./spawn.js")).openSpawn({ role: "planner", prompt: "Design a team for: " }),
        { class: "primary" },
      ),
    ),
    wish,
    board,
    saved,
  );

  const save = () => {
    const name = h("input", { type: "text", autocomplete: "off" });
    const rest = h("p", { class: "fault", role: "alert" });
    const form = h(
      "form",
      { noValidate: true },
      field(
        "name",
        "Name",
        name,
        `The ${store.agents.size} agents as they are configured now; a team of this name is saved again`,
      ),
      rest,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Save")),
    );
    const el = dialog("Save the agents as a team", form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await post("/api/teams", { name: name.value });
        el.close();
        await load();
      } catch (error) {
        fill(rest, faults(form, error).join("; "));
      }
    });
    name.focus();
  };

  const drawWish = (plan) => {
    if (!plan.exists)
      return fill(
        wish,
        plan.problem &&
          h(
            "p",
            { class: "notice bad" },
            `The planner's team cannot be used: ${plan.problem.message ?? plan.problem.error ?? (typeof plan.problem === "string" ? plan.problem : JSON.stringify(plan.problem))}`,
          ),
      );
    const phases = [...new Set(plan.agents.map((agent) => agent.phase ?? 1))].sort((a, b) => a - b);
    return fill(
      wish,
      h("h2", {}, "Recommended team"),
      h(
        "div",
        { class: "board" },
        phases.map((phase) =>
          h(
            "div",
            { class: "phase" },
            h("h3", {}, `Phase ${phase}`),
            plan.agents
              .filter((agent) => (agent.phase ?? 1) === phase)
              .map((agent) =>
                h(
                  "div",
                  { class: "card plain" },
                  h("strong", {}, agent.name ?? agent.role),
                  h("span", { class: "muted sub" }, [agent.role, ...(agent.scope ?? [])].join(" · ")),
                  h("p", { class: "clamp" }, agent.prompt),
                ),
              ),
          ),
        ),
      ),
      h(
        "div",
        { class: "actions" },
        plan.launched
          ? h("p", { class: "muted" }, "It was launched.")
          : button(
              "Launch",
              async () => {
                const answer = await post("/api/recommended-team/launch");
                toast(
                  `${typeof answer.launched === "number" ? answer.launched : (answer.launched?.length ?? "")} agents have started${answer.failed?.length ? `, ${answer.failed.length} could not` : ""}`,
                );
                await load();
              },
              { class: "primary" },
            ),
      ),
    );
  };

  const member = (one) => {
    const agent = one.agentId && find(one.agentId);
    const state = one.outcome === "working" ? (agent?.status ?? one.state ?? "running") : one.outcome;
    return h(
      "div",
      { class: `card plain${one.outcome === "failed" ? " bad" : ""}` },
      h(
        "div",
        {},
        agent ? h("a", { href: `#/agent/${agent.id}` }, agent.name) : h("strong", {}, one.name ?? one.role),
        " ",
        one.qc && h("span", { class: "tag" }, "QC"),
      ),
      h("span", { class: `status ${state}` }, state),
      (one.error || agent?.currentActivity) &&
        h("p", { class: "muted clamp" }, one.error || agent.currentActivity),
      one.restarts > 0 && h("span", { class: "hint" }, "restarted once"),
    );
  };
  const drawPlans = (plans) =>
    fill(
      board,
      plans.length > 0 && h("h2", {}, "Plans"),
      plans.map((plan) => {
        const phases = [...new Set(plan.agents.map((agent) => agent.phase))].sort((a, b) => a - b);
        return h(
          "div",
          {},
          h(
            "p",
            { class: "muted" },
            h(
              "span",
              { class: `status ${plan.status === "working" ? "running" : plan.status}` },
              plan.status ?? "",
            ),
            " ",
            plan.reason ?? "",
            " · launched ",
            ago(plan.createdAt, " ago"),
          ),
          h(
            "div",
            { class: "board" },
            phases.map((phase) =>
              h(
                "div",
                { class: "phase" },
                h(
                  "h3",
                  {},
                  `Phase ${phase}`,
                  h(
                    "span",
                    { class: "muted" },
                    `${plan.agents.filter((one) => one.phase === phase && one.outcome === "completed").length} of ${plan.agents.filter((one) => one.phase === phase).length}`,
                  ),
                ),
                plan.agents.filter((one) => one.phase === phase).map(member),
              ),
            ),
          ),
        );
      }),
    );
  const drawSaved = ({ teams: list }) =>
    fill(
      saved,
      h("h2", {}, "Saved teams"),
      h(
        "div",
        { class: "shelf" },
        list.map((team) =>
          h(
            "article",
            { class: "card" },
            h(
              "div",
              { class: "card-head" },
              h("strong", {}, team.name),
              team.isDefault && h("span", { class: "tag" }, "default"),
              h("span", { class: "muted right" }, `${team.members.length} alive`),
            ),
            h(
              "p",
              {},
              team.agents.length
                ? team.agents.map((agent) => agent.name ?? agent.role).join(", ")
                : h("span", { class: "muted" }, "No saved agents."),
            ),
            h(
              "div",
              { class: "actions" },
              !team.isDefault &&
                h(
                  "button",
                  {
                    type: "button",
                    "aria-label": `Delete team ${team.name}`,
                    onclick: () =>
                      confirm(
                        `Delete team ${team.name}?`,
                        "Its agents go on in the default team.",
                        "Delete",
                        async () => {
                          await del(at`/api/teams/${team.id}`);
                          await load();
                        },
                      ),
                  },
                  "Delete",
                ),
              team.agents.length > 0 &&
                button(
                  "Start",
                  async () => {
                    const answer = await post(at`/api/teams/${team.id}/load`);
                    toast(
                      `${answer.agents.length} started${answer.failed.length ? `, ${answer.failed.length} could not: ${answer.failed[0].error}` : ""}`,
                      answer.failed.length ? "bad" : "",
                    );
                    await load();
                  },
                  { class: "primary", "aria-label": `Start team ${team.name}` },
                ),
            ),
          ),
        ),
      ),
    );

  const load = async () => {
    const [all, plan, plans] = await Promise.all([
      get("/api/teams"),
      get("/api/recommended-team"),
      get("/api/plans"),
    ]);
    drawWish(plan);
    drawPlans(plans.plans);
    drawSaved(all);
    if (!plan.exists && !plans.plans.length && all.teams.length < 2)
      board.append(
        empty(
          "No plan yet",
          "Ask a planner to design a team for a task; or start agents by hand and save them as a team.",
        ),
      );
  };
  const safe = () => load().catch((error) => fill(board, empty("Not to be had", error.message)));
  safe();
  let wait = 0;
  const later = () => {
    clearTimeout(wait);
    wait = setTimeout(safe, 300);
  };
  const stops = [
    "agents",
    "team:created",
    "team:updated",
    "team:deleted",
    "phase2:spawned",
    "phase2:failed",
    "reconnect",
  ].map((type) =>
    on(type, () => {
      if (!view.querySelector("button:focus, .card:hover")) later();
    }),
  );
  return {
    stop() {
      clearTimeout(wait);
      for (const stop of stops) stop();
    },
  };
}
