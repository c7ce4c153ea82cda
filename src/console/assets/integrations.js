// Tools of other services: catalogue, installation, credentials, tools.

import { button, confirm, dialog, empty, field, fill, formOf, h, head, plural, table, toast, unavailable } from "./dom.js";
import { at, del, get, post } from "./api.js";

const WORKING_MS = 2000;
/** How one is let in where no key is stored here. */
const SIGN_IN = { "google-autoauth": "no key here: its own program signs in to Google" };

export default function integrations(view) {
  const filter = h("input.filter", { type: "search", placeholder: "Filter", ariaLabel: "Filter integrations" });
  const body = h("div");
  view.append(
    head("Integrations", "Tools of other services for all agents. What changes something outside waits for your approval first.", filter),
    body,
  );
  let all = [];
  const keys = (one) => {
    const inputs = one.env.map((env) => [
      env,
      h("input", { type: "password", autocomplete: "off", placeholder: env.set ? "stored; write to replace" : "" }),
    ]);
    const form = formOf(
      "Store",
      submit,
      [inputs.map(([env, input]) => field(env.key, `${env.key}${env.required ? "" : " (optional)"}`, input))],
      {},
      one.oauth &&
        button("Sign in with the browser", async () => {
          const answer = await post(at`/api/integrations/${one.id}/oauth/start`);
          const url = answer.url ?? answer.authorizeUrl;
          open(url, "_blank", "noopener");
        }),
    );
    const el = dialog(`Credentials of ${one.name}`, form);
    async function submit() {
      for (const [env, input] of inputs)
        if (input.value) await post(at`/api/integrations/${one.id}/credentials`, { key: env.key, value: input.value });
      el.close();
      await load();
    }
  };
  const tools = async (one) => {
    const answer = await get(at`/api/integrations/${one.id}/tools`);
    dialog(
      `Tools of ${one.name}`,
      h(
        "ul.rows",
        answer.tools.map((tool) =>
          h(
            "li",
            h(
              "div",
              h("strong", tool.name),
              " ",
              one.gatedTools.includes(tool.name) && h("span.tag", "needs approval"),
              h("p.muted", tool.description ?? ""),
            ),
          ),
        ),
      ),
    );
  };
  /** What it needs before it works, and what runs for it. */
  const needs = (one) => {
    const keys = one.env.filter((env) => env.required).map((env) => env.key);
    const runs = one.url ?? [one.command, ...(one.args ?? [])].filter(Boolean).join(" ");
    const words = [keys.length > 0 && `Needs ${keys.join(", ")}`, runs && `${one.url ? "Asks" : "Runs"} ${runs}`];
    const told = words.filter(Boolean).join(" · ");
    return told && h("p.hint.clamp", { title: told }, told);
  };
  const about = (one) => {
    const keys = one.env.map((env) => `${env.key}${env.required ? "" : " (optional)"}: ${env.set ? "stored" : "not stored"}`);
    const runs = one.url ?? [one.command, ...(one.args ?? [])].filter(Boolean).join(" ");
    const package_ = one.command === "npx" ? `${runs}${one.version ? `, version ${one.version}` : ""}` : runs;
    const facts = [
      ["Category", one.category],
      [one.url ? "Asks" : "Runs", package_],
      ["Needs", keys.length ? keys : (SIGN_IN[one.authType] ?? "no key")],
      one.oauth && ["Signs in", `with the browser, at ${new URL(one.oauth.authorizeUrl).host}`],
      ["Asks first", one.gatedTools.length ? one.gatedTools : "for nothing: all of its tools run at once"],
      ["State", one.installed ? one.status : "not installed"],
      one.protocolVersion && ["Protocol", one.protocolVersion],
      one.lastError && ["Last error", one.lastError],
    ];
    dialog(
      one.name,
      h(
        "div.reading",
        { tabIndex: 0, role: "region", ariaLabel: `About ${one.name}` },
        one.description && h("p", one.description),
        table(
          "What it is, runs and needs",
          [],
          facts.filter(Boolean).map(([what, told]) => [h("strong", what), [told].flat().map((line) => h("div", line))]),
        ),
        h(
          "p.hint",
          "Its server runs on this machine with your permissions. Its tools are for the agents to which it is attached.",
        ),
      ),
    );
  };
  const card = (one) => {
    const missing = one.env.filter((env) => env.required && !env.set).length;
    const state = one.failed
      ? ["failed", "failed"]
      : one.running
        ? ["running", "running"]
        : one.installing
          ? ["waiting", "installing"]
          : one.installed
            ? one.configured
              ? ["completed", "ready"]
              : ["waiting", `${plural(missing, "key")} missing`]
            : null;
    return h(
      "article.card",
      h(
        "div.card-head",
        h("strong", one.name),
        h("span.tag", one.category),
        state && h("span", { class: `status ${state[0]} right` }, state[1]),
      ),
      one.description && h("p.clamp", { title: one.description }, one.description),
      one.lastError && h("p.fault.clamp", one.lastError),
      needs(one),
      one.gatedTools.length > 0 && h("p.hint", `Asks first: ${one.gatedTools.join(", ")}`),
      h(
        "div.actions",
        button("About", () => about(one), { ariaLabel: `About ${one.name}` }),
        one.installed
          ? [
              h(
                "button",
                {
                  ariaLabel: `Remove ${one.name}`,
                  onclick: () =>
                    confirm(`Remove ${one.name}?`, "Its credentials are forgotten too.", "Remove", async () => {
                      await del(at`/api/integrations/${one.id}`);
                      await load();
                    }),
                },
                "Remove",
              ),
              (one.env.length > 0 || one.oauth) &&
                h("button", { ariaLabel: `Credentials of ${one.name}`, onclick: () => keys(one) }, "Credentials"),
              button("Tools", () => tools(one), { ariaLabel: `Tools of ${one.name}` }),
            ]
          : button(
              one.installing ? "Installing" : "Install",
              async (el) => {
                el.textContent = "Installing";
                await post(at`/api/integrations/${one.id}/install`);
                toast(`${one.name} is installed`);
                await load();
              },
              { class: "primary", ariaLabel: `Install ${one.name}` },
            ),
      ),
    );
  };
  const draw = () => {
    const words = filter.value.trim().toLowerCase();
    const shown = all.filter(
      (one) => !words || `${one.name} ${one.id} ${one.category} ${one.description ?? ""}`.toLowerCase().includes(words),
    );
    const mine = shown.filter((one) => one.installed || one.installing);
    const rest = shown.filter((one) => !one.installed && !one.installing);
    fill(
      body,
      mine.length > 0 && [h("h2", "Installed"), h("div.shelf", mine.map(card))],
      rest.length > 0 && [h("h2", "Catalogue"), h("div.shelf", rest.map(card))],
      !shown.length && empty("None is called that", "Clear the filter to see all."),
    );
  };
  let timer = 0;
  const load = async () => {
    const answer = await get("/api/integrations");
    all = answer.integrations ?? answer;
    draw();
    clearTimeout(timer);
    if (all.some((one) => one.installing)) timer = setTimeout(() => load().catch(() => {}), WORKING_MS);
  };
  filter.oninput = draw;
  load().catch(unavailable(body));
  return { keys: { "/": () => filter.focus() }, stop: () => clearTimeout(timer) };
}
