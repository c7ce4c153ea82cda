// Clicks through the console as a person would, against a daemon, a marketplace and real rehearsed agents.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Daemon, Market, check, launch, makeProject, open, runAll, text, until } from "./lib.mjs";

const scenarios = [];
const scenario = (name, run) => scenarios.push([name, run]);

const dir = makeProject();
const market = await new Market().start();
const daemon = new Daemon(dir, { skills: { baseUrl: `${market.url}/api/v1` } });
const browser = await launch();

daemon.scenario("long", {
  steps: [
    { say: "I begin" },
    { usage: { input: 900, output: 80, cacheRead: 60000, contextWindow: 200000 } },
    { run: { command: "echo checked" } },
    { loop: { times: 3000, steps: [{ say: "<img src=x onerror=alert(1)> still at it" }, { sleepMs: 400 }] } },
  ],
  onSay: [{ say: "You said: {{message}}" }],
});

scenario("spawn and watch", async (page) => {
  await page.keyboard.press("n");
  await page.getByLabel("Task").fill("Count the <b>words</b>");
  await page.getByLabel("Role", { exact: true }).fill("bad role!");
  await page.getByLabel("Provider").selectOption("script");
  page.away = true;
  await page.getByRole("button", { name: "Start" }).click();
  await page.locator(".spawn [data-field=role] .fault", { hasText: "role" }).waitFor();
  page.away = false;
  await page.getByLabel("Role", { exact: true }).fill("counter");
  await page.getByLabel("Files it owns").fill("src/**");
  await page.getByLabel("Model").selectOption("default");
  await page.getByRole("button", { name: "Start" }).click();
  await page.locator(".vrow.tool:not([hidden])").first().waitFor();
  await page.locator("h1", { hasText: "counter-1" }).waitFor();
  await page.locator(".vrow.tool:not([hidden])").first().click();
  await page.locator(".detail").getByRole("button", { name: "Raw line" }).click();
  check((await text(page, ".detail")).includes('"type": "tool-started"'), "the raw line is not shown");
  check(!(await page.locator(".vlist b", { hasText: /^words$/ }).count()), "a task became markup");
});

scenario("live output, as text, and an instruction", async (page) => {
  await daemon.spawn("worker", "long", { name: "worker-live" });
  await page.goto(`${daemon.url}/#/agent/worker-live`);
  const row = page.locator(".vrow.text:not([hidden])", { hasText: "<img src=x onerror=alert(1)> still at it" }).first();
  await row.waitFor();
  check(!(await page.locator("main img").count()), "words of an agent became an image");
  const before = await text(page, ".follow");
  await until("more entries", async () => (await text(page, ".follow")) !== before);
  await page.keyboard.press("i");
  await page.keyboard.type("use tabs");
  await page.keyboard.press("Enter");
  await page.locator(".vrow.user:not([hidden])", { hasText: "use tabs" }).waitFor();
});

scenario("approve and reject, and cards keep their places", async (page) => {
  for (const n of [1, 2, 3])
    daemon.scenario(`out-${n}`, {
      steps: [{ write: { path: `elsewhere/file-${n}.txt`, text: "x" } }, { answer: "done" }],
    });
  await page.goto(`${daemon.url}/#/approvals`);
  for (const n of [1, 2]) await daemon.spawn("painter", `out-${n}`, { scope: ["src/**"] });
  const card = (n) => page.locator(".card.approval:not(.settled)", { hasText: `file-${n}.txt` });
  await card(1).waitFor();
  await card(2).waitFor();
  await card(1).hover();
  const place = await card(1).boundingBox();
  const second = await card(2).boundingBox();
  await daemon.spawn("painter", "out-3", { scope: ["src/**"] });
  await card(3).waitFor();
  check(
    JSON.stringify(await card(1).boundingBox()) === JSON.stringify(place),
    "a card moved when another came",
  );
  await card(1)
    .getByRole("button", { name: /Approve/ })
    .click();
  await page.locator(".card.settled", { hasText: "file-1.txt" }).waitFor();
  check(
    JSON.stringify(await card(2).boundingBox()) === JSON.stringify(second),
    "a card moved when another was settled",
  );
  await card(2)
    .getByLabel(/Reason/)
    .fill("not there");
  await card(2)
    .getByRole("button", { name: /Reject/ })
    .click();
  await until("both decisions", async () => {
    const { resolved } = await daemon.get("/api/approvals");
    const of = (n) => resolved.find((one) => one.action.filePath === `elsewhere/file-${n}.txt`);
    return of(1)?.status === "approved" && of(2)?.status === "rejected" && of(2).reason === "not there";
  });
  await page.mouse.move(2, 2);
  await page.locator(".status.rejected").first().waitFor();
});

