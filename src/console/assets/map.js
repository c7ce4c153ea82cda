// What the journalist wrote: the project map, the decisions; and what the indexer knows.

import { ago, button, empty, exact, fill, h, head, table, toast, unavailable } from "./dom.js";
import { at, get, post } from "./api.js";
import { on } from "./store.js";
import { prose } from "./prose.js";

const DOCUMENTS = ["SVC_PROJECT_MAP.md", "SVC_DECISIONS.md"];

export default function map(view) {
  const line = h("span");
  const pages = h("div.columns");
  const index = h("section.panel");
  const write = button(
    "Write it now",
    async () => {
      const answer = await post("/api/journalist/cycle");
      toast(answer.changed ? "The map is up to date" : "Nothing new happened");
      await load();
    },
    { class: "primary" },
  );
  view.append(head("Project map", line, write), pages, index);
  const load = async () => {
    const told = await get("/api/journalist");
    fill(
      line,
      told.lastCycle
        ? ["Written ", ago(told.lastCycle, " ago"), `, every ${told.interval} s while agents work. ${told.lastSynthesis ?? ""}`]
        : "Written while agents work, from what they do.",
    );
    const found = await Promise.all(
      DOCUMENTS.filter((path) => told.documentsGenerated.includes(path)).map((path) =>
        get(at`/api/files/read?path=${path}`).catch(() => null),
      ),
    );
    fill(
      pages,
      ...found
        .filter(Boolean)
        .map((file) => h("article.prose.prose-page", { ariaLabel: file.path }, prose(file.content ?? "", { bare: true }))),
      !found.some(Boolean) && empty("No map yet", "It is written once agents have worked, or at once with the button above."),
    );
    const [status, spaces] = await Promise.all([get("/api/indexer"), get("/api/indexer/workspaces")]);
    fill(
      index,
      h("h2", "Codebase index"),
      h(
        "p.muted",
        status.indexed
          ? [
              `${exact(status.stats.totalFiles)} files in ${exact(status.stats.totalDirs)} folders, read `,
              ago(status.lastIndexTime, " ago"),
              ". ",
            ]
          : "It is being read. ",
        button("Scan again", async () => {
          await post("/api/indexer/rescan");
          await load();
        }),
      ),
      spaces.workspaces.length > 0 &&
        table(
          "Workspaces",
          ["Path", "Name", "Kind", "#Files", "#Folders"],
          spaces.workspaces.map((one) => [one.path, one.name, one.type, exact(one.files), exact(one.dirs)]),
        ),
    );
  };
  const safe = () => load().catch(unavailable(pages));
  safe();
  const stops = [on("journalist:cycle", safe), on("reconnect", safe)];
  return {
    stop() {
      for (const stop of stops) stop();
    },
  };
}
