// What one needs every day: a filtered timeline, a wider scope, a budget, an editor.

import fs from "node:fs";
import path from "node:path";
import { axe, check, open, until } from "./lib.mjs";
import { browser, daemon, dir, scenario } from "./clicks-world.mjs";

scenario("a timeline shows only what was said, only tools, or only errors", async () => {
  const many = Array.from({ length: 1500 }, (_, n) => [{ say: `word ${n}` }, { read: "README.md" }]).flat();
  daemon.scenario("sifted", { steps: [{ run: { command: "exit 3" } }, ...many, { run: { command: "exit 4" } }, { say: "the last" }, { ask: "On?" }] });
  await daemon.spawn("worker", "sifted", { name: "worker-sifted" });
  await until("its last words", async () => {
    const { entries } = await daemon.get("/api/agents/worker-sifted/log?tail=10");
    return entries.some((one) => one.text === "the last");
  });
  const page = await open(browser, `${daemon.url}/#/agent/worker-sifted`, { bypassCSP: true });
  const rows = (what = "") => page.locator(`.vrow${what}:not([hidden])`);
  await rows(".text").filter({ hasText: "the last" }).waitFor();
  await page.keyboard.press("f");
  check((await page.evaluate(() => document.activeElement.ariaLabel)) === "What is shown", "the filter has no key");
  await page.keyboard.press("ArrowDown");
  await until("no tools", async () => (await rows(".tool").count()) === 0 && (await rows(".text").count()) > 3);
  const shown = await page.locator(".follow").innerText();
  check(/shown of/.test(shown), shown);
  await page.getByLabel("What is shown").selectOption("tools");
  await until("only tools", async () => (await rows(".text").count()) === 0 && (await rows(".tool").count()) > 3);
  // Errors are few: older entries are read until there are enough, or all is read.
  await page.getByLabel("What is shown").selectOption("errors");
  await until("both errors", async () => (await rows(".tool.error").count()) === 2 && (await rows().count()) === 2);
  await axe(page, "only errors");
  await rows(".error").first().click();
  await page.locator(".detail").getByText("exit 3").first().waitFor();
  await page.locator(".detail").getByRole("button", { name: "Turn" }).first().click().catch(() => page.keyboard.press("t"));
  await page.getByLabel("What is shown").selectOption("");
  await until("all of it again", async () => (await rows().count()) > 5);
  // A link to an entry shows it whatever the filter.
  await page.getByLabel("What is shown").selectOption("errors");
  const { entries } = await daemon.get("/api/agents/worker-sifted/log?tail=10");
  const said = entries.find((one) => one.text === "the last");
  await page.evaluate((n) => (location.hash = `#/agent/worker-sifted/at/${n}`), said.n);
  await page.locator(".detail").getByText("the last").first().waitFor();
  check((await page.getByLabel("What is shown").inputValue()) === "", "the filter hides what was asked for");
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("a write is approved, and such files become the agent's own", async () => {
  const write = (file) => ({ write: { path: `wider/${file}`, text: "x\n" } });
  daemon.scenario("wider", { steps: [write("one.txt"), { ask: "On?" }, write("two.txt"), { ask: "On?" }] });
  const { id } = await daemon.spawn("painter", "wider", { name: "painter-wider", scope: ["src/wide/**"] });
  const page = await open(browser, `${daemon.url}/#/agent/${id}`, { bypassCSP: true });
  const card = page.locator(".card.approval:not(.settled)", { hasText: "wider/one.txt" });
  await card.getByRole("button", { name: "Allow and widen… (painter-wider)" }).focus();
  await page.keyboard.press("Enter");
  const box = page.getByRole("dialog");
  check((await box.getByLabel("Files that become its own").inputValue()) === "wider/**", "the folder is not proposed");
  await box.getByText("It has: src/wide/**").waitFor();
  await axe(page, "the form");
  await box.getByLabel("Files that become its own").focus();
  await page.keyboard.press("Enter");
  await box.waitFor({ state: "detached" });
  await until("the decision", async () => !(await daemon.get("/api/approvals")).pending.some((one) => one.agentId === id));
  const agent = await daemon.get(`/api/agents/${id}`);
  check(agent.scope.join() === "src/wide/**,wider/**", JSON.stringify(agent.scope));
  const { entries } = await daemon.get("/api/audit?limit=50");
  const at = (event) => entries.find((one) => one.event === event && one.agentId === id);
  check(at("agent.patch")?.changes.scope.includes("wider/**") && at("approval.approve"), JSON.stringify(entries.slice(0, 5)));
  await daemon.post(`/api/agents/${id}/instruct`, { message: "on", deliver: "now" });
  await until("its second file", () => fs.existsSync(path.join(dir, "wider/two.txt")));
  check(!(await daemon.get("/api/approvals")).pending.some((one) => one.agentId === id), "it is asked again");
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("a budget: set in its place, its forecast, and its alarms", async () => {
  const page = await open(browser, null, { bypassCSP: true });
  const hour = 3_600_000;
  const now = Date.now();
  let spent = 3;
  const one = (hours, costUsd) => ({ timestamp: new Date(now - hours * hour).toISOString(), tokensUsed: costUsd * 1000, costUsd });
  await page.route("**/api/timeline", (route) => route.fulfill({ json: { snapshots: [one(5, 0), one(2, 0), one(0.5, 1)], events: [] } }));
  await page.route("**/api/dashboard", async (route) => {
    const real = await (await route.fetch()).json();
    Object.assign(real.cost, { totalUsd: spent, todayUsd: spent });
    await route.fulfill({ json: real });
  });
  await page.goto(`${daemon.url}/#/tokens`);
  const panel = page.getByRole("region", { name: "Budget", exact: true });
  await panel.getByText("No budget is set").waitFor();
  await panel.getByLabel("Dollars a day").fill("-1");
  page.away = true;
  await panel.getByRole("button", { name: "Set" }).click();
  await panel.locator(".fault", { hasText: "dailyBudgetUsd" }).waitFor();
  page.away = false;
  await panel.getByLabel("Dollars a day").fill("3.5");
  await page.keyboard.press("Enter");
  await panel.getByText("86 % of today's budget of $3.50 are used.").waitFor();
  check((await daemon.get("/api/config")).safety.dailyBudgetUsd === 3.5, "it is not set");
  check((await panel.locator(".notice.warn").count()) === 1, "it does not warn");
  await axe(page, "a budget");
  const told = await page.evaluate(async () => {
    const { forecast } = await import("/console/spent.js");
    const hour = 3_600_000;
    const now = Date.now();
    const noon = new Date(now).setUTCHours(12, 0, 0, 0);
    const points = [{ time: now - hour, cost: 0, tokens: 0 }, { time: now, cost: 2, tokens: 0 }];
    const usd = (n) => `$${n.toFixed(2)}`;
    const of = (todayUsd, dailyBudgetUsd, some = points) => forecast(some, { todayUsd, dailyBudgetUsd }, usd, noon);
    return [of(1, 100), of(4, 10), of(5, 10), of(9, 10), of(10, 10), of(1, 10, []), of(1, null)].map(({ kind, text }) => `${kind}|${text}`);
  });
  const wanted = [
    /^\|At the pace of the last hour, \$2\.00 an hour, \$25\.00 are used by midnight UTC: it lasts\.$/,
    /^\|At the pace of the last hour, \$2\.00 an hour, it is spent at about \d\d:00\.$/,
    /^half\|50 % of today's budget of \$10\.00 are used\. At the pace/,
    /^warn\|90 % /,
    /^bad\|100 % of today's budget of \$10\.00 are used\. Nothing new starts before midnight UTC\.$/,
    /^\|Of the last hour no pace is known\.$/,
    /^\|No budget is set/,
  ];
  wanted.forEach((one, at) => check(one.test(told[at]), `${told[at]} is not ${one}`));
  spent = 4;
  await panel.getByLabel("Dollars a day").fill("");
  await panel.getByRole("button", { name: "Set" }).click();
  await panel.getByText("No budget is set").waitFor();
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("lines of a file are commented on in the editor, by keys, and told to an agent", async () => {
  fs.writeFileSync(path.join(dir, "src/cart.js"), "one\ntwo\nthree\nfour\n");
  daemon.scenario("listens", { steps: [{ ask: "What is it?" }], onSay: [{ say: "heard" }] });
  await daemon.spawn("worker", "listens", { name: "worker-listens" });
  await daemon.until("worker-listens", ["running", "waiting"]);
  const page = await open(browser, `${daemon.url}/#/files/src%2Fcart.js`, { bypassCSP: true });
  const area = page.getByLabel("Text of src/cart.js");
  await area.focus();
  const comment = async (from, to, words) => {
    await area.evaluate((el, range) => el.setSelectionRange(...range), [from, to]);
    await page.getByRole("button", { name: "Comment…" }).focus();
    await page.keyboard.press("Enter");
    await page.getByLabel("Agent", { exact: true }).selectOption({ label: "worker-listens · running" });
    await page.getByLabel("What you think of them").fill(words);
  };
  const told = async () => (await daemon.get("/api/agents/worker-listens/comments")).comments;
  await comment(4, 13, "say why");
  await page.getByRole("heading", { name: "Comment on src/cart.js:2-3" }).waitFor();
  await axe(page, "a comment on a file");
  await page.getByRole("button", { name: "Keep for later" }).focus();
  await page.keyboard.press("Enter");
  await until("the first comment", async () => (await told()).length === 1);
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await comment(0, 0, "and this");
  await page.getByRole("heading", { name: "Comment on src/cart.js:1", exact: true }).waitFor();
  await page.keyboard.press("Control+Enter");
  await until("both to be sent", async () => (await told()).every((one) => one.state === "sent"));
  const [first, second] = await told();
  check(first.quote === "two\nthree" && first.text === "say why" && second.quote === "one", JSON.stringify([first, second]));
  await page.getByText("It was told 2 comments").waitFor();
  // What is not saved is in no file yet.
  await area.fill("changed");
  await page.getByRole("button", { name: "Comment…" }).click();
  await page.getByText("Save it first").waitFor();
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("the editor: lines, find, indentation, and one's own editor", async () => {
  const text = Array.from({ length: 300 }, (_, n) => `line ${n + 1}`).join("\n");
  fs.writeFileSync(path.join(dir, "src/Long name.js"), `${text}\n`);
  const page = await open(browser, `${daemon.url}/#/settings`, { bypassCSP: true });
  await page.getByLabel("Open files in").selectOption("zed");
  await page.goto(`${daemon.url}/#/files/src%2FLong%20name.js`);
  const area = page.getByLabel("Text of src/Long name.js");
  await area.waitFor();
  const gutter = page.locator(".gutter");
  const numbers = (await gutter.evaluate((el) => el.textContent)).split("\n");
  check(numbers.length === 301 && numbers.at(-1) === "301", `${numbers.length} numbers`);
  const own = page.getByRole("link", { name: "Open in Zed" });
  check((await own.getAttribute("href")) === `zed://file${encodeURI(dir)}/src/Long%20name.js:1`, await own.getAttribute("href"));
  // Find, by keys; a line by its number.
  await area.focus();
  await page.keyboard.press("Control+f");
  await page.keyboard.type("LINE 29");
  await page.getByText("1 of 11", { exact: true }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByText("2 of 11", { exact: true }).waitFor();
  const chosen = () => area.evaluate((el) => [el.value.slice(el.selectionStart, el.selectionEnd), el.scrollTop]);
  check((await chosen())[0] === "line 29" && (await chosen())[1] > 1000, `${await chosen()}`);
  check((await gutter.evaluate((el) => el.scrollTop)) === (await chosen())[1], "the numbers stand elsewhere");
  await axe(page, "find");
  await page.getByLabel("Find in the file").fill(":42");
  await page.keyboard.press("Enter");
  await page.getByText("line 42", { exact: true }).waitFor();
  await page.keyboard.press("Escape");
  // Tab indents, Shift and Tab take that back, over several lines too.
  await page.keyboard.press("Home");
  await page.keyboard.press("Tab");
  await page.keyboard.type("x");
  const line = (n) => area.evaluate((el, at) => el.value.split("\n")[at - 1], n);
  check((await line(42)) === "  xline 42", await line(42));
  await page.keyboard.press("Shift+ArrowDown");
  await page.keyboard.press("Tab");
  check((await line(42)) === "    xline 42" && (await line(41)) === "line 41", `${await line(42)} ${await line(43)}`);
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Shift+Tab");
  check((await line(42)) === "xline 42", await line(42));
  // Escape leaves the field, so that Tab goes on.
  await page.keyboard.press("Escape");
  check(await page.evaluate(() => document.activeElement === document.body), "the keyboard is caught");
  await area.focus();
  await page.keyboard.press("Control+s");
  await page.getByText("· saved").waitFor();
  check(fs.readFileSync(path.join(dir, "src/Long name.js"), "utf8").includes("\nxline 42\n"), "it is not saved");
  await page.setViewportSize({ width: 390, height: 844 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= 390, `${wide} px wide`);
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});