scenario("what an agent writes forges no line and no direction", async (page) => {
  daemon.scenario("forger", {
    steps: [
      { write: { path: "elsewhere/\u202egpj.exe\nApproved by you", text: "x" } },
      { say: "a\u202eb \u{1f469}\u200d\u{1f467}" },
      { answer: "done" },
    ],
  });
  const { id } = await daemon.spawn("painter", "forger", { scope: ["src/**"] });
  await page.goto(`${daemon.url}/#/approvals`);
  const card = page.locator(".card.approval:not(.settled)", { hasText: "gpj.exe" });
  await card.waitFor();
  const shown = (await card.innerText()) + (await card.getByRole("button").last().getAttribute("aria-label"));
  check(!/\u202e|^Approved/m.test(shown), `a forged card: ${shown}`);
  check(shown.includes("elsewhere/\\u{202e}gpj.exe\\nApproved by you"), `the path is not told: ${shown}`);
  await card.getByRole("button", { name: /Reject/ }).click();
  await page.goto(`${daemon.url}/#/agent/${id}`);
  await page.getByText("a\\u{202e}b \u{1f469}\u200d\u{1f467}").first().waitFor();
});

scenario("rotate with a preview, then kill", async (page) => {
  const old = await daemon.spawn("worker", "long", { name: "worker-turn", prompt: "Write the handbook" });
  await daemon.until("worker-turn", ["running"]);
  await page.goto(`${daemon.url}/#/agent/${old.id}/rotate`);
  await page.locator(".brief", { hasText: "Write the handbook" }).waitFor();
  const briefs = [];
  page.on("request", (request) => request.url().endsWith("/brief") && briefs.push(request.url()));
  await page.getByRole("button", { name: "Rotate now" }).click();
  await until(
    "the address of the successor",
    () => page.url().includes("/agent/") && !page.url().includes(old.id),
  );
  await page.locator("h1", { hasText: "worker-turn" }).waitFor();
  await page.locator(".vrow:not([hidden])", { hasText: "I begin" }).first().waitFor();
  await page.locator(".agent-top .status.running").waitFor();
  check(!briefs.length, `the rotation is over, and ${briefs} are asked for`);
  await page.getByRole("button", { name: "Kill", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Kill" }).click();
  await page.locator(".agent-top .status.killed").waitFor();
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await page.locator('main[data-route=""]').waitFor();
});

scenario("what comes late for one tab is not shown in another", async (page) => {
  const { id } = await daemon.spawn("worker", "long", { name: "worker-tabs" });
  await page.goto(`${daemon.url}/#/agent/${id}`);
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  let release;
  const later = new Promise((done) => {
    release = done;
  });
  await page.route(/\/brief$/, async (route) => {
    await later;
    await route.continue();
  });
  const brief = page.waitForResponse(/\/brief$/);
  const tabs = page.getByRole("navigation", { name: "Agent" });
  await tabs.getByRole("link", { name: "Rotate" }).click();
  await page.locator(`main[data-route="agent/${id}/rotate"]`).waitFor();
  await tabs.getByRole("link", { name: "Work" }).click();
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  release();
  await (await brief).finished();
  await page.quiet();
  check(await page.locator(".vlist").isVisible(), "the work is gone");
  check(!(await page.locator(".brief").count()), "the brief stands where the work was");
  await daemon.api("DELETE", `/api/agents/${id}`);
});

scenario("of an agent that is removed nothing more is asked", async (page) => {
  const { id } = await daemon.spawn("worker", "long", { name: "worker-gone" });
  await page.goto(`${daemon.url}/#/agent/${id}`);
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  let release;
  let held = 0;
  const removed = new Promise((done) => {
    release = done;
  });
  await page.route(/\/log\?since=/, async (route) => {
    held += 1;
    await removed;
    // One that the page has given up cannot go on.
    await route.continue().catch(() => {});
  });
  await until("a reading under way", () => held);
  await daemon.api("DELETE", `/api/agents/${id}`);
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await page.locator('main[data-route=""]').waitFor();
  release();
  await page.quiet();
  check(!(await daemon.get("/api/agents")).some((one) => one.id === id), "it is still there");
});

scenario("a page that one leaves reads no more", async (page) => {
  const { id } = await daemon.spawn("worker", "long", { name: "worker-left" });
  await page.goto(`${daemon.url}/#/agent/${id}`);
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  let release;
  let held = 0;
  const removed = new Promise((done) => {
    release = done;
  });
  await page.route(/\/log\?since=/, async (route) => {
    held += 1;
    await removed;
    // One that the page has given up cannot go on.
    await route.continue().catch(() => {});
  });
  await until("a reading under way", () => held);
  await page.evaluate(() => {
    location.hash = "#/settings";
  });
  await page.locator('main[data-route="settings"]').waitFor();
  await daemon.api("DELETE", `/api/agents/${id}`);
  await until("its end", async () => (await daemon.get(`/api/agents/${id}`)).status === "killed");
  await daemon.api("DELETE", `/api/agents/${id}`);
  release();
  await page.quiet();
});

scenario("a timeline begins with the task, and tells a failure once", async (page) => {
  const { id } = await daemon.spawn("worker", "quick", { name: "worker-told" });
  await daemon.until("worker-told", ["completed", "waiting"]);
  const briefing = `# Briefing for worker-told\n\nYou are it.\n${"rule\n".repeat(20)}\n# Task\n\nPaint the door\n`;
  const entries = [
    { type: "user", text: briefing },
    { type: "text", text: "Invalid API key \u00b7 Please run /login" },
    { type: "turn-ended", isError: true, error: "invalid API key; please run /login" },
    { type: "text", text: "Again" },
    { type: "turn-ended", isError: true, error: "the model is overloaded" },
  ].map((entry, at) => ({ ...entry, n: at + 1, ts: new Date().toISOString() }));
  await page.route(/\/log\?/, (route) => {
    const left = entries.filter(({ n }) => n > Number(new URL(route.request().url()).searchParams.get("since")));
    return route.fulfill({ json: { entries: left, next: null } });
  });
  await page.goto(`${daemon.url}/#/agent/${id}`);
  const row = (at) => page.locator(`.vrow.entry[data-index="${at}"]:not([hidden])`);
  await row(4).waitFor();
  const task = await row(0).locator(".body").innerText();
  check(task.startsWith("Paint the door") && task.includes("a briefing of 27 lines"), `it begins with ${task}`);
  const told = [await row(2).locator(".body").innerText(), await row(4).locator(".body").innerText()];
  check(told[0] === "turn failed with that", told[0]);
  check(told[1] === "turn failed: the model is overloaded", told[1]);
  await row(0).click();
  check((await text(page, ".detail .prose")).includes("You are it."), "the briefing cannot be read");
  await daemon.api("DELETE", `/api/agents/${id}`);
});

scenario("a card says what to do about a crash, and tells the error once", async (page) => {
  const one = await daemon.spawn("worker", "quick", { name: "worker-login" });
  await daemon.until("worker-login", ["completed", "waiting"]);
  const error = "Invalid API key \u00b7 Please run /login";
  const statusReason = `its last turn failed: ${error}; log in: claude auth login`;
  const lost = { ...one, id: "0000000a", name: "worker-lost", status: "crashed", error: "oops\nat line 3" };
  const still = { ...lost, id: "0000000b", name: "worker-still", status: "running", error: null };
  const data = [
    { ...one, status: "crashed", statusReason, error },
    { ...lost, statusReason: "it exited with code 1: oops" },
    { ...still, statusReason: "in whatever words", statusCode: "silent" },
  ];
  await page.routeWebSocket(/\/ws/, (socket) => socket.send(JSON.stringify({ type: "state", seq: 1, data })));
  await page.goto(daemon.url);
  const card = (name) => page.locator(".card.trouble", { hasText: name });
  await card("worker-login").getByText("log in: claude auth login").waitFor();
  const words = await card("worker-login").innerText();
  check(words.split("Invalid API key").length === 2, `the error is told twice: ${words}`);
  await card("worker-lost").getByText("at line 3").waitFor();
  await card("worker-still").getByText("is silent").waitFor();
  await daemon.api("DELETE", `/api/agents/${one.id}`);
});

scenario("tokens in a range and by day", async (page) => {
  const hour = 3_600_000;
  const now = Date.now();
  const one = (hours, tokensUsed, costUsd) => ({
    timestamp: new Date(now - hours * hour).toISOString(),
    tokensUsed,
    costUsd,
  });
  const snapshots = [one(50, 0, 0), one(49, 40_000, 4), one(2, 40_000, 4), one(0.4, 70_000, 7)];
  await page.route("**/api/timeline", (route) => route.fulfill({ json: { snapshots, events: [] } }));
  await page.route("**/api/dashboard", async (route) => {
    const real = await (await route.fetch()).json();
    real.tokens.used = 70_000;
    real.cost.totalUsd = 7;
    await route.fulfill({ json: real });
  });
  await page.goto(`${daemon.url}/#/tokens`);
  const pace = (nth) => page.locator(".pace").nth(nth);
  await pace(0).getByText("70K tokens, 1.4K tokens an hour").waitFor();
  await page.getByLabel("Range of the charts").selectOption("1");
  await pace(0).getByText("30K tokens, 30K tokens an hour").waitFor();
  await pace(1).getByText("$3.00, $3.00 an hour").waitFor();
  const days = page.getByRole("region", { name: "By day" }).locator("tbody tr");
  const sums = (await days.allInnerTexts()).map((row) => row.split("\t").slice(1).join(" "));
  check(sums.at(-1) === "40,000 $4.00", `by day: ${sums}`);
  const rest = sums.slice(0, -1).map((row) => Number(row.split(" ")[0].replace(",", "")));
  check(rest.reduce((sum, used) => sum + used, 0) === 30_000, `by day: ${sums}`);
});

scenario("edit a file, and refuse to overwrite another's change", async (page) => {
  await page.goto(`${daemon.url}/#/files`);
  await page.locator(".tree summary", { hasText: "src" }).click();
  await page.locator(".tree a", { hasText: "login.js" }).click();
  const editor = page.getByLabel("Text of src/login.js");
  await editor.fill("export const login = 1;\n");
  await page.keyboard.press("Control+s");
  await page.getByText("· saved").waitFor();
  const file = path.join(dir, "src/login.js");
  await until("the file", () => fs.readFileSync(file, "utf8") === "export const login = 1;\n");
  fs.writeFileSync(file, "theirs\n");
  await editor.fill("mine\n");
  page.away = true;
  await page.keyboard.press("Control+s");
  await page.getByText("Somebody has changed this file").waitFor();
  page.away = false;
  check(fs.readFileSync(file, "utf8") === "theirs\n", "their change was overwritten");
  await page.getByRole("button", { name: "Overwrite with mine" }).click();
  await until("my text", () => fs.readFileSync(file, "utf8") === "mine\n");
  await page.getByRole("button", { name: "Changes" }).click();
  await page.locator(".diff .plus", { hasText: "mine" }).waitFor();
});

scenario("settings say what is wrong at the field", async (page) => {
  await page.goto(`${daemon.url}/#/settings`);
  page.away = true;
  await page.getByLabel("Agents at once").fill("many");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("[data-field=maxAgents] .fault", { hasText: "whole number" }).waitFor();
  page.away = false;
  await page.getByLabel("Agents at once").fill("60");
  await page.getByRole("button", { name: "Save" }).click();
  await until("the setting", async () => (await daemon.get("/api/config")).maxAgents === 60);
});

scenario("a chat gateway is made and changed", async (page) => {
  await page.goto(`${daemon.url}/#/gateways`);
  await page.getByRole("button", { name: "New gateway" }).click();
  await page.getByLabel("Platform").selectOption("slack");
  await page.getByLabel("App token").waitFor();
  await page.getByLabel("Name").fill("Night watch");
  await page.getByRole("button", { name: "Save" }).click();
  const card = page.locator(".card", { hasText: "Night watch" });
  await card.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Commands may").selectOption("full");
  await page.getByRole("button", { name: "Save" }).click();
  await card.getByText("commands full").waitFor();
  check((await daemon.get("/api/gateways"))[0].type === "slack", "it is of another kind");
});

scenario("a plan becomes a board, phase by phase", async (page) => {
  const agents = [
    { role: "backend", name: "first-part", phase: 1, provider: "script", model: "quick", prompt: "Build it" },
    { role: "security", name: "last-look", phase: 2, provider: "script", model: "quick", prompt: "Check it" },
  ];
  const text = JSON.stringify({ agents });
  const steps = [
    { write: { path: ".svc/recommended-team.json", text } },
    { answer: "It is planned." },
    { exit: 0 },
  ];
  daemon.scenario("plan", { steps });
  await daemon.spawn("planner", "plan");
  await page.goto(`${daemon.url}/#/teams`);
  await page.getByRole("button", { name: "Launch" }).click();
  const phase = (n) => page.locator(".phase", { hasText: `Phase ${n}` });
  await phase(1).getByRole("link", { name: "first-part" }).waitFor();
  await phase(2).getByRole("link", { name: "last-look" }).waitFor();
  await phase(2).locator('p[title="Check it"]').waitFor();
  await phase(2).getByText("security · script").waitFor();
  await page.getByRole("button", { name: "Save a team" }).click();
  await page.getByLabel("Name").fill("Night shift");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Delete team Night shift" }).waitFor();
});

scenario("command palette and keys", async (page) => {
  await page.goto(`${daemon.url}/#/`);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("memo");
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "Memory" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.locator(".vrow.agent-row:not([hidden])").first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.locator(".agent-top").waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
});

/** The numbers of the log's entries that the timeline shows, by scrolling through all of it. */
const shown = (page) =>
  page.evaluate(async () => {
    const list = document.querySelector(".vlist");
    const seen = new Map();
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    for (let top = 0; top <= list.scrollHeight; top += list.clientHeight / 2) {
      list.scrollTop = top;
      await frame();
      await frame();
      for (const row of list.querySelectorAll(".vrow:not([hidden])"))
        for (const n of row.dataset.entries.split(" ")) seen.set(Number(n), Number(row.dataset.index));
    }
    return [...seen].sort((a, b) => a[0] - b[0]);
  });

/** Compares the timeline with the agent's log: every entry that has a row stands there once, in its order. */
async function wholeTimeline(page, id) {
  const rows = await shown(page);
  const last = rows.at(-1)[0];
  const { entries } = await daemon.get(`/api/agents/${id}/log?since=0`);
  const quiet = ["turn-started", "usage", "session", "noise"];
  const wanted = entries.filter(({ n, type }) => n <= last && !quiet.includes(type)).map(({ n }) => n);
  const got = rows.map(([n]) => n);
  check(JSON.stringify(got) === JSON.stringify(wanted), `the timeline shows ${got}, the log has ${wanted}`);
  const ordered = rows.every(([, index], at) => !at || index >= rows[at - 1][1]);
  check(ordered, `rows out of order: ${JSON.stringify(rows)}`);
}

const counts = (page) => page.evaluate(async () => ({ ...(await import("/console/store.js")).store.counts }));
const moves = (page) => async () => {
  const before = await text(page, ".follow");
  await until("more entries", async () => (await text(page, ".follow")) !== before);
};

scenario("a broken connection goes on where it was, without loss or repeats", async (page) => {
  let socket;
  const numbers = [];
  await page.routeWebSocket(/\/ws/, (mine) => {
    socket = mine;
    const server = mine.connectToServer();
    server.onMessage((message) => {
      numbers.push(JSON.parse(message).seq);
      mine.send(message);
    });
  });
  await daemon.spawn("worker", "long", { name: "worker-broken" });
  await page.goto(`${daemon.url}/#/agent/worker-broken`);
  await page.reload();
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  await moves(page)();
  const before = await counts(page);
  await socket.close({ code: 1001 });
  await page.locator("#pill:not(.live)").waitFor();
  await page.locator("#pill.live").waitFor();
  await moves(page)();
  const after = await counts(page);
  check(after.connects === before.connects + 1, "it did not connect again");
  check(!after.resyncs, "it had to read everything anew");
  const events = [...new Set(numbers)].sort((a, b) => a - b);
  const gaps = events.filter((seq, at) => at && seq !== events[at - 1] + 1);
  check(!gaps.length, `events are missing before ${gaps}`);
  const { id } = await daemon.get("/api/agents/worker-broken");
  await wholeTimeline(page, id);
  await daemon.api("DELETE", `/api/agents/${id}`);
});

scenario("reconnect after a restart of the daemon, without loss or repeats", async (page) => {
  await daemon.spawn("worker", "long", { name: "worker-again" });
  await page.goto(`${daemon.url}/#/agent/worker-again`);
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  // While the daemon is away the browser itself reports refused connections.
  page.away = true;
  await daemon.stop("SIGKILL");
  await page.locator("#pill:not(.live)").waitFor();
  scenario("from another machine one signs in with the token", async () => {
    const addresses = Object.values(os.networkInterfaces()).flat();
    const host = addresses.find(({ family, internal }) => family === "IPv4" && !internal)?.address;
    if (!host) return "this machine has no address but its own";
    const far = new Daemon(makeProject());
    far.host = host;
    await far.start();
    const refused = await fetch(far.url, { headers: { Accept: "text/html" } });
    check(refused.status === 401, `without the token: ${refused.status}`);
    const password = fs.readFileSync(path.join(far.dir, ".svc/token"), "utf8").trim();
    const page = await open(browser, far.url, { httpCredentials: { username: "svc", password } });
    await page.locator("#pill.live").waitFor();
    await page.getByText("No agents yet").waitFor();
    await page.context().close();
    await far.remove();
    return undefined;
  });

  await daemon.start();
  await page.locator("#pill.live").waitFor();
  await page.locator(".agent-top .status.interrupted").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator(".agent-top .status.running").waitFor();
  page.away = false;
  await page.locator(".vlist").focus();
  await page.keyboard.press("End");
  await moves(page)();
  check((await counts(page)).connects >= 2, "it did not connect again");
  const { id } = await daemon.get("/api/agents/worker-again");
  await wholeTimeline(page, id);
  await daemon.api("DELETE", `/api/agents/${id}`);
});

scenario("while the daemon is away nothing passes for the present", async (page) => {
  await daemon.spawn("worker", "long", { name: "worker-ghost" });
  const row = page.locator(".vrow.agent-row", { hasText: "worker-ghost" });
  await row.locator(".status.running").waitFor();
  const look = () =>
    page.evaluate(() => ({
      enabled: [...document.querySelectorAll("main button, main input, #new")].filter(
        (one) => !one.matches(":disabled"),
      ).length,
      figures: getComputedStyle(document.querySelector(".figures"), "::before").content,
      title: document.title,
    }));
  const colour = () => row.locator(".status").evaluate((el) => getComputedStyle(el).color);
  const green = await colour();
  const before = await look();
  check(before.enabled > 0 && before.figures === "none", `while it is there: ${JSON.stringify(before)}`);
  page.away = true;
  await daemon.stop("SIGKILL");
  const banner = page.locator("#away");
  await banner.waitFor();
  const told = await banner.innerText();
  check(/As of \d\d:\d\d:\d\d, the daemon does not answer/.test(told), told);
  check(told.includes(`svc start --background --project ${dir}`), told);
  const during = await look();
  check((await colour()) !== green, `what was running still is ${green}`);
  check(during.enabled === 0, `${during.enabled} controls can still be used`);
  check(during.figures.includes("as of"), `the figures are told as if they were so: ${during.figures}`);
  check(during.title.startsWith("offline"), during.title);
  check(!(await page.locator(".calm").isVisible()), "it says that nothing waits");
  await page.keyboard.press("n");
  check(!(await page.getByRole("dialog").count()), "an agent can be started although nobody is there");
  await daemon.start();
  await page.locator("#pill.live").waitFor();
  await banner.waitFor({ state: "hidden" });
  await row.locator(".status.interrupted").waitFor();
  const after = await look();
  check(after.enabled > 0 && after.figures === "none", `it does not come back: ${JSON.stringify(after)}`);
  page.away = false;
  await daemon.api("DELETE", "/api/agents/worker-ghost");
});

scenario("a daemon that hangs is told from one that answers", async (page) => {
  page.away = true;
  daemon.child.kill("SIGSTOP");
  const banner = page.locator("#away");
  try {
    await banner.waitFor({ timeout: 40_000 });
  } finally {
    daemon.child.kill("SIGCONT");
  }
  await page.locator("#pill.live").waitFor({ timeout: 40_000 });
  await banner.waitFor({ state: "hidden" });
  page.away = false;
});

scenario("an answer aside is in sight", async (page) => {
  await page.setViewportSize({ width: 1440, height: 900 });
  const { id } = await daemon.spawn("worker", "long", { name: "worker-aside" });
  await page.goto(`${daemon.url}/#/agent/${id}`);
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  await page.getByLabel("How it is delivered").selectOption("query");
  await page.getByLabel("Message").fill("how far are you?");
  await page.getByRole("button", { name: "Send" }).click();
  const answer = page.locator(".answer");
  await answer.waitFor();
  await until("the answer", async () => !(await answer.innerText()).includes("Asking;"));
  check((await answer.innerText()).includes("how far are you?"), "it does not say what was asked");
  const box = await answer.boundingBox();
  check(box.y >= 0 && box.y + box.height <= 900, `the answer is at ${box.y} to ${box.y + box.height} of 900`);
  await daemon.api("DELETE", `/api/agents/${id}`);
});

scenario("on a phone a row of a table is a card", async (page) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const { id } = await daemon.spawn("worker", "long", { name: "worker-locks", scope: ["src/**"] });
  await daemon.post("/api/coordination/declare", {
    agentId: id,
    operation: "database-migration",
    resources: ["db/shop", "web/**"],
  });
  for (const [name, heads] of [
    ["audit", ["When", "Event", "By", "What"]],
    ["locks", ["Agent", "For", "Resources", "Since", "Expires"]],
  ]) {
    await page.goto(`${daemon.url}/#/${name}`);
    await page.locator(`main[data-route="${name}"] tbody tr`).first().waitFor();
    const cells = await page.evaluate(() =>
      [...document.querySelectorAll("main tbody tr")][0]
        ? [...document.querySelector("main tbody tr").children].map((cell) => ({
            label: cell.dataset.label,
            shown: getComputedStyle(cell, "::before").content,
            right: cell.getBoundingClientRect().right,
            height: cell.getBoundingClientRect().height,
          }))
        : [],
    );
    const labels = cells.map((cell) => cell.label).filter(Boolean);
    check(JSON.stringify(labels) === JSON.stringify(heads), `${name}: ${labels}`);
    for (const cell of cells) {
      check(cell.right <= 390 && cell.height < 160, `${name}, ${cell.label}: ${JSON.stringify(cell)}`);
      check(!cell.label || cell.shown === `"${cell.label}"`, `${name}: ${cell.label} is not shown`);
    }
  }
  await daemon.api("DELETE", `/api/agents/${id}`);
});

scenario("an integration says what it needs before it is installed", async (page) => {
  await page.goto(`${daemon.url}/#/integrations`);
  const card = page.locator(".card", { has: page.getByText("Stripe", { exact: true }) });
  await card.getByText("Needs STRIPE_SECRET_KEY").waitFor();
});

scenario("a tab says its project and what waits, and the help names every key", async (page) => {
  await until("the project in the title", async () => / · shop · svc$/.test(await page.title()));
  await daemon.spawn("worker", "crash", { name: "worker-crash" });
  await until("the count in the title", async () => /^\(\d+\) /.test(await page.title()));
  await daemon.api("DELETE", "/api/agents/worker-crash");
  await page.keyboard.press("?");
  const keys = await page.getByRole("dialog", { name: "Keys" }).innerText();
  for (const words of ["e Teams and plans", "k Skills", "rotate it", "raw line", "the newest"])
    check(keys.includes(words), `${words} is not in the help: ${keys}`);
});

scenario("install a skill, rate it, remove it", async (page) => {
  await page.goto(`${daemon.url}/#/skills`);
  const found = page.waitForResponse(/\/api\/skills\?search=code/);
  await page.getByLabel("Search skills").fill("code review");
  await (await found).finished();
  await page.quiet();
  const card = page.locator(".card", {
    has: page.getByRole("heading", { name: "Code Review", exact: true }),
  });
  await card.getByRole("button", { name: "Read Code Review" }).click();
  const reading = page.getByRole("dialog", { name: "Code Review" });
  await reading.getByText("As it would be installed.").waitFor();
  check((await reading.locator(".reading").innerText()).length > 500, "the skill's text is not shown");
  check(!(await daemon.get("/api/skills/installed")).skills.length, "reading installs it");
  await page.keyboard.press("Escape");
  const place = await card.elementHandle();
  const again = page.waitForResponse(/\/api\/skills\?search=code/);
  await page.evaluate(async () => (await import("/console/store.js")).emit("skill:installed"));
  await (await again).finished();
  await page.quiet();
  check(await place.evaluate((el) => el.isConnected), "a card is replaced although nothing has changed");
  await card.getByRole("button", { name: "Install Code Review" }).click();
  await card.getByRole("button", { name: "Remove Code Review" }).waitFor();
  const file = path.join(dir, ".svc/skills/code-review/SKILL.md");
  check(fs.readFileSync(file, "utf8").includes("#"), "the skill's text is not in the project");
  const before = (await daemon.get("/api/skills?search=code%20review")).skills[0].ratingCount;
  await card.getByLabel("Rate Code Review").selectOption("5");
  await until("the rating to count", async () => {
    const { skills } = await daemon.get("/api/skills?search=code%20review&refresh=1");
    return skills[0].ratingCount === before + 1;
  });
  await card.getByRole("button", { name: "Remove Code Review" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await card.getByRole("button", { name: "Install Code Review" }).waitFor();
  check(!fs.existsSync(file), "the skill's text is still in the project");
});

await daemon.start();
const failed = await runAll(scenarios, browser, daemon);
await browser.close();
await daemon.remove();
await market.stop();
// At once: a browser's helper process may hold on to a pipe for long.
process.exit(failed);
