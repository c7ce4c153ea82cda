// Agents: starting, watching, deciding, rotating, ending.

import fs from "node:fs";
import path from "node:path";
import { check, text, until } from "./lib.mjs";
import { daemon, dir, scenario } from "./clicks-world.mjs";

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
  // The box grows with what is written, and the choice of a delivery is kept.
  const box = page.getByLabel("Message");
  const height = async () => (await box.boundingBox()).height;
  const low = await height();
  await box.fill("one\ntwo\nthree\nfour");
  check((await height()) > low + 40, `${low} px high, and with four lines ${await height()}`);
  await box.fill("");
  await page.getByLabel("How it is delivered").selectOption("idle");
  await page.reload();
  check((await page.getByLabel("How it is delivered").inputValue()) === "idle", "the delivery is forgotten");
});

scenario("comment on lines, send that, and see it ticked off; undo and redo", async (page) => {
  const write = (text) => ({ write: { path: "said/a.js", text } });
  daemon.scenario("commented", {
    steps: [write("one\ntwo\nthree\n"), { ask: "And now?" }, write("one\nzwei\nthree\n"), { answer: "mended" }],
  });
  await daemon.spawn("writer", "commented", { name: "writer-said", scope: ["said/**"] });
  await page.goto(`${daemon.url}/#/agent/writer-said/diff`);
  const line = (text) => page.locator(".diff .plus", { hasText: text });
  await until("the diff", async () => {
    await page.getByRole("button", { name: "Read again" }).click();
    return (await line("two").count()) > 0;
  });
  await line("two").click();
  await page.getByLabel("Comment on said/a.js:2", { exact: true }).waitFor();
  await line("three").click();
  await page.getByLabel("Comment on said/a.js:2-3").fill("in <b>German</b>");
  await page.getByRole("button", { name: "Comment", exact: true }).click();
  const row = page.locator(".said:not(form), .rows li", { hasText: "in <b>German</b>" });
  await row.getByText("open", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Send 1 comment" }).click();
  await page.getByText("writer-said was told 1 comment").waitFor();
  await until("its answer to tick it off", async () => {
    await page.getByRole("button", { name: "Read again" }).click();
    return (await row.getByText("done", { exact: true }).count()) > 0;
  });
  const stands = () => fs.readFileSync(path.join(dir, "said/a.js"), "utf8");
  await until("its end", async () => (await daemon.get("/api/agents/writer-said")).status !== "active");
  // What was just read again may put another button in its place, under the hand.
  const undo = page.getByRole("button", { name: "Undo", exact: true });
  await until("the question", async () => {
    if (await undo.isVisible()) return true;
    await page.getByRole("button", { name: "Undo its last turn" }).click({ timeout: 2000 }).catch(() => {});
    return false;
  });
  await undo.click();
  await page.getByText("is undone: 1 file").waitFor();
  check(!fs.existsSync(path.join(dir, "said/a.js")) || stands().includes("two"), "it is still there");
  await page.getByRole("button", { name: "Redo" }).click();
  await page.getByText("is redone: 1 file").waitFor();
  check(stands() === "one\nzwei\nthree\n", "it is not there again");
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

scenario("a card shows the change, a rule of it decides the next one, and is revoked", async (page) => {
  const write = (text) => ({ write: { path: "elsewhere/ruled.txt", text } });
  const say = (text) => ({ say: text });
  daemon.scenario("ruled", {
    steps: [
      say("The **list** of names lives there."),
      write("first\n"),
      { ask: "On?" },
      write("second\n"),
      { ask: "On?" },
      write("third\n"),
      { answer: "done" },
    ],
  });
  await daemon.spawn("painter", "ruled", { name: "painter-ruled", scope: ["src/**"] });
  await page.goto(`${daemon.url}/#/agent/painter-ruled`);
  // Others may wait for a person, too, on the page that is left.
  const card = page.locator(".card.approval:not(.settled)", { hasText: "elsewhere/ruled.txt" });
  await card.waitFor();
  await card.locator(".diff .plus", { hasText: "first" }).waitFor();
  check((await card.innerText()).includes("lives there."), "its last words are not on the card");
  await card.getByText("Decide it for the next times, too").click();
  await card.getByLabel("How long it is allowed").selectOption("uses:20");
  await card.getByRole("button", { name: "Always allow" }).click();
  const waits = async () =>
    (await daemon.get("/api/approvals")).pending.some((one) => one.agentName === "painter-ruled");
  await until("the decision", async () => !(await waits()));
  const used = async () => (await daemon.get("/api/rules")).rules[0]?.used;
  // It is told that it may keep what it wrote, and goes on.
  await until("its use", async () => (await used()) === 1);
  check(!(await waits()), "a person is asked although a rule allows it");
  await page.goto(`${daemon.url}/#/approvals`);
  const row = page.locator("table tr", { hasText: "painter-ruled may write elsewhere/ruled.txt" });
  await row.getByText("1 of 20").waitFor();
  await row.getByRole("button", { name: /Revoke/ }).click();
  await row.getByText("revoked", { exact: true }).waitFor();
  await daemon.post("/api/agents/painter-ruled/instruct", { message: "on", deliver: "now" });
  const asked = page.locator(".card.approval:not(.settled)", { hasText: "elsewhere/ruled.txt" });
  await asked.getByLabel("Decided before").waitFor();
  await asked.getByRole("button", { name: /Reject/ }).click();
});

scenario("what no rule can allow says why, and a question is answered with words", async (page) => {
  daemon.scenario("floor", { steps: [{ write: { path: "elsewhere/.env", text: "x\n" } }, { ask: "On?" }] });
  await daemon.spawn("painter", "floor", { name: "painter-floor", scope: ["src/**"] });
  await page.goto(`${daemon.url}/#/approvals`);
  const card = page.locator(".card.approval:not(.settled)", { hasText: "elsewhere/.env" });
  await card.getByText("Decide it for the next times, too").click();
  await card.getByText("No rule can allow this: it names what may hold credentials").waitFor();
  check(await card.getByRole("button", { name: "Always allow" }).isDisabled(), "it can be allowed for good");
  await card.getByRole("button", { name: /Reject/ }).click();
  await daemon.post("/api/questions", { question: "Which colour?", agentId: "painter-floor" });
  const question = page.locator(".card.approval:not(.settled)", { hasText: "Which colour?" });
  check(!(await question.getByRole("button", { name: /Approve/ }).count()), "a question is approved");
  await question.getByLabel("Answer to painter-floor").fill("teal");
  await question.getByRole("button", { name: "Answer painter-floor" }).click();
  await until("the answer", async () =>
    (await daemon.get("/api/approvals")).resolved.some((one) => one.reason === "teal"),
  );
});

scenario("what Claude Code asks by its own tool is answered with what it offers", async (page) => {
  await page.goto(`${daemon.url}/#/approvals`);
  await page.locator('main[data-route="approvals"]').waitFor();
  const posts = [];
  await page.route("**/api/approvals", (route) => {
    if (route.request().method() !== "POST") return route.fallback();
    posts.push(route.request().postDataJSON());
    return route.fulfill({ json: {} });
  });
  await page.route("**/api/approvals/apr-3/card", (route) => route.fulfill({ json: {} }));
  await page.evaluate(async () => {
    const { card } = await import("/console/approvals.js");
    const options = [{ label: "tabs", description: "as now" }, { label: "<b>spaces</b>" }];
    const ask = (id, questions) => ({
      id,
      agentId: "a",
      agentName: "asker",
      requestedAt: new Date().toISOString(),
      expiresAt: new Date().toISOString(),
      action: { type: "tool_permission", tool: "AskUserQuestion", description: "use AskUserQuestion", params: { questions } },
    });
    const one = { question: "Which one?", options };
    const call = ask("apr-3", [one]);
    call.action.type = "integration_exec";
    document.querySelector("main").append(card(ask("apr-1", [one])), card(ask("apr-2", [one, { question: "And why?", options }])), card(call));
  });
  const [first, both] = [page.locator('[data-id="apr-1"]'), page.locator('[data-id="apr-2"]')];
  await first.getByText("Which one?").waitFor();
  check(!(await first.getByRole("button", { name: /Approve/ }).count()), "a question is approved");
  check(await page.locator('[data-id="apr-3"]').getByRole("button", { name: /Approve/ }).count(), "a call that is named like a question is answered");
  await first.getByRole("button", { name: "<b>spaces</b>" }).click();
  await until("the choice", () => posts.length === 1);
  await both.getByText("And why?").waitFor();
  check(!(await both.getByRole("button", { name: "tabs" }).count()), "one choice is offered for two questions");
  await both.getByLabel("Answer to asker").fill("tabs, for the linter");
  await both.getByRole("button", { name: "Answer asker" }).click();
  await until("the words", () => posts.length === 2);
  const wanted = [["apr-1", "<b>spaces</b>"], ["apr-2", "tabs, for the linter"]].map(([id, reason]) => ({ id, decision: "approve", reason }));
  check(JSON.stringify(posts) === JSON.stringify(wanted), JSON.stringify(posts));
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
  await daemon.forget(page, id);
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
  check(!(await text(page, ".detail")).includes("You are it."), "the briefing is not folded away");
  await page.locator(".detail summary", { hasText: "The briefing, 27 lines" }).click();
  await page.locator(".detail .prose", { hasText: "You are it." }).waitFor();
  await daemon.forget(page, id);
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
  for (const name of ["worker-login", "worker-lost", "worker-still"])
    await page.locator(".wait", { hasText: name }).locator("summary").click();
  await card("worker-login").getByText("log in: claude auth login").waitFor();
  const words = await card("worker-login").innerText();
  check(words.split("Invalid API key").length === 2, `the error is told twice: ${words}`);
  await card("worker-lost").getByText("at line 3").waitFor();
  await card("worker-still").getByText("is silent").waitFor();
  await daemon.forget(page, one.id);
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
  await daemon.forget(page, id);
});

scenario("start one like another, with another model", async (page) => {
  const given = { name: "likeness-a", scope: ["paint/**", "art/**"], permission: "full", effort: "high", isolation: "worktree" };
  const first = await daemon.spawn("likeness", "long", given);
  await page.goto(`${daemon.url}/#/agent/likeness-a/about`);
  await page.getByRole("button", { name: "Start one like it" }).click();
  const value = (label) => page.getByRole("dialog").getByLabel(label, { exact: true }).inputValue();
  await until("the model", async () => (await value("Model")) === "long");
  const shown = await Promise.all(["Task", "Role", "Name", "Provider", "Files it owns", "Permission"].map(value));
  const wanted = [first.prompt, "likeness", "", "script", "paint/**, art/**", "full"];
  check(JSON.stringify(shown) === JSON.stringify(wanted), `${JSON.stringify(shown)} instead of ${JSON.stringify(wanted)}`);
  await page.getByLabel("Model").selectOption("default");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.locator("h1", { hasText: "likeness-1" }).waitFor();
  const { model, scope, permission, effort, isolation } = await daemon.get("/api/agents/likeness-1");
  check(
    JSON.stringify({ model, scope, permission, effort, isolation }) ===
      JSON.stringify({ model: "default", scope: given.scope, permission: "full", effort: "high", isolation: "worktree" }),
    JSON.stringify({ model, scope, permission, effort, isolation }),
  );
  await daemon.forget(page, "likeness-a", "likeness-1");
});
