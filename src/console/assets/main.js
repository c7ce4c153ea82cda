// The shell: pages by hash, navigation, keys, theme, connection status.

import { byId, dialog, fill, h, keep, say, soon, tick, visibleLine } from "./dom.js";
import { get } from "./api.js";
import { isAway, knowFolder, watchConnection } from "./away.js";
import { attention, connect, emit, find, on, store } from "./store.js";
import { openPalette } from "./palette.js";
import { watchWaiting } from "./notices.js";
import { openSpawn } from "./spawn.js";

/** Every page: its word in the hash, its title, the module that draws it, the key after `g`. */
export const PAGES = [
  ["", "Agents", "home", "h"],
  ["approvals", "Approvals", "approvals", "a"],
  ["teams", "Teams and plans", "teams", "e"],
  ["schedules", "Schedules", "schedules", "s"],
  ["files", "Files", "files", "f"],
  ["locks", "Locks", "locks", "l"],
  ["sessions", "Your sessions", "sessions", "o"],
  ["tokens", "Tokens and cost", "tokens", "t"],
  ["memory", "Memory", "memory", "m"],
  ["map", "Project map", "map", "p"],
  ["audit", "Audit", "audit", "u"],
  ["replay", "Replay", "replay", "v"],
  ["integrations", "Integrations", "integrations", "i"],
  ["skills", "Skills", "skills", "k"],
  ["toys", "Toys", "toys", "y"],
  ["gateways", "Chat gateways", "gateways", "w"],
  ["credentials", "Credentials", "credentials", "c"],
  ["settings", "Settings", "settings", ","],
];

/** The badges are counted at most so often. */
const BADGES_MS = 250;

const view = byId("view");
const nav = byId("nav");
const menu = byId("menu");
const project = byId("project");
let pageTitle = "";
let page = { stop() {}, keys: {} };
let turn = 0;

/** The parts of the hash: `#/agent/backend-1/diff` is `["agent", "backend-1", "diff"]`. */
const route = () =>
  location.hash
    .replace(/^#\/?/, "")
    .split("/")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });

async function show() {
  const parts = route();
  const [name] = parts;
  const mine = (turn += 1);
  const found = PAGES.find(([word]) => word === name);
  const module = name === "agent" || name === "compare" ? name : (found?.[2] ?? "missing");
  closeMenu();
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.page === (name === "agent" || name === "compare" ? "" : name)) link.ariaCurrent = "page";
    else link.removeAttribute("aria-current");
  }
  // The same agent's other tab, or another file: the page changes itself.
  if (page.name === module && page.go?.(parts)) {
    view.dataset.route = parts.join("/");
    return;
  }
  // What is left reads no more, however long the next page takes to come.
  page.stop?.();
  page = { keys: {} };
  let next;
  try {
    next = (await import(`./${module}.js`)).default;
  } catch {
    if (mine === turn)
      fill(
        view,
        h("p.notice.bad", "This page could not be loaded; the daemon may be away. It is tried again when it is back."),
      );
    return;
  }
  if (mine !== turn) return;
  fill(view);
  view.className = `page-${module}`;
  window.scrollTo(0, 0);
  page = next(view, parts) ?? {};
  page.name = module;
  view.dataset.route = parts.join("/");
  // Whoever came by a link reads on from here; the first page leaves the focus where the browser puts it.
  if (mine > 1 && !view.contains(document.activeElement)) view.focus({ preventScroll: true });
  pageTitle = module === "agent" ? (find(parts[1])?.name ?? parts[1]) : (found?.[1] ?? (module === "compare" ? "Compare" : "not found"));
  setTitle();
}

function buildNav() {
  fill(
    nav,
    ...PAGES.map(([word, title, , key]) =>
      h(
        "a",
        { href: `#/${word}`, "data-page": word, ariaKeyShortcuts: `g ${key}` },
        h("span", title),
        (word === "" || word === "approvals") && h("span.badge", { hidden: true, "data-badge": word }),
      ),
    ),
  );
}

