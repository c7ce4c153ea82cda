// While the daemon does not answer, nothing on the page passes for the present: a banner says how old it is,
// the style sheets take the colour from what was alive, and what needs the daemon is off.

import { byId, code, fill, h, timeOf } from "./dom.js";
import { emit, on, store } from "./store.js";

let away = false;
let folder = "";

export const isAway = () => away;

/** A path as a shell takes it. */
const quoted = (path) => (/^[\w./~+-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

/** The project's folder, once it is known: where the daemon is to be started again. */
export function knowFolder(path) {
  folder = path;
}

function begin() {
  away = true;
  const asOf = timeOf(new Date(store.heard()).toISOString());
  document.documentElement.style.setProperty("--as-of", `"as of ${asOf}: "`);
  fill(
    byId("away"),
    h("strong", `As of ${asOf}, the daemon does not answer. `),
    "What you see may be out of date, and nothing can be done from here until it is back; then this page continues automatically. Start it with ",
    code(`svc start --background${folder ? ` --project ${quoted(folder)}` : ""}`),
  );
}

function end() {
  away = false;
  fill(byId("away"));
}

/** Watches the connection; `away` is told to whoever listens. */
export function watchConnection() {
  on("status", ({ word }) => {
    // A break of a moment is not worth a banner, and one that lasts ends only with an answer.
    if (word === (away ? "live" : "offline")) {
      if (away) end();
      else begin();
      document.body.classList.toggle("away", away);
      byId("away").hidden = !away;
      byId("hold").disabled = away;
      byId("new").disabled = away;
      emit("away");
    }
  });
}
