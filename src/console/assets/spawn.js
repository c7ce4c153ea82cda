// The dialog that starts an agent.

import { dialog, faults, field, fill, h, keep, kept, plural, select, toast } from "./dom.js";
import { get, post } from "./api.js";

/** Where this browser keeps a person's presets. */
const PRESETS = "svc-presets";
const PRESETS_MAX = 20;
/** What is always there to begin with. */
const GIVEN = [
  {
    label: "Mend a fault",
    role: "fixer",
    prompt: "This is wrong: \n\nFirst write a test that shows it, and see it fail. Then mend it, and run the tests. Change nothing else.",
  },
  {
    label: "Review the last changes",
    role: "reviewer",
    prompt: "Read what has changed since the last commit on the main branch. Change nothing. Name what is wrong by file and line, the worst first.",
  },
  {
    label: "Write missing tests",
    role: "tester",
    prompt: "Write tests for what has none in: \n\nEach names the promise it holds and was seen to fail. Change no other code.",
  },
];

function saved() {
  try {
    const list = JSON.parse(kept(PRESETS) || "[]");
    return Array.isArray(list) ? list.filter((one) => typeof one?.label === "string") : [];
  } catch {
    return [];
  }
}

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
  const compared = choices("compared", "Start it once with each of these models, each in a worktree of its own, and compare");
  const integrations = choices("integrations", "Integrations");
  const rest = h("p.fault", { role: "alert" });
  const go = h("button.primary", { type: "submit" }, "Start");
  const presets = presetsOf(
    () => ({
      role: role.value.trim(),
      prompt: prompt.value,
      scope: lines(scope.value),
      provider: provider.value,
      model: model.value,
      permission: permission.value,
      effort: effort.value,
      isolation: isolation.value,
    }),
    (one) => {
      role.value = one.role ?? "";
      prompt.value = one.prompt ?? "";
      scope.value = (one.scope ?? []).join(", ");
      permission.value = one.permission ?? "auto";
      effort.value = one.effort ?? "medium";
      isolation.value = one.isolation ?? "shared";
      if (one.provider && [...provider.options].some(({ value, disabled }) => value === one.provider && !disabled)) {
        provider.value = one.provider;
        provider.dispatchEvent(new Event("change"));
      }
      if (one.model !== undefined) model.value = one.model;
      if (model.selectedIndex < 0) model.value = "";
      prompt.focus();
    },
  );
  const form = h(
    "form",
    { method: "dialog", noValidate: true },
    presets.el,
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
      compared.el,
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
    const models = compared.chosen();
    try {
      if (models.length > 1) return await compare(body, models, el);
      if (models.length) body.model = models[0];
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
  await offer(provider, model, rest, given, compared);
  offerLogins(provider, account, whose);
}

/** One agent for each model, each in a worktree of its own, and then the page that has them side by side. */
async function compare(wish, models, el) {
  const started = [];
  try {
    for (const model of models) {
      const name = wish.name && `${wish.name}-${started.length + 1}`;
      started.push(await post("/api/agents", { ...wish, model, name, isolation: "worktree" }));
    }
  } catch (error) {
    if (!started.length) throw error;
    toast(`${plural(started.length, "agent")} of ${models.length} started: ${error.message}`, "bad");
  }
  el.close();
  location.hash = `#/compare/${started.map(({ id }) => id).join(",")}`;
}

/** The choice of a preset, and how one is kept and forgotten. `read` tells what stands in the form, `write` fills it. */
function presetsOf(read, write) {
  const choice = h("select", { ariaLabel: "Begin with" });
  const name = h("input", { ariaLabel: "Name of the preset", placeholder: "Name", hidden: true, maxLength: 60 });
  const draw = (chosen = "") => {
    const group = (label, list, mark) =>
      list.length > 0 && h("optgroup", { label }, list.map((one, at) => h("option", { value: mark + at }, one.label)));
    fill(choice, h("option", { value: "" }, "Begin with a preset…"), group("Always there", GIVEN, "g"), group("Yours, in this browser", saved(), "s"));
    choice.value = chosen;
    forget.hidden = !choice.value.startsWith("s");
  };
  const store = (list) => keep(PRESETS, JSON.stringify(list));
  const keeps = h(
    "button",
    {
      onclick: () => {
        if (name.hidden) {
          name.hidden = false;
          return name.focus();
        }
        const label = name.value.trim();
        if (!label) return name.focus();
        const others = saved().filter((one) => one.label !== label);
        if (others.length >= PRESETS_MAX) return toast(`${PRESETS_MAX} presets are kept at most; forget one first`, "bad");
        store([...others, { label, ...read() }]);
        name.value = "";
        name.hidden = true;
        draw(`s${others.length}`);
        return toast(`${label} is kept in this browser`);
      },
    },
    "Keep as a preset",
  );
  const forget = h("button", {
    onclick: () => {
      store(saved().filter((_, at) => `s${at}` !== choice.value));
      draw();
      choice.focus();
    },
  }, "Forget it");
  name.onkeydown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    keeps.click();
  };
  choice.onchange = () => {
    const [list, at] = [choice.value[0] === "g" ? GIVEN : saved(), Number(choice.value.slice(1))];
    forget.hidden = !choice.value.startsWith("s");
    if (choice.value) write(list[at]);
  };
  draw();
  return { el: h("div.presets", choice, name, keeps, forget) };
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

async function offer(provider, model, rest, given, compared) {
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
      compared.offer(chosen?.models ?? []);
    };
    provider.onchange = models;
    models();
    model.value = given.model ?? "";
    if (model.selectedIndex < 0) model.append(h("option", { value: given.model, selected: true }, given.model));
  } catch (error) {
    rest.textContent = error.message;
  }
}
