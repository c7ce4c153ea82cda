// The skills marketplace: search, install, rate.

import { button, empty, fill, h, head, select, short, toast } from "./dom.js";
import { at, del, get, post } from "./api.js";

export default function skills(view) {
  const filter = h("input", {
    type: "search",
    class: "filter",
    placeholder: "Search skills",
    "aria-label": "Search skills",
  });
  const note = h("span");
  const body = h("div");
  view.append(head("Skills", note, filter), body);
  let installed = new Map();
  const stars = (one) => {
    const el = select(
      [
        ["", "Rate"],
        ["5", "★★★★★"],
        ["4", "★★★★"],
        ["3", "★★★"],
        ["2", "★★"],
        ["1", "★"],
      ],
      "",
    );
    el.setAttribute("aria-label", `Rate ${one.name}`);
    el.className = "rate";
    el.onchange = async () => {
      try {
        if (el.value) await post(at`/api/skills/${one.id}/rate`, { rating: Number(el.value) });
        toast("Thank you");
      } catch (error) {
        toast(error.message, "bad");
      }
    };
    return el;
  };
  const card = (one) => {
    const mine = installed.get(one.id);
    const rating = one.rating?.average ?? one.ratingAverage ?? one.rating;
    const update = mine && mine.version && one.version && mine.version !== one.version;
    return h(
      "article",
      { class: "card" },
      h(
        "div",
        { class: "card-head" },
        h("strong", {}, one.name ?? one.id),
        one.category && h("span", { class: "tag" }, one.category),
        h(
          "span",
          { class: "muted right" },
          typeof rating === "number" && rating > 0 ? `★ ${rating.toFixed(1)}` : "",
          one.installs ? ` · ${short(one.installs)} installs` : "",
        ),
      ),
      h("p", { class: "clamp" }, one.description ?? ""),
      h(
        "p",
        { class: "hint" },
        [typeof one.author === "string" ? one.author : one.author?.name, one.version]
          .filter(Boolean)
          .join(" · "),
      ),
      h(
        "div",
        { class: "actions" },
        mine
          ? [
              stars(one),
              button(
                "Remove",
                async () => {
                  await del(at`/api/skills/${one.id}`);
                  toast(`${one.name} is removed`);
                  await load();
                },
                { "aria-label": `Remove ${one.name}` },
              ),
              update &&
                button(
                  "Update",
                  async () => {
                    await post(at`/api/skills/${one.id}/update`);
                    await load();
                  },
                  { class: "primary" },
                ),
            ]
          : button(
              "Install",
              async () => {
                await post(at`/api/skills/${one.id}/install`);
                toast(`${one.name} is installed`);
                await load();
              },
              { class: "primary", "aria-label": `Install ${one.name}` },
            ),
      ),
    );
  };
  let run = 0;
  const load = async () => {
    const mine = (run += 1);
    const words = filter.value.trim();
    const [answer, have] = await Promise.all([
      get(`/api/skills${words ? `?search=${encodeURIComponent(words)}` : ""}`),
      get("/api/skills/installed"),
    ]);
    if (mine !== run) return;
    installed = new Map((have.skills ?? have.installed ?? have).map((one) => [one.id, one]));
    const low = words.toLowerCase();
    const all = (answer.skills ?? answer).filter(
      (one) =>
        !low ||
        `${one.name} ${one.id} ${one.description ?? ""} ${(one.tags ?? []).join(" ")}`
          .toLowerCase()
          .includes(low),
    );
    fill(
      note,
      answer.source === "bundled"
        ? "The marketplace cannot be reached: these skills come with svc."
        : "From the marketplace. An installed skill is attached to agents by name.",
    );
    const own = all.filter((one) => installed.has(one.id));
    const rest = all.filter((one) => !installed.has(one.id));
    fill(
      body,
      own.length > 0 && [h("h2", {}, "Installed"), h("div", { class: "shelf" }, own.map(card))],
      rest.length > 0 && [h("h2", {}, "To be had"), h("div", { class: "shelf" }, rest.map(card))],
      !all.length && empty("Nothing found", "Try other words."),
    );
  };
  const safe = () => load().catch((error) => fill(body, empty("Not to be had", error.message)));
  let wait = 0;
  filter.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(safe, 250);
  });
  safe();
  return {
    keys: { "/": () => filter.focus() },
    stop() {
      clearTimeout(wait);
      run += 1;
    },
  };
}
