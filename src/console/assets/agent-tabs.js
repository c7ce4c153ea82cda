// The other sides of an agent: what it touched, what a successor would be told, and its record.

import {
  ago,
  button,
  dayOf,
  dialog,
  empty,
  exact,
  field,
  fill,
  formOf,
  h,
  panel,
  percent,
  say,
  select,
  table,
  toast,
  unavailable,
} from "./dom.js";
import { at, get, patch, post } from "./api.js";
import { find, isLive, on } from "./store.js";
import { prose } from "./prose.js";
import { openSpawn } from "./spawn.js";

/** What a brief leaves out is listed up to so many lines. */
const MAX_LEFT_OUT = 50;

export function files(body, key) {
  get(at`/api/agents/${key}/files`).then(
    ({ files: list }) =>
      fill(
        body,
        list.length
          ? h(
              "div.panel",
              table(
                "Files it touched",
                ["File", "#Reads", "#Writes"],
                list
                  .sort((a, b) => b.writes - a.writes || b.reads - a.reads)
                  .map((file) => [h("a", { href: `#/files/${encodeURIComponent(file.path)}` }, file.path), file.reads, file.writes]),
              ),
            )
          : empty("It has touched no files", "Files it reads and writes are counted here."),
      ),
    unavailable(body),
  );
}

/** What a successor would be told, before one decides. */
export function rotate(body, key, moved) {
  let busy = false;
  const go = button(
    "Rotate now",
    async () => {
      busy = true;
      try {
        const answer = await post(at`/api/agents/${key}/rotate`);
        toast(`${find(answer.new)?.name ?? "It"} goes on with a fresh context`);
        moved(answer.new);
        location.hash = `#/agent/${answer.new}`;
      } finally {
        busy = false;
      }
    },
    { class: "primary" },
  );
  const full = h("b");
  const ended = h("span.muted", "It has ended: resume it instead.");
  // The brief may be here before the agent is, and the agent may end while one reads.
  const draw = () => {
    const agent = find(key);
    say(full, agent ? percent(agent.contextUsage) : "…");
    ended.hidden = !agent || isLive(agent);
    if (!busy) go.disabled = !agent || !isLive(agent);
  };
  const stop = on("agents", draw);
  get(at`/api/agents/${key}/brief`).then(
    (brief) => {
      fill(
        body,
        h(
          "p.notice",
          "Its context is ",
          full,
          " full. Rotating ends this session and starts a fresh one, which is given the following: ",
          `${exact(brief.chars)} of ${exact(brief.maxChars)} characters.`,
        ),
        h("div.actions", go, ended),
        brief.instructions?.length > 0 &&
          h("section", h("h2", "It is also told"), h("ul", brief.instructions.map((text) => h("li", text)))),
        h("h2.list-head", "Handoff brief"),
        h("div.brief.prose", { tabIndex: 0 }, prose(brief.brief, { top: 3 })),
        brief.leftOut?.length > 0 &&
          h(
            "section",
            h("h2.list-head", "Left out, beyond what its section may hold"),
            h(
              "ul",
              brief.leftOut.slice(0, MAX_LEFT_OUT).map((one) => h("li", `${one.section}${one.cut ? " (cut)" : ""}: ${one.text}`)),
              brief.leftOut.length > MAX_LEFT_OUT && h("li", `and ${exact(brief.leftOut.length - MAX_LEFT_OUT)} more`),
            ),
          ),
      );
      draw();
    },
    (error) => fill(body, empty("No brief", error.message)),
  );
  return { stop };
}

const tokensOf = ({ input, output, cacheRead, cacheCreation }) =>
  [`${exact(input)} in`, `${exact(output)} out`, `${exact(cacheRead)} from cache`, `${exact(cacheCreation)} to cache`].join(", ");

