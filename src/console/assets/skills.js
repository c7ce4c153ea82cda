// The skills marketplace: search, install, rate.

import { button, confirm, dialog, empty, exact, fill, h, head, say, select, short, toast } from "./dom.js";
import { at, del, get, post } from "./api.js";
import { on } from "./store.js";
import { prose } from "./prose.js";

/** A pause in typing before the marketplace is asked. */
const TYPING_MS = 250;
const STARS = [5, 4, 3, 2, 1];

export default function skills(view) {
  const filter = h("input.filter", { type: "search", placeholder: "Search skills", ariaLabel: "Search skills" });
  const category = select([["", "All categories"]], "");
  category.ariaLabel = "Category";
  category.className = "filter narrow";
  const note = h("span");
  const body = h("div");
  view.append(head("Skills", note, filter, category), body);

  let round = 0;
  let drawn = "";
  let here = new Map();
  const load = async () => {
    const mine = (round += 1);
    const words = encodeURIComponent(filter.value.trim());
    const kind = encodeURIComponent(category.value);
    const [offered, installed] = await Promise.all([get(`/api/skills?search=${words}&category=${kind}`), get("/api/skills/installed")]);
    // An answer that was overtaken by a newer question is dropped.
    if (mine !== round) return;
    // What stands there already is left alone: somebody may be about to choose in it.
    const state = JSON.stringify([offered, installed]);
    if (state === drawn) return;
    drawn = state;
    here = new Map(installed.skills.map((one) => [one.id, one]));
    say(
      note,
      offered.source === "live"
        ? "Instructions that agents can be given. What is installed is attached to an agent when it is started."
        : "The marketplace cannot be reached; these skills come with svc.",
    );
    note.title = offered.why ?? "";
    drawCategories(offered.categories);
    const own = offered.skills.filter((one) => here.has(one.id));
    const rest = offered.skills.filter((one) => !here.has(one.id));
    fill(
      body,
      own.length > 0 && [h("h2", `Installed (${own.length})`), shelf(own)],
      rest.length > 0 && [h("h2", `On offer (${rest.length})`), shelf(rest)],
      !offered.total && empty("No skill matches", "Try other words, or all categories."),
    );
  };
  const drawCategories = (list) => {
    const chosen = category.value;
    const known = list.map(({ id, count }) => [id, `${id} (${count})`]);
    if (chosen && !list.some(({ id }) => id === chosen)) known.push([chosen, `${chosen} (0)`]);
    const options = [["", "All categories"], ...known];
    fill(category, ...options.map(([id, label]) => h("option", { value: id, selected: id === chosen }, label)));
  };
  const shelf = (list) =>
    h("div.shelf", list.map((one) => card(one, here.get(one.id), load)));

  const safe = () =>
    load().catch((error) => {
      drawn = "";
      fill(body, empty("Not available", error.message));
    });
  let typing = 0;
  filter.oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(safe, TYPING_MS);
  };
  category.onchange = safe;
  safe();
  const stops = [on("skill:installed", safe), on("skill:removed", safe), on("reconnect", safe)];
  return {
    keys: { "/": () => filter.focus() },
    stop() {
      clearTimeout(typing);
      round += 1;
      for (const stop of stops) stop();
    },
  };
}

function card(one, mine, load) {
  const count = exact(one.ratingCount);
  const rating = one.ratingCount
    ? h(
        "span.right.rating",
        { ariaLabel: `rated ${one.rating} of 5 by ${count}` },
        `★ ${one.rating.toFixed(1)}`,
        h("span.muted", ` (${count})`),
      )
    : h("span.right.muted", "not rated");
  const facts = [one.author, `version ${mine?.version ?? one.version}`, `${short(one.downloads)} installs`];
  return h(
    "article.card.plain.skill",
    h("div.card-head", h("h3", one.name), one.verified && h("span.tag", "verified"), rating),
    h("p.clamp", { title: one.description }, one.description),
    h("p.hint", facts.filter(Boolean).join(" · ")),
    mine && !mine.intact && h("p.fault", "Its file was changed; it is given to nobody until it is installed again."),
    mine?.usedBy.length > 0 && h("p.hint", `Attached to ${mine.usedBy.join(", ")}`),
    h("div.actions", read(one, mine), mine ? owned(one, mine, load) : install(one, load)),
  );
}

/** What an agent would be told, before one decides. */
function read(one, mine) {
  const work = async () => {
    const { content } = await get(at`/api/skills/${one.id}/content`);
    const from = mine?.intact ? "As it is installed here." : "As it would be installed.";
    // The lines above the text are its name and description again.
    const text = prose(content.replace(/^---\n[^]*?\n---\n/, ""), { top: 3, join: true, bare: true });
    dialog(
      one.name,
      h(
        "div.reading",
        { tabIndex: 0, role: "region", ariaLabel: "SKILL.md" },
        h("p.hint", `${from} ${exact(content.length)} characters of SKILL.md.`),
        h("p", one.description),
        text,
      ),
    );
  };
  return button("Read", work, { ariaLabel: `Read ${one.name}` });
}

function install(one, load) {
  const work = async () => {
    await post(at`/api/skills/${one.id}/install`);
    toast(`${one.name} is installed`);
    await load();
  };
  return button("Install", work, { class: "primary", ariaLabel: `Install ${one.name}` });
}

function owned(one, mine, load) {
  const update = async () => {
    await post(at`/api/skills/${one.id}/${mine.intact ? "update" : "install"}`);
    toast(`${one.name} is up to date`);
    await load();
  };
  const remove = () =>
    confirm(`Remove ${one.name}?`, "Agents that start from now on do not get it.", "Remove", async () => {
      await del(at`/api/skills/${one.id}`);
      toast(`${one.name} is removed`);
      await load();
    });
  const old = one.updateAvailable || !mine.intact;
  return [
    stars(one, load),
    h("button", { ariaLabel: `Remove ${one.name}`, onclick: remove }, "Remove"),
    old && button(mine.intact ? "Update" : "Repair", update, { class: "primary" }),
  ];
}

function stars(one, load) {
  const el = select([["", "Rate"], ...STARS.map((n) => [String(n), "★".repeat(n)])], "");
  el.ariaLabel = `Rate ${one.name}`;
  el.className = "rate";
  el.onchange = async () => {
    try {
      await post(at`/api/skills/${one.id}/rate`, { rating: Number(el.value) });
      toast(`Rated: ${one.name}`);
      await load();
    } catch (error) {
      toast(error.message, "bad");
    }
    el.value = "";
  };
  return el;
}
