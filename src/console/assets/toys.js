// Public APIs to build something small with: a team and a planner are made for the chosen one.

import { button, dialog, field, fill, formOf, h, head, select, toast, unavailable } from "./dom.js";
import { at, get, post } from "./api.js";

export default function toys(view) {
  const shelf = h("div.shelf");
  const category = select([["", "All kinds"], "space", "weather", "finance", "fun", "maps", "data"], "");
  category.ariaLabel = "Kind";
  category.className = "filter";
  view.append(
    head("Toys", "Public APIs to play with. Launching one makes a team with a planner that designs what you choose.", category),
    shelf,
  );
  const launch = (toy) => {
    const key = h("input", { type: "password", autocomplete: "off" });
    const starter = select([["", "Let the planner ask"], ...toy.starters.map((text) => [text, text])], "");
    const form = formOf("Launch", submit, [
      h("p", toy.description),
      toy.auth !== "none" && field("apiKey", "API key", key, "Stored encrypted; never part of a prompt"),
      field("starterPrompt", "What to build", starter),
    ]);
    const el = dialog(toy.name, form);
    async function submit() {
      const body = {};
      if (key.value) body.apiKey = key.value;
      if (starter.value) body.starterPrompt = starter.value;

      const answer = await post(at`/api/toys/${toy.id}/launch`, body);
      el.close();
      toast(`Team ${answer.team.name} has a planner`);
      location.hash = `#/agent/${answer.agent.id}`;
    }
  };
  const load = async () => {
    const all = await get(`/api/toys${category.value ? `?category=${category.value}` : ""}`);
    fill(
      shelf,
      (all.toys ?? all).map((toy) =>
        h(
          "article.card",
          h("div.card-head", h("strong", toy.name), h("span.tag.right", toy.category)),
          h("p", toy.description),
          h(
            "div.actions",
            h("span.muted", `${toy.difficulty}${toy.auth === "none" ? ", no key needed" : ", needs a key"}`),
            button("Launch", async () => launch(toy), {
              class: "primary right",
              ariaLabel: `Launch ${toy.name}`,
            }),
          ),
        ),
      ),
    );
  };
  const safe = () => load().catch(unavailable(shelf));
  category.onchange = safe;
  safe();
}
