// The configuration, with the fault of each field beside it.

import { confirm, field, fill, formOf, h, head, keep, panel, select, table, toast, unavailable } from "./dom.js";
import { get, patch, post } from "./api.js";
import { editorChoice } from "./editor.js";
import { noticesPanel } from "./notices.js";

const CHOICES = {
  autoRotation: [
    ["true", "Yes"],
    ["false", "No"],
  ],
  "journalist.mode": [
    ["deterministic", "From what agents did, without a model"],
    ["model", "With the cheapest model"],
  ],
  enforcement: [
    ["advisory", "Advise and ask"],
    ["kernel", "By the kernel (Linux)"],
  ],
};
const LABELS = {
  maxAgents: ["Agents at once", "Agents alive at the same time, at most"],
  rotationThreshold: ["Rotate at", "Share of the context, 0.05 to 1, to begin with; it adapts"],
  autoRotation: ["Rotate automatically", ""],
  qcThreshold: ["Quality control at", "Live agents at which quality control is announced"],
  journalistInterval: ["Map every", "Seconds between two cycles of the journalist"],
  "journalist.mode": ["Map is written", ""],
  defaultProvider: ["Default provider", "For agents that name none"],
  defaultModel: ["Default model", "auto chooses by the task"],
  "safety.tokenCeilingPerAgent": ["Tokens per agent", "A rotation is forced above"],
  "safety.dailyBudgetUsd": ["Dollars a day", "Empty: no limit"],
  "safety.roleMultipliers": ["Multipliers by role", "JSON: how many times the ceiling a role may use"],
  "skills.baseUrl": ["Skills marketplace", ""],
  "integrations.idleStopSeconds": ["Integrations stop after", "Seconds without a call"],
  "record.enabled": ["Flight recorder", "Takes effect with the next start"],
  "record.maxMegabytes": ["Recording", "MiB on disk at most; takes effect with the next start"],
  enforcement: ["Scopes are held", ""],
  host: ["Address", "Takes effect with the next start"],
  port: ["Port", "Takes effect with the next start"],
};

function flatten(value, prefix = "") {
  return Object.entries(value).flatMap(([key, inner]) => {
    const name = prefix + key;
    const leaf = name === "safety.roleMultipliers" || inner === null || typeof inner !== "object" || Array.isArray(inner);
    return leaf ? [[name, inner]] : flatten(inner, `${name}.`);
  });
}

function parse(was, text) {
  if (typeof was === "boolean") return text === "true";
  if (typeof was === "number" || was === null) {
    if (text.trim() === "") return null;
    return Number.isNaN(Number(text)) ? text : Number(text);
  }
  if (typeof was === "object") {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

export default function settings(view) {
  const body = h("div.settings");
  const about = h("section.panel.settings");
  view.append(
    head("Settings", "They are kept in this project's .svc/config.json and take effect at once unless a line says otherwise."),
    noticesPanel(),
    panel("Your editor", field("editor", "Open files in", editorChoice(keep), "This browser remembers it. It has to run on the daemon's machine, as the browser does.")),
    body,
    about,
  );
  const load = async () => {
    const [config, providers] = await Promise.all([get("/api/config"), get("/api/providers")]);
    // These stand in the person's own file alone.
    const values = flatten(config).filter(([name]) => !/^notify|AllUsd$/.test(name));
    values.sort((a, b) => order(a[0]) - order(b[0]));
    const inputs = new Map();
    const form = formOf(
      "Save",
      submit,
      values.map(([name, value]) => {
        const [label, hint] = LABELS[name] ?? [name, ""];
        const options =
          name === "defaultProvider"
            ? providers.map((one) => [one.id, one.installed ? one.name : `${one.name} (not installed)`])
            : CHOICES[name];
        const shown = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
        const input = options
          ? select(options, shown)
          : h("input", { value: shown, inputMode: typeof value === "number" ? "decimal" : "text" });
        inputs.set(name, [input, value, shown]);
        return field(name, label, input, hint);
      }),
      { class: "panel" },
      h("button", { onclick: load }, "Undo"),
    );
    async function submit() {
      const changes = {};
      for (const [name, [input, was, shown]] of inputs) {
        if (input.value === shown) continue;
        const path = name.split(".");
        const last = path.pop();
        let at = changes;
        for (const part of path) at = at[part] ??= {};
        at[last] = parse(was, input.value);
      }

      await patch("/api/config", changes);
      toast("Saved");
      await load();
    }
    fill(body, form);
  };
  const tell = async () => {
    const [status, health, providers] = await Promise.all([get("/api/status"), get("/api/health"), get("/api/providers")]);
    fill(
      about,
      h("h2", "This daemon"),
      table(
        "The daemon",
        ["", ""],
        [
          ["Version", status.version],
          ["Project", status.projectDir],
          ["Address", `${status.host}:${status.port}`],
          ["Process", status.pid],
          ["Health", health.status],
          ["Leaked processes", health.leaked],
          ["Storage", health.storageError ?? "well"],
        ],
      ),
      h("h2.list-head", "Providers"),
      table(
        "Providers",
        ["Provider", "Installed", "Version", "Key", "Install with"],
        providers.map((one) => [
          one.name,
          one.installed ? "yes" : "no",
          one.version ?? "",
          one.envKey ? (one.hasKey ? "set" : "none") : "not needed",
          one.installed ? "" : one.installCommand,
        ]),
      ),
      h(
        "div.actions",
        h(
          "button",
          {
            class: "danger",
            onclick: () =>
              confirm("Stop the daemon?", "All agents end with it. Start it again with: svc start", "Stop", () => post("/api/shutdown")),
          },
          "Stop the daemon",
        ),
      ),
    );
  };
  load().catch(unavailable(body));
  tell().catch(() => {});
}

const NAMES = Object.keys(LABELS);
const order = (name) => (NAMES.indexOf(name) < 0 ? NAMES.length : NAMES.indexOf(name));
