// Teams, what the planner recommends, and plans as a board: one column a phase.

import { ago, button, confirm, dialog, empty, field, fill, formOf, h, head, soon, toast, unavailable } from "./dom.js";
import { at, del, get, post } from "./api.js";
import { find, isLive, on, store } from "./store.js";
import { openSpawn } from "./spawn.js";

/** Agents change often; the boards are read again at most so often. */
const REDRAW_MS = 500;
const UNASSIGNED = "__unassigned__";
const EVENTS = ["agents", "team:created", "team:updated", "team:deleted", "phase2:spawned", "phase2:failed", "reconnect"];

export default function teams(view) {
  const wish = h("section", { ariaLabel: "Recommended team" });
  const board = h("section", { ariaLabel: "Plans" });
  const saved = h("section", { ariaLabel: "Saved teams" });
  const plan = () => openSpawn({ role: "planner", prompt: "Design a team for: " });
  view.append(
    head(
      "Teams and plans",
      "A planner designs a team; its phases start one after the other, and quality control comes last.",
      h("button", { onclick: () => save(load) }, "Save a team"),
      h("button.primary", { onclick: plan }, "Ask a planner"),
    ),
    wish,
    board,
    saved,
  );
  let stopped = false;
  const load = async () => {
    const [all, wished, launched] = await Promise.all([get("/api/teams"), get("/api/recommended-team"), get("/api/plans")]);
    if (stopped) return;
    drawWish(wish, wished, load);
    drawPlans(board, launched.plans);
    drawSaved(saved, all.teams, load);
    if (!wished.exists && !launched.plans.length)
      board.append(empty("No plan yet", "Ask a planner to design a team for a task; or start agents by hand and save them as a team."));
  };
  const safe = () => load().catch(unavailable(board));
  safe();
  // What somebody is about to press stays where it is.
  const later = soon(() => {
    if (!view.querySelector("button:focus, .card:hover")) safe();
  }, REDRAW_MS);
  const stops = EVENTS.map((type) => on(type, later));
  return {
    stop() {
      stopped = true;
      later.stop();
      for (const stop of stops) stop();
    },
  };
}

/** Asks for a name and saves the agents under it. */
function save(load) {
  const name = h("input", { autocomplete: "off" });
  const hint = `The ${store.agents.size} agents as they are configured now; a team of this name is replaced`;
  const form = formOf("Save", submit, [field("name", "Name", name, hint)]);
  const el = dialog("Save the agents as a team", form);
  async function submit() {
    await post("/api/teams", { name: name.value });
    el.close();
    await load();
  }
  name.focus();
}

/** The columns of a plan: agents by phase, each drawn by `draw`, with a count of those that are `done`. */
function phases(label, agents, draw, done) {
  const numbers = [...new Set(agents.map((one) => one.phase ?? 1))].sort((a, b) => a - b);
  return h(
    "div.board",
    { tabIndex: 0, role: "region", ariaLabel: label },
    numbers.map((number) => {
      const own = agents.filter((one) => (one.phase ?? 1) === number);
      const count = done ? `${own.filter(done).length} of ${own.length} done` : `${own.length}`;
      return h("div.phase", h("h3", `Phase ${number}`, h("span.muted", count)), own.map(draw));
    }),
  );
}

function drawWish(el, plan, load) {
  const problem = plan.problem?.message ?? plan.problem?.error ?? plan.problem;
  if (!plan.exists || plan.launched) {
    // What was launched stands on the board below.
    return fill(
      el,
      problem &&
        h(
          "p.notice.bad",
          `The planner's team cannot be used: ${typeof problem === "string" ? problem : JSON.stringify(problem)}`,
        ),
    );
  }
  const wished = (agent) =>
    h(
      "div.card.plain",
      h("strong", agent.name ?? agent.role),
      h("span.muted.sub", [agent.role, ...(agent.scope ?? [])].join(" · ")),
      h("p.clamp", agent.prompt),
    );
  const launch = button("Launch", async () => launched(await post("/api/recommended-team/launch"), load), {
    class: "primary",
  });
  return fill(
    el,
    h("div.list-head", h("h2", "Recommended team"), launch),
    phases("Recommended team by phase", plan.agents, wished),
  );
}

