// Keys, encrypted at rest, shown masked.

import { ago, confirm, field, fill, formOf, h, head, table, toast, unavailable } from "./dom.js";
import { at, del, get, post } from "./api.js";

export default function credentials(view) {
  const list = h("section.panel");
  const name = h("select");
  const key = h("input", { type: "password", autocomplete: "off" });
  /** What a key can be for, by its name in the vault. */
  let places = new Map();
  const form = formOf(
    "Store",
    submit,
    [
      h("div.two", field("provider", "For", name), field("key", "Key", key)),
      h(
        "p.hint",
        "Tokens of chats are stored with their ",
        h("a", { href: "#/gateways" }, "gateway"),
        ", keys of public APIs with their ",
        h("a", { href: "#/toys" }, "toy"),
        ".",
      ),
    ],
    { class: "panel" },
  );
  async function submit() {
    const { label, store } = places.get(name.value) ?? nowhere;
    await store(key.value);
    toast(`The key for ${label} is stored`);
    key.value = "";
    await load();
  }
  view.append(
    head("Credentials", "Encrypted on this machine with AES-256-GCM. A key is handed to the agents of its provider and shown to nobody."),
    form,
    list,
  );
  const load = async () => {
    const keys = await get("/api/credentials");
    fill(
      list,
      h("h2", "Stored"),
      keys.length
        ? table(
            "Stored keys",
            ["For", "Key", "Since", ""],
            keys.map((one) => [
              one.provider,
              h("code", one.masked),
              ago(one.setAt),
              h(
                "button",
                {
                  ariaLabel: `Forget the key for ${one.provider}`,
                  onclick: () =>
                    confirm(`Forget the key for ${one.provider}?`, "Agents that start from now on do not get it.", "Forget", async () => {
                      await del(at`/api/credentials/${one.provider}`);
                      await load();
                    }),
                },
                "Forget",
              ),
            ]),
          )
        : h("p.hint", "No keys are stored. Agent programs with a login of their own need none."),
    );
  };
  load().catch(unavailable(list));
  const offer = ([providers, catalogue, { accounts }]) => {
    places = placesOf(providers, catalogue.integrations ?? catalogue, accounts);
    const groups = [...new Set([...places.values()].map((place) => place.group))];
    fill(
      name,
      groups.map((group) =>
        h(
          "optgroup",
          { label: group },
          [...places]
            .filter(([, place]) => place.group === group)
            .map(([id, { label, variable }]) => h("option", { value: id }, `${label} · ${variable}`)),
        ),
      ),
    );
  };
  Promise.all([get("/api/providers"), get("/api/integrations"), get("/api/accounts")])
    .then(offer)
    .catch((error) => fill(rest, error.message));
}

const nowhere = {
  store() {
    throw new Error("Nothing here takes a key; install an agent program or an integration first");
  },
};

/** Agent programs that take a key, accounts of theirs, and the variables of installed integrations. */
function placesOf(providers, integrations, accounts) {
  const ofProgram = (one) => [
    one.id,
    {
      group: "Agent programs",
      label: one.name,
      variable: one.envKey,
      store: (key) => post("/api/credentials", { provider: one.id, key }),
    },
  ];
  const ofAccount = (one) => [
    one.keyName,
    {
      group: "Accounts",
      label: `${one.label ?? one.name} of ${one.provider}`,
      variable: providers.find((known) => known.id === one.provider)?.envKey ?? "",
      store: (key) => post("/api/credentials", { provider: one.keyName, key }),
    },
  ];
  const ofIntegration = (one) =>
    one.env.map((env) => [
      `integration/${one.id}/${env.key}`,
      {
        group: "Integrations",
        label: one.name,
        variable: env.key,
        store: (value) => post(at`/api/integrations/${one.id}/credentials`, { key: env.key, value }),
      },
    ]);
  return new Map([
    ...providers.filter((one) => one.envKey).map(ofProgram),
    ...accounts.map(ofAccount),
    ...integrations.filter((one) => one.installed).flatMap(ofIntegration),
  ]);
}
