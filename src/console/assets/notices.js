// The browser's own notices of what waits, where a person has asked for them by a click: one for each thing,
// none while one looks at a page that has it, in whichever tab, and gone when it waits no more.

import { button, byId, fill, h, keep, kept, plural, soon, toast, visibleLine } from "./dom.js";
import { attention, on, store } from "./store.js";
import { isAway } from "./away.js";

const KEPT = "svc-notices";
const BUDGET = "budget:";
/** At once; of more than these one notice says how many. */
const MOST = 4;
const BODY_CHARS = 200;
const LOOK_MS = 300;
/** A tab that has a thing before a person's eyes has so long to say it to the others. */
const OTHERS_MS = 500;
const MAX_SEEN = 500;

/** Notices that stand, by what they are of. */
const shown = new Map();
/** What has been told, or waited already when the page was opened; nothing before that is known. */
let known = null;
const heard = new Set();
/** What a person has before the eyes in another tab. */
const seen = new Set();
const tabs = new BroadcastChannel(KEPT);
tabs.onmessage = ({ data }) => {
  if (seen.size >= MAX_SEEN) seen.clear();
  seen.add(data);
};
let isOn = kept(KEPT) === "on";

const can = () => typeof Notification === "function" && isSecureContext;
const may = () => can() && isOn && Notification.permission === "granted";

function decide(value) {
  isOn = value;
  keep(KEPT, value ? "on" : "off");
}

const keyOf = (item) => `${item.kind}:${item.key}:${item.kind === "approval" ? "" : item.since}`;

/** The pages on which a thing stands. */
function pagesOf({ kind, key, approval }) {
  if (kind === "storage") return [""];
  return kind === "approval" ? ["", "approvals", `agent/${approval.agentId}`] : ["", `agent/${key}`];
}

/** Whether a person has one of these pages before the eyes. */
function looksAt(pages) {
  if (document.hidden || !document.hasFocus()) return false;
  const page = location.hash.replace(/^#\/?/, "");
  return pages.some((one) => page === one || (one && page.startsWith(`${one}/`)));
}

function wordsOf({ kind, approval, agent, text }) {
  if (kind === "approval") return [`${approval.agentName} asks`, approval.action.description];
  if (kind === "storage") return ["The disk cannot be written", text];
  const what = { crashed: "crashed", interrupted: "was cut off", stalled: "is silent" }[kind];
  return [`${agent.name} ${what}`, agent.statusReason];
}

function tell(key, title, body, page) {
  const project = byId("project").textContent;
  let notice;
  try {
    notice = new Notification(visibleLine(`${title} · ${project}`), {
      body: visibleLine(body ?? "").slice(0, BODY_CHARS),
      // The browser shows one of a tag, whichever tab tells it; the door has all projects at one address.
      tag: `svc-${project}-${key}`,
      icon: "console/icon.svg",
    });
  } catch {
    // Browsers of phones let only service workers tell; there the title counts.
    return;
  }
  notice.onclick = () => {
    window.focus();
    location.hash = `#/${page}`;
    notice.close();
  };
  shown.set(key, notice);
}

function look() {
  if (isAway() || heard.size < 2) return;
  const items = new Map(attention().map((item) => [keyOf(item), item]));
  for (const [key, notice] of shown) {
    if (items.has(key) || (key === "many" && items.size) || key.startsWith(BUDGET)) continue;
    notice.close();
    shown.delete(key);
  }
  // What waited before this page was opened is said to the other tabs, and not told.
  const tells = known && may();
  const fresh = [...items].filter(([key]) => !known?.has(key));
  known = new Set(items.keys());
  const unseen = fresh.filter(([, item]) => !looksAt(pagesOf(item)));
  for (const one of fresh) if (!unseen.includes(one)) tabs.postMessage(one[0]);
  if (tells && unseen.length) setTimeout(tellAll, OTHERS_MS, unseen);
}

/** Tells what still waits, and nobody looks at in another tab. */
function tellAll(items) {
  const left = items.filter(([key]) => known.has(key) && !seen.has(key));
  if (left.length > MOST) return tell("many", `${plural(left.length, "thing")} wait`, "", "");
  for (const [key, item] of left) {
    const [title, body] = wordsOf(item);
    tell(key, title, body, item.kind === "approval" ? "approvals" : pagesOf(item).at(-1));
  }
}

/** So much of a day's budget is spent: the daemon says it once at 80 % and once at all of it. It waits for nothing, and stays. */
function tellSpent({ ts, percent, budgetUsd, text }) {
  const key = `${BUDGET}${percent}:${budgetUsd}:${ts.slice(0, 10)}`;
  if (looksAt(["tokens"])) return tabs.postMessage(key);
  const title = percent < 100 ? `${percent} % of a day's budget is spent` : "A day's budget is spent";
  if (may()) setTimeout(() => seen.has(key) || shown.has(key) || tell(key, title, text, "tokens"), OTHERS_MS);
}

/** Looks at what waits whenever that changes. */
export function watchWaiting() {
  const later = soon(look, LOOK_MS);
  for (const type of ["agents", "approvals"])
    on(type, () => {
      if (type === "approvals" || store.agents.size || store.connected) heard.add(type);
      later();
    });
  on("health", later);
  on("budget:warning", tellSpent);
}

/** The person's choice, with what the browser says to it. */
export function noticesPanel() {
  const line = h("p", { role: "status" });
  const choose = button("", async () => {
    if (may()) decide(false);
    else {
      // Only a click may ask, and this is one.
      const answer = await Notification.requestPermission();
      decide(answer === "granted");
      // What waits already is on the page that one has before the eyes.
      known = known && new Set(attention().map(keyOf));
      if (answer !== "granted") toast("The browser refuses: allow notices for this address in its own settings", "bad");
    }
    draw();
  });
  const draw = () => {
    choose.textContent = may() ? "No more notices" : "Tell me";
    choose.hidden = !can();
    fill(
      line,
      may()
        ? "This browser tells you when something waits, and when 80 % and all of a day's budget is spent, while a page of the console is open anywhere in it, and not while you look at it."
        : can()
          ? "This browser can tell you when something waits for you."
          : "This browser tells nothing to pages by plain HTTP from afar: come by localhost, a tunnel or HTTPS.",
    );
  };
  draw();
  return h("section.panel.settings", h("h2", "Be told"), line, h("div.actions", choose));
}