async function launched(answer, load) {
  const count = typeof answer.launched === "number" ? answer.launched : (answer.launched?.length ?? 0);
  const failed = answer.failed?.length ? `, ${answer.failed.length} could not` : "";
  toast(`${count} ${count === 1 ? "agent has" : "agents have"} started${failed}`, failed && "bad");
  await load();
}

function drawPlans(el, plans) {
  const done = (one) => one.outcome === "completed";
  fill(
    el,
    plans.map((plan) => {
      const state = plan.status === "working" ? "running" : (plan.status ?? "");
      return [
        h(
          "div.list-head",
          h("h2", "Plan"),
          h(
            "span.muted",
            h("span", { class: `status ${state}` }, state),
            plan.reason ? ` ${plan.reason}` : "",
            " · launched ",
            ago(plan.createdAt, " ago"),
          ),
        ),
        phases("Plan by phase", plan.agents, member, done),
      ];
    }),
  );
}

/** One agent of a launched plan. */
function member(one) {
  const agent = one.agentId && find(one.agentId);
  const state = one.outcome === "working" ? (agent?.status ?? one.state ?? "running") : one.outcome;
  const doing = one.error || agent?.currentActivity;
  return h(
    "div",
    { class: `card plain${one.outcome === "failed" ? " bad" : ""}` },
    h(
      "div.card-head",
      agent ? h("a", { href: `#/agent/${agent.id}` }, agent.name) : h("strong", one.name ?? one.role),
      one.qc && h("span.tag", "QC"),
      h("span", { class: `status right ${state}` }, state),
    ),
    h("span.muted.sub", [one.role, one.provider, ...(one.scope ?? [])].filter(Boolean).join(" · ")),
    (doing || one.task) && h("p.muted.clamp", { title: one.task ?? "" }, doing || one.task),
    one.restarts > 0 && h("p.hint", "restarted once"),
  );
}

function drawSaved(el, teams, load) {
  fill(
    el,
    h("div.list-head", h("h2", "Saved teams")),
    h(
      "div.shelf",
      teams.flatMap((team) => (team.isDefault ? [savedTeam(team, load), unassigned()] : [savedTeam(team, load)])),
    ),
  );
}

/** Agents without a team, under the name that reports have for them. */
function unassigned() {
  const alive = [...store.agents.values()].filter((agent) => agent.teamId === UNASSIGNED && isLive(agent));
  return h(
    "article.card.plain",
    h("div.card-head", h("h3", "Unassigned"), h("span.muted.right", `${alive.length} alive`)),
    h("p.muted", "No team: agents that were started without one."),
  );
}

function savedTeam(team, load) {
  const start = async () => {
    const answer = await post(at`/api/teams/${team.id}/load`);
    const failed = answer.failed.length ? `, ${answer.failed.length} could not: ${answer.failed[0].error}` : "";
    toast(`${answer.agents.length} started${failed}`, failed && "bad");
    await load();
  };
  const remove = () =>
    confirm(`Delete team ${team.name}?`, "Its agents go on in the default team.", "Delete", async () => {
      await del(at`/api/teams/${team.id}`);
      await load();
    });
  const names = team.agents.map((agent) => agent.name ?? agent.role);
  const about = names.length
    ? names.join(", ")
    : team.isDefault
      ? "Agents whose team was deleted go on in this one. Agents without a team are in none."
      : "No agents are saved in it.";
  return h(
    "article.card.plain",
    h(
      "div.card-head",
      h("h3", team.name),
      team.isDefault && team.name !== "default" && h("span.tag", "default"),
      h("span.muted.right", `${team.members.length} alive`),
    ),
    h("p", { class: names.length ? "" : "muted" }, about),
    h(
      "div.actions",
      !team.isDefault && h("button", { ariaLabel: `Delete team ${team.name}`, onclick: remove }, "Delete"),
      names.length > 0 && button("Start", start, { class: "primary", ariaLabel: `Start team ${team.name}` }),
    ),
  );
}
