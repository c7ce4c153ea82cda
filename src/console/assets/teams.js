// Teams, what the planner recommends, and plans as a board: one column a phase.

import { ago, button, confirm, cost, dialog, empty, field, fill, formOf, h, head, plural, soon, toast, unavailable } from "./dom.js";
import { at, del, get, patch, post } from "./api.js";
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
  // What somebody is about to press stays where it is, also when it is pressed while the answer is under way.
  const held = () => view.querySelector("button:focus, .card:hover");
  const load = async (quiet = false) => {
    const [all, wished, launched] = await Promise.all([get("/api/teams"), get("/api/recommended-team"), get("/api/plans")]);
    if (stopped) return;
    if (quiet && held()) return void later();
    drawWish(wish, wished, load);
    drawPlans(board, launched.plans, load);
    drawSaved(saved, all.teams, load);
    if (!wished.exists && !launched.plans.length)
      board.append(empty("No plan yet", "Ask a planner to design a team for a task; or start agents by hand and save them as a team."));
  };
  const later = soon(() => (held() ? later() : load(true).catch(unavailable(board))), REDRAW_MS);
  load().catch(unavailable(board));
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

/** The columns of a plan: agents by phase, each drawn by `draw`, with what `note` and `acts` have for the column. */
function phases(label, agents, draw, note, acts) {
  const numbers = [...new Set(agents.map((one) => one.phase ?? 1))].sort((a, b) => a - b);
  return h(
    "div.board",
    { tabIndex: 0, role: "region", ariaLabel: label },
    numbers.map((number) => {
      const own = agents.filter((one) => (one.phase ?? 1) === number);
      return h("div.phase", h("h3", `Phase ${number}`, h("span.muted", note(own))), acts?.(own, number), own.map(draw));
    }),
  );
}

/** What is known of an agent of a plan, started or not: who, by what, and which files. */
const about = (one) => h("span.muted.sub", [one.role, one.provider, one.model, ...(one.scope ?? [])].filter(Boolean).join(" · "));

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
  const change = async (agents) => {
    await patch("/api/recommended-team", { agents });
    await load();
  };
  const wished = (agent) => {
    const name = agent.name ?? agent.role;
    const others = plan.agents.filter((one) => one !== agent);
    return h(
      "div.card.plain",
      h("strong", name),
      about(agent),
      h("p.clamp", agent.prompt),
      h(
        "div.actions",
        others.length > 0 && button("Drop", () => change(others), { ariaLabel: `Drop ${name}` }),
        h("button", { ariaLabel: `Edit ${name}`, onclick: () => edit(agent, plan.agents, change) }, "Edit"),
      ),
    );
  };
  const launch = button("Launch", async () => launched(await post("/api/recommended-team/launch"), load), {
    class: "primary",
  });
  return fill(
    el,
    h("div.list-head", h("h2", "Recommended team"), launch),
    phases("Recommended team by phase", plan.agents, wished, (own) => plural(own.length, "agent")),
  );
}

/** Changes one agent of a recommended team before it is launched. */
function edit(agent, all, change) {
  const place = all.indexOf(agent);
  const inputs = {
    prompt: h("textarea", { rows: 6, value: agent.prompt ?? "" }),
    role: h("input", { value: agent.role, required: true }),
    name: h("input", { value: agent.name ?? "" }),
    phase: h("input", { type: "number", min: 1, value: agent.phase }),
    scope: h("input", { value: (agent.scope ?? []).join(", ") }),
    provider: h("input", { value: agent.provider ?? "", placeholder: "the planner's" }),
    model: h("input", { value: agent.model ?? "" }),
  };
  const of = (name, label, hint) => field(`agents[${place}].${name}`, label, inputs[name], hint);
  const save = async () => {
    const words = (name) => inputs[name].value.trim() || undefined;
    const next = {
      ...agent,
      prompt: inputs.prompt.value,
      role: words("role"),
      name: words("name"),
      phase: Number(inputs.phase.value),
      scope: inputs.scope.value.split(",").map((one) => one.trim()).filter(Boolean),
      provider: words("provider"),
      model: words("model"),
    };
    await change(all.map((one) => (one === agent ? next : one)));
    el.close();
  };
  const form = formOf("Save", save, [
    of("prompt", "Task"),
    h("div.two", of("role", "Role"), of("name", "Name")),
    h("div.two", of("phase", "Phase"), of("scope", "Files it owns", "Globs, separated by commas")),
    h("div.two", of("provider", "Provider"), of("model", "Model")),
  ]);
  form.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  };
  const el = dialog(`Edit ${agent.name ?? agent.role}`, form);
  inputs.prompt.focus();
}

async function launched(answer, load) {
  const count = typeof answer.launched === "number" ? answer.launched : (answer.launched?.length ?? 0);
  const failed = answer.failed?.length ? `, ${answer.failed.length} could not` : "";
  toast(`${count} ${count === 1 ? "agent has" : "agents have"} started${failed}`, failed && "bad");
  await load();
}

function drawPlans(el, plans, load) {
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
        phases(`Plan ${plan.id} by phase`, plan.agents, member, spent, (own, number) => number === plan.phase && steer(plan, own, load)),
      ];
    }),
  );
}

/** How many of a phase are done, and what they have cost as far as they are in the list of agents. */
function spent(own) {
  const agents = own.map((one) => one.agentId && find(one.agentId)).filter(Boolean);
  const sum = (key) => agents.reduce((all, one) => all + (one[key] ?? 0), 0);
  const done = `${own.filter((one) => one.outcome === "completed").length} of ${own.length} done`;
  return agents.length ? `${done} · ${cost(sum("costUsd"), sum("unpricedTokens"))}` : done;
}

/** What a person can do with the phase that is on. */
function steer(plan, own, load) {
  const { phase } = plan;
  const left = own.filter((one) => one.outcome !== "completed");
  const works = left.some((one) => one.agentId && find(one.agentId) && isLive(find(one.agentId)));
  const names = left.map((one) => one.name ?? one.role).join(", ");
  const act = async (deed, done) => {
    await post(at`/api/plans/${plan.id}/${deed}`, { phase });
    toast(done);
    await load();
  };
  const skip = () =>
    confirm(
      `Skip phase ${phase}?`,
      `${names} ${left.length === 1 ? "is" : "are"} passed over, and the next phase begins with what there is. What they have changed stays.`,
      "Skip",
      () => act("skip", `Phase ${phase} is passed over`),
    );
  const again = () => act("retry", `Phase ${phase} is tried again`);
  return (
    !works &&
    h(
      "div.actions",
      left.some((one) => one.outcome === "failed") && button(`Try phase ${phase} again`, again),
      h("button", { onclick: skip }, `Skip phase ${phase}…`),
    )
  );
}

/** One agent of a launched plan. */
function member(one) {
  const agent = one.agentId && find(one.agentId);
  const state = one.outcome === "working" ? (agent?.status ?? one.state ?? "running") : one.outcome;
  const doing = one.outcome === "working" && agent?.currentActivity;
  return h(
    "div",
    { class: `card plain${one.outcome === "failed" ? " bad" : ""}` },
    h(
      "div.card-head",
      agent ? h("a", { href: `#/agent/${agent.id}` }, agent.name) : h("strong", one.name ?? one.role),
      one.qc && h("span.tag", "QC"),
      h("span", { class: `status right ${state}` }, state),
    ),
    about({ ...one, model: agent?.actualModel ?? one.model }),
    one.task && h("p.clamp", { title: one.task }, one.task),
    doing && h("p.muted.clamp", doing),
    one.error && h("p.bad-text.clamp", one.error),
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
