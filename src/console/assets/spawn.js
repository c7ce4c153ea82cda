// The dialog that starts an agent.

import { dialog, faults, field, fill, h, select, toast } from "./dom.js";
import { get, post } from "./api.js";

const lines = (text) =>
  text
    .split(/[\n,]/)
    .map((line) => line.trim())
    .filter(Boolean);

/** Opens the dialog; `given`, an agent's record or a part of one, fills fields beforehand. */
export async function openSpawn(given = {}) {
  if (document.querySelector("dialog.spawn")) return;
  const role = h("input", {
    required: true,
    autocomplete: "off",
    value: given.role ?? "",
    placeholder: "backend",
  });
  const name = h("input", { autocomplete: "off", placeholder: "backend-1" });
  const prompt = h("textarea", {
    rows: 5,
    value: given.prompt ?? "",
    placeholder: "What to do, and how to tell when it is done",
  });
  const scope = h("input", { autocomplete: "off", placeholder: "src/**, tests/**", value: given.scope?.join(", ") ?? "" });
  const workingDir = h("input", { autocomplete: "off", placeholder: "the project's root", value: given.workingDir ?? "" });
  const provider = h("select");
  const model = h("select");
  const permission = select(
    [
      ["auto", "Auto: asks before it leaves its scope"],
      ["full", "Full Send: asks for nothing"],
    ],
    given.permission ?? "auto",
  );
  const effort = select([["low", "Low"], ["medium", "Medium"], ["high", "High"], ["max", "Max"]], given.effort ?? "medium");
  const isolation = select([["shared", "In the project's folder"], ["worktree", "In a git worktree of its own"]], given.isolation ?? "shared");
  const onLimit = select(
    [
      ["", "As the project's setting says"],
      ["ask", "Wait for my word"],
      ["wait", "Go on when it opens"],
      ["handover", "Go on with another provider"],
      ["stop", "End"],
    ],
    "",
  );
  const account = h("select");
  const whose = field("account", "Whose login", account);
  whose.hidden = true;
  const schedule = h("input", { autocomplete: "off", placeholder: "0 3 * * 1-5" });
  const skills = choices("skills", "Skills");
  const integrations = choices("integrations", "Integrations");
  const rest = h("p.fault", { role: "alert" });
  const go = h("button.primary", { type: "submit" }, "Start");
  const form = h(
    "form",
    { method: "dialog", noValidate: true },
    field("prompt", "Task", prompt),
    h(
      "div.two",
      field("role", "Role", role, "A word such as backend, frontend, planner, security"),
      field("name", "Name", name, "Left empty: role and number"),
    ),
    h("div.two", field("provider", "Provider", provider), field("model", "Model", model)),
    h(
      "div.two",
      field("scope", "Files it owns", scope, "Globs, separated by commas"),
      field("permission", "Permission", permission),
    ),
    h(
      "details",
      h("summary", "More"),
      h("div.two", field("workingDir", "Folder", workingDir), field("effort", "Effort", effort)),
      h(
        "div.two",
        field("isolation", "Where it works", isolation),
        field("schedule", "Repeat on a schedule", schedule, "A cron expression; empty: only now"),
      ),
      field("onLimit", "When its usage limit is reached", onLimit),
      whose,
      skills.el,
      integrations.el,
    ),
    rest,
    h("div.actions", h("button", { onclick: () => el.close() }, "Cancel"), go),
  );
  const el = dialog("New agent", form, { class: "spawn" });
  prompt.focus();

  form.onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    const body = {
      role: role.value.trim(),
      prompt: prompt.value,
      scope: lines(scope.value),
      provider: provider.value,
      model: model.value,
      permission: permission.value,
      effort: effort.value,
      isolation: isolation.value,
      skills: skills.chosen(),
      integrations: integrations.chosen(),
    };
    if (onLimit.value) body.onLimit = onLimit.value;
    if (account.value) body.account = account.value;
    if (schedule.value.trim()) body.schedule = schedule.value.trim();
    if (name.value.trim()) body.name = name.value.trim();
    if (workingDir.value.trim()) body.workingDir = workingDir.value.trim();
    if (given.teamId) body.teamId = given.teamId;
    try {
      const agent = await post("/api/agents", body);
      el.close();
      toast(`${agent.name} has started`);
      location.hash = `#/agent/${agent.id}`;
    } catch (error) {
      fill(rest, faults(form, error).join("; "));
      form.querySelector("details").open ||= error.errors?.some((fault) =>
        /workingDir|effort|isolation|schedule|onLimit|account|skills|integrations/.test(fault.field),
      );
    } finally {
      go.disabled = false;
    }
  };
  form.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  };
  get("/api/skills/installed").then(({ skills: list }) => skills.offer(list), () => {});
  get("/api/integrations").then(
    (answer) => integrations.offer((answer.integrations ?? answer).filter((one) => one.installed)),
    () => {},
  );
  await offer(provider, model, rest, given);
  offerLogins(provider, account, whose);
}

/** Check boxes for what is installed; hidden while there is nothing to choose. */
function choices(name, label) {
  const list = h("div.choices");
  const fault = h("p.fault");
  const el = h("fieldset.field", { hidden: true }, h("legend", label), list, fault);
  el.dataset.field = name;
  return {
    el,
    offer(all) {
      el.hidden = !all.length;
      const box = (one) => h("label", h("input", { type: "checkbox", name, value: one.id }), " ", one.name ?? one.id);
      fill(list, ...all.map(box));
    },
    chosen: () => [...list.querySelectorAll("input:checked")].map((box) => box.value),
  };
}

/** The accounts of the chosen provider, where there are any. */
function offerLogins(provider, account, whose) {
  get("/api/accounts").then(
    ({ accounts }) => {
      const choose = () => {
        const own = accounts.filter((one) => one.enabled && one.provider === provider.value);
        whose.hidden = own.length === 0;
        fill(
          account,
          h("option", { value: "" }, "The usual one"),
          own.length > 0 && h("option", { value: "auto" }, "The one with the most room"),
          ...own.map((one) => h("option", { value: one.name }, one.label ? `${one.name} · ${one.label}` : one.name)),
        );
      };
      provider.addEventListener("change", choose);
      choose();
    },
    () => {},
  );
}

async function offer(provider, model, rest, given) {
  try {
    const [providers, config] = await Promise.all([get("/api/providers"), get("/api/config")]);
    const installed = providers.filter((one) => one.installed);
    const wanted = installed.find((one) => one.id === (given.provider ?? config.defaultProvider)) ?? installed[0];
    fill(
      provider,
      ...providers.map((one) =>
        h(
          "option",
          { value: one.id, disabled: !one.installed, selected: one === wanted },
          one.installed ? one.name : `${one.name} (not installed)`,
        ),
      ),
    );
    const models = () => {
      const chosen = providers.find((one) => one.id === provider.value);
      fill(
        model,
        h("option", { value: "" }, "The program's own"),
        h("option", { value: "auto" }, "The cheapest that fits the task"),
        ...(chosen?.models ?? []).map((one) => h("option", { value: one.id }, `${one.name} · ${one.tier}`)),
      );
    };
    provider.onchange = models;
    models();
    model.value = given.model ?? "";
    if (model.selectedIndex < 0) model.append(h("option", { value: given.model, selected: true }, given.model));
  } catch (error) {
    rest.textContent = error.message;
  }
}
