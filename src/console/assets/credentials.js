// Keys, encrypted at rest, shown masked.

import { ago, confirm, empty, faults, field, fill, h, head, table, toast } from "./dom.js";
import { at, del, get, post } from "./api.js";

export default function credentials(view) {
  const list = h("section", { class: "panel" });
  const name = h("input", {
    type: "text",
    autocomplete: "off",
    placeholder: "ANTHROPIC_API_KEY or claude-code",
  });
  name.setAttribute("list", "known-keys");
  const known = h("datalist", { id: "known-keys" });
  const key = h("input", { type: "password", autocomplete: "off" });
  const rest = h("p", { class: "fault", role: "alert" });
  const form = h(
    "form",
    { noValidate: true, class: "panel" },
    h("div", { class: "two" }, field("provider", "For", name), field("key", "Key", key)),
    known,
    rest,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Store")),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await post("/api/credentials", { provider: name.value.trim(), key: key.value });
      toast(`The key for ${name.value.trim()} is stored`);
      name.value = "";
      key.value = "";
      faults(form, null);
      fill(rest, "");
      await load();
    } catch (error) {
      fill(rest, faults(form, error).join("; "));
    }
  });
  view.append(
    head(
      "Credentials",
      "Encrypted on this machine with AES-256-GCM. A key is handed to the agents of its provider and shown to nobody.",
    ),
    form,
    list,
  );
  const load = async () => {
    const keys = await get("/api/credentials");
    fill(
      list,
      h("h2", {}, "Stored"),
      keys.length
        ? table(
            "Stored keys",
            ["For", "Key", "Since", ""],
            keys.map((one) => [
              one.provider,
              h("code", {}, one.masked),
              ago(one.setAt),
              h(
                "button",
                {
                  type: "button",
                  "aria-label": `Forget the key for ${one.provider}`,
                  onclick: () =>
                    confirm(
                      `Forget the key for ${one.provider}?`,
                      "Agents that start from now on do not get it.",
                      "Forget",
                      async () => {
                        await del(at`/api/credentials/${one.provider}`);
                        await load();
                      },
                    ),
                },
                "Forget",
              ),
            ]),
          )
        : h(
            "p",
            { class: "hint" },
            "No keys are stored. Agent programs that are logged in by themselves need none.",
          ),
    );
  };
  load().catch((error) => fill(list, empty("Not to be had", error.message)));
  get("/api/providers").then(
    (providers) =>
      fill(
        known,
        ...providers.filter((one) => one.envKey).map((one) => h("option", { value: one.id }, one.envKey)),
      ),
    () => {},
  );
}