/** What waits, the page, the project: so that tabs of several projects can be told apart. */
function setTitle() {
  const waiting = attention().length;
  const first = isAway() ? "offline · " : waiting ? `(${waiting}) ` : "";
  const title = first + [pageTitle, project.textContent, "svc"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
}

function badges() {
  const waiting = attention().length;
  for (const [word, n, noun] of [
    ["", waiting, "waiting for you"],
    ["approvals", store.approvals.length, "pending"],
  ]) {
    const badge = nav.querySelector(`[data-badge="${word}"]`);
    badge.hidden = !n;
    say(badge, String(n));
    badge.ariaLabel = `${n} ${noun}`;
  }
  setTitle();
}

const openMenu = () => {
  document.body.classList.toggle("menu-open");
  menu.ariaExpanded = document.body.classList.contains("menu-open");
};

function closeMenu() {
  document.body.classList.remove("menu-open");
  menu.ariaExpanded = "false";
}

export function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  keep("svc-theme", root.dataset.theme);
}

const HELP = [
  ["Ctrl K", "search agents, pages and commands"],
  ["n", "new agent"],
  ["j / k", "next, previous"],
  ["Enter", "open what is selected"],
  ["/", "filter the list"],
  ["g then a letter", `go to a page: ${PAGES.map(([, title, , key]) => `${key} ${title}`).join(", ")}`],
  ["a / x", "approve, reject: on approvals, on an agent that waits, in the first screen's queue (a row that is closed opens first)"],
  ["i / r / K", "on an agent: write to it, rotate it, kill it (asks first)"],
  ["R", "in a timeline: the raw line of the selected entry"],
  ["Home / End", "in a timeline: the first entry, the newest"],
  ["o / t / f", "in a timeline: the turns, the turn of the selected entry, what is shown"],
  ["j / k / n / p", "in a diff: next change, previous; next file, previous"],
  ["c / s / e", "in a diff: comment on the line (Shift and arrows choose more), side by side, open a fold"],
  ["v", "in a diff: the file is viewed, on to the next one"],
  ["m / A / X", "in a diff: try the merge, ask for changes, discard (asks first)"],
  ["r", "on the audit page: read it again"],
  ["D", "light or dark"],
  ["?", "this help"],
  ["Esc", "close, or leave a field"],
];

function help() {
  dialog("Keys", h("dl.keys", HELP.map(([key, what]) => [h("dt", h("kbd", key)), h("dd", what)])));
}

let afterG = 0;

function keydown(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return openPalette(PAGES, { toggleTheme, openSpawn, help });
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input,textarea,select,[contenteditable]");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  if (Date.now() - afterG < 1200) {
    afterG = 0;
    const target = PAGES.find(([, , , key]) => key === event.key);
    if (target) {
      event.preventDefault();
      location.hash = `#/${target[0]}`;
    }
    return;
  }
  const own = page.keys?.[event.key];
  if (own && !(event.key === "Enter" && event.target.closest("a,button,summary"))) {
    event.preventDefault();
    return own(event);
  }
  const common = {
    g: () => {
      afterG = Date.now();
    },
    n: () => !isAway() && openSpawn(),
    D: toggleTheme,
    "?": help,
  };
  if (common[event.key]) {
    event.preventDefault();
    common[event.key]();
  }
}

function start() {
  buildNav();
  byId("theme").onclick = toggleTheme;
  byId("new").onclick = () => openSpawn();
  byId("search").onclick = () => openPalette(PAGES, { toggleTheme, openSpawn, help });
  menu.onclick = openMenu;
  document.querySelector(".skip").onclick = (event) => {
    event.preventDefault();
    view.focus();
  };
  addEventListener("hashchange", show);
  addEventListener("keydown", keydown);
  watchConnection();
  watchWaiting();
  on("away", setTitle);
  const pill = byId("pill");
  on("status", ({ word, title }) => {
    say(pill, word);
    pill.className = `pill ${word}`;
    pill.title = title;
  });
  const alerts = byId("alerts");
  on("approval:request", ({ data }) => {
    alerts.textContent = visibleLine(`${data.agentName} asks for your approval: ${data.action.description}`);
  });
  const later = soon(badges, BADGES_MS);
  for (const type of ["agents", "approvals", "health"]) on(type, later);
  on("reconnect", () => {
    if (view.querySelector(".notice.bad")) show();
  });
  get("/api/status").then(
    (status) => {
      const name = status.projectDir.split("/").filter(Boolean).pop() ?? "/";
      say(project, name);
      project.title = status.projectDir;
      knowFolder(status.projectDir);
      setTitle();
    },
    () => {},
  );
  setInterval(() => {
    // What is as of a moment has no age that grows.
    if (!document.hidden && !isAway()) {
      tick();
      emit("tick");
    }
  }, 1000);
  connect();
  show();
}

start();