export function about(body, key) {
  Promise.all([get(at`/api/agents/${key}`), get("/api/teams")]).then(
    ([agent, { teams }]) => {
      const team = teams.find((one) => one.id === agent.teamId)?.name ?? agent.teamId;
      const rows = [
        ["Task", h("pre", agent.prompt || "(none)")],
        ["Owns", agent.scope.join(", ") || "nothing"],
        ["Permission", agent.permission === "full" ? "Full Send" : "Auto"],
        ["Effort", agent.effort],
        ["Folder", agent.worktree ?? (agent.workingDir || "the project's root")],
        ["Team", agent.teamId === "__unassigned__" ? "none" : team],
        ["Skills", agent.skills.join(", ") || "none"],
        ["Integrations", agent.integrations.join(", ") || "none"],
        ["Started", dayOf(agent.spawnedAt)],
        ["Last activity", ago(agent.lastActivity, " ago")],
        ["Tokens", tokensOf(agent.tokens)],
        ["Process", agent.pid ?? "none"],
        ["Session", agent.sessionId ?? "none"],
        ["Its own screen", h("code", `svc attach ${agent.name}`)],
        ["Lineage", agent.lineageId],
        ["Replaces", agent.predecessorId ?? "nobody"],
        ["Exit", agent.exit ? JSON.stringify(agent.exit) : "it lives"],
        ["Error", agent.error ? h("pre", agent.error) : "none"],
      ];
      fill(
        body,
        h(
          "div.panel",
          table("About the agent", ["", ""], rows.map(([label, value]) => [h("span.muted", label), value])),
          h(
            "div.actions",
            h("button", { onclick: () => change(agent, () => about(body, key)) }, "Change…"),
            button("Start one like it", () => openSpawn({ ...agent, teamId: null })),
          ),
        ),
        agent.instructions?.length > 0 &&
          panel("Waiting to be told", h("ul", agent.instructions.map((one) => h("li", one.text ?? String(one))))),
      );
    },
    unavailable(body),
  );
}

/** What may change while an agent lives, and when it takes effect. */
function change(agent, done) {
  const { name, scope, model, effort, permission } = agent;
  const inputs = {
    name: h("input", { value: name, autocomplete: "off" }),
    scope: h("input", { value: scope.join(", "), autocomplete: "off" }),
    model: h("input", { value: model ?? "auto", autocomplete: "off", list: "models-of" }),
    effort: select(["low", "medium", "high", "max"], effort),
    permission: select([["auto", "Auto: asks before it leaves its scope"], ["full", "Full Send: asks for nothing"]], permission),
  };
  const models = h("datalist", { id: "models-of" });
  const save = async () => {
    const wish = {
      name: inputs.name.value.trim(),
      scope: inputs.scope.value.split(",").map((one) => one.trim()).filter(Boolean),
      model: inputs.model.value.trim() === "auto" ? null : inputs.model.value.trim(),
      effort: inputs.effort.value,
      permission: inputs.permission.value,
    };
    const was = { name, scope, model: model ?? null, effort, permission };
    const changed = Object.entries(wish).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(was[key]));
    if (changed.length) {
      const { overlaps } = await patch(at`/api/agents/${agent.id}`, Object.fromEntries(changed));
      const with_ = (overlaps ?? []).map((one) => one.agentName).join(", ");
      toast(with_ ? `Changed; its files overlap with those of ${with_}` : "Changed");
    }
    el.close();
    done();
  };
  const later = "with its next life: after a rotation or a resume";
  const form = formOf("Change", save, [
    h("div.two", field("name", "Name", inputs.name), field("scope", "Files it owns", inputs.scope, "Globs, separated by commas; at once")),
    h("div.two", field("model", "Model", inputs.model, later), field("effort", "Effort", inputs.effort, later)),
    field("permission", "Permission", inputs.permission, later),
    models,
  ]);
  form.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  };
  const el = dialog(`Change ${name}`, form);
  inputs.scope.focus();
  get("/api/providers").then((all) => {
    const own = all.find((one) => one.id === agent.provider)?.models ?? [];
    fill(models, own.map((one) => h("option", { value: one.id }, one.name)));
  }, () => {});
}
