// The page for phones: what waits, its card, yes or no, an answer.

const KEY = "svc-phone";
const KINDS = {
  scope_violation: "Outside its scope",
  integration_exec: "Integration call",
  tool_permission: "Tool permission",
  resume_agents: "Resume agents",
  question: "Question",
};
const $ = (id) => document.getElementById(id);

// What steers what shows it, or shows nothing. The console's twin is dom.js.
const MISLEADING =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const visible = (text) =>
  String(text)
    .replaceAll("\r\n", "\n")
    .replace(MISLEADING, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
const line = (text) => visible(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t");

/** An element; text in it is text. */
function h(tag, properties, ...children) {
  const el = Object.assign(document.createElement(tag), properties);
  for (const child of children.flat(3)) {
    if (child || child === 0) el.append(child instanceof Node ? child : visible(child));
  }
  return el;
}

let key = null;
let rights = [];
let socket = null;
/** What shows notices, once it is there. */
let worker = null;
/** The card that a notice has opened, until it was shown. */
let wanted = null;
/** What is said of one that is not there any more. */
let over = "";
let wait = 1000;

function say(state, told = "") {
  $("state").textContent = state;
  $("told").textContent = told;
  $("told").hidden = !told;
}

async function call(method, path, body) {
  const options = { method, headers: {}, cache: "no-store" };
  if (key) options.headers["Svc-Phone"] = key;
  if (body) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  const value = await response.json().catch(() => null);
  if (response.ok) return value;
  throw Object.assign(new Error(value?.error ?? `status ${response.status}`), { status: response.status });
}

function unpaired(told) {
  localStorage.removeItem(KEY);
  key = null;
  socket?.close();
  socket = null;
  for (const id of ["queue", "agents", "notices"]) $(id).hidden = true;
  $("pair").hidden = false;
  if (told) silence();
  const [, print] = location.hash.match(/^#([0-9A-F]{64})$/) ?? [];
  $("print").textContent = print ? `The picture said ${print.match(/../g).join(":")}` : "";
  say("not paired", told);
}

async function begin(paired) {
  const me = paired ?? (await call("GET", "/api/phone/self"));
  rights = me.rights;
  $("project").textContent = line(me.project ?? "");
  $("pair").hidden = true;
  $("queue").hidden = false;
  $("agents").hidden = false;
  await load();
  listen();
  notices().catch((error) => say($("state").textContent, line(error.message)));
}

/** How this browser hears of what waits while the page is closed; null where it cannot. */
async function channel() {
  const push = (await kept)?.pushManager;
  return push ? { push, own: await push.getSubscription() } : null;
}

const silence = async () => (await channel())?.own?.unsubscribe();

/** Shows whether it is told, and makes it so: `wish` is true or false, or absent for as it was. */
async function notices(wish) {
  const found = await channel();
  if (!found || !key) return;
  const { push, own } = found;
  const { key: applicationServerKey } = await call("GET", "/api/phone/push");
  let { push: known } = await call("GET", "/api/phone/self");
  const made = btoa(String.fromCharCode(...new Uint8Array(own?.options.applicationServerKey ?? [])));
  const isOurs = made.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") === applicationServerKey;
  if (wish ?? (own && !(known && isOurs))) {
    await own?.unsubscribe();
    const { endpoint, keys } = (await push.subscribe({ userVisibleOnly: true, applicationServerKey })).toJSON();
    ({ push: known } = await call("POST", "/api/phone/push", { endpoint, ...keys }));
  } else if (wish === false || (known && !own)) {
    await own?.unsubscribe();
    ({ push: known } = await call("DELETE", "/api/phone/push"));
  }
  const button = $("notices").firstChild;
  button.textContent = known ? "Tell me here no more" : "Tell me here when something waits";
  button.onclick = async () => {
    try {
      // First, while the tap counts.
      if (!known) await Notification.requestPermission();
      await notices(!known);
    } catch (error) {
      say($("state").textContent, `Nothing is told here: ${line(error.message)}`);
    }
  };
  $("notices").hidden = false;
}

/** Shows the card of a notice; one that is decided is not there any more. */
function show() {
  if (!wanted) return;
  const card = cards.get(wanted);
  over = card ? "" : "What the notice was about is decided already.";
  wanted = null;
  history.replaceState(null, "", "/phone");
  say($("state").textContent, over);
  card?.scrollIntoView();
  card?.focus();
}

/** What is wrong is told; who is not paired any more is shown how to become so. */
function failed(error) {
  if (error.status === 401) return unpaired("This phone is not paired, or was revoked.");
  say("offline", error.status ? line(error.message) : "The daemon cannot be reached from here; this tries again.");
}

function listen() {
  socket?.close();
  if (!key) return;
  const own = new WebSocket(`wss://${location.host}/api/ws?key=${key}`);
  socket = own;
  own.onopen = () => {
    wait = 1000;
    say("connected", over);
    load().catch(failed);
  };
  own.onmessage = ({ data }) => JSON.parse(data).type.startsWith("approval:") && load().catch(failed);
  own.onclose = () => {
    if (socket !== own) return;
    socket = null;
    say("offline");
    setTimeout(again, wait);
    wait = Math.min(wait * 2, 30000);
  };
}

/** Asks first whether it still counts, and listens again. */
const again = () => key && !socket && call("GET", "/api/phone/self").then(listen, (error) => (failed(error), setTimeout(again, wait)));

const cards = new Map();

async function load() {
  // Before what waits is asked for: what comes meanwhile is not among these.
  const told = (await worker?.getNotifications()) ?? [];
  const [{ pending }, agents] = await Promise.all([call("GET", "/api/approvals"), call("GET", "/api/agents")]);
  const queue = $("queue");
  const open = new Set(pending.map((one) => one.id));
  for (const [id, el] of cards) {
    if (open.has(id)) continue;
    el.remove();
    cards.delete(id);
  }
  for (const approval of pending) {
    if (cards.has(approval.id)) continue;
    const el = card(approval);
    cards.set(approval.id, el);
    queue.append(el);
  }
  $("none")?.remove();
  if (!pending.length) queue.append(h("p", { id: "none", className: "muted" }, "Nothing waits for you."));
  // What is decided, whoever did it, is told no more.
  for (const notice of told) if (!open.has(notice.data)) notice.close();
  show();
  document.title = pending.length ? `(${pending.length}) svc` : "svc";
  const live = agents.filter((one) => !["completed", "crashed", "killed", "interrupted"].includes(one.state));
  $("agents").replaceChildren(
    h("h2", {}, `Agents at work: ${live.length}`),
    h("ul", {}, live.slice(0, 50).map((one) => h("li", {}, h("span", {}, line(one.name)), h("span", { className: "muted" }, one.state)))),
  );
}

function card(approval) {
  const { action, id } = approval;
  const isQuestion = action.type === "question";
  const may = rights.includes(isQuestion ? "answer" : "approve");
  const who = line(approval.agentName);
  const words = h(isQuestion ? "textarea" : "input", {
    ariaLabel: isQuestion ? `Answer to ${who}` : `Reason for ${who}`,
    placeholder: isQuestion ? "Your answer" : "Reason (optional, the agent is told)",
    maxLength: 2000,
  });
  const told = h("div", {});
  const el = h(
    "article",
    { id, tabIndex: -1 },
    h("p", { className: "muted" }, `${KINDS[action.type] ?? action.type} · ${who}`),
    h("p", { className: "what" }, isQuestion ? action.question : line(action.description)),
    told,
  );
  const decide = async (verb, word) => {
    const reason = words.value.trim();
    if (isQuestion && verb === "approve" && !reason) return words.focus();
    for (const control of el.querySelectorAll("button,input,textarea")) control.disabled = true;
    try {
      await call("POST", `/api/approvals/${id}/${verb}`, reason ? { reason } : {});
      el.classList.add("done");
      el.lastChild.replaceChildren(word);
    } catch (error) {
      for (const control of el.querySelectorAll("button,input,textarea")) control.disabled = false;
      failed(error);
    }
  };
  const yes = isQuestion ? ["Answer", "Answered"] : ["Approve", "Approved"];
  const no = isQuestion ? ["Leave it to the agent", "Not answered"] : ["Reject", "Rejected"];
  const button = ([label, word], verb, className) =>
    h("button", { type: "button", className, ariaLabel: `${label} ${who}`, onclick: () => decide(verb, word) }, label);
  const actions = h("div", { className: "actions" }, button(no, "reject", ""), button(yes, "approve", "yes"));
  if (may) {
    el.append(words, actions);
    // What is not seen whole is not decided.
    if (!isQuestion) actions.hidden = true;
  }
  if (!isQuestion) {
    call("GET", `/api/approvals/${id}/card`)
      .then((all) => {
        told.append(...details(all));
        actions.hidden = false;
      })
      .catch((error) => told.append(h("p", { className: "muted" }, `The details cannot be read: ${error.message}`)));
  }
  return el;
}

function details({ command, parameters, change, words = [], before = [], owner }) {
  const row = (name, ...what) => [h("dt", {}, name), h("dd", {}, ...what)];
  return [
    h(
      "dl",
      {},
      command && row("Runs", h("pre", { tabIndex: 0 }, command.text)),
      command && row("In", command.folder === null ? "a folder that is not known" : command.folder || "the project"),
      parameters.filter(([name]) => !command || name !== "command").map(([name, text]) => row(line(name), text)),
      owner && row("Owner", line(owner.name)),
    ),
    change && h("div", {}, h("p", { className: "muted" }, `${change.note}: ${line(change.path)}`)),
    change?.diff && h("pre", { tabIndex: 0 }, change.diff),
    words.map(({ text }) => h("blockquote", {}, text)),
    before.map((one) =>
      h("p", { className: "muted" }, `${one.same ? "Exactly this" : "One like it"} of ${line(one.agentName)} was ${one.status}`),
    ),
  ]
    .flat()
    .filter(Boolean);
}

$("pair").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const paired = await call("POST", "/api/phone/session", { code: $("code").value });
    $("code").value = "";
    key = paired.key;
    localStorage.setItem(KEY, key);
    say("paired");
    await begin();
  } catch (error) {
    if (error.status === 401) failed(error);
    else say("not paired", error.status ? error.message : "The daemon cannot be reached from here.");
  }
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !key) return;
  if (socket) load().catch(failed);
  else again();
});

// The page is kept for when there is no network, where the browser trusts the certificate.
const trusted = window.trustedTypes?.createPolicy("phone", { createScriptURL: () => "/phone/worker.js" });
const script = trusted ? trusted.createScriptURL("") : "/phone/worker.js";
const kept = Promise.resolve(navigator.serviceWorker?.register(script, { scope: "/phone" }))
  .then(() => navigator.serviceWorker?.ready)
  .catch(() => null);
kept.then((ready) => (worker = ready));
const open = (id) => {
  wanted = id;
  if (key) load().catch(failed);
};
navigator.serviceWorker?.addEventListener("message", ({ data }) => data.open && open(data.open));
const asked = () => location.hash.match(/^#([a-z]+-[0-9a-f]+)$/)?.[1] ?? null;
addEventListener("hashchange", () => asked() && open(asked()));
wanted = asked();

key = localStorage.getItem(KEY);
if (key) begin().catch((error) => (failed(error), setTimeout(again, wait)));
else unpaired("");
