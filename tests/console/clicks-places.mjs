// The other pages: tokens, files, settings, chats, teams, integrations, skills, keys.

import fs from "node:fs";
import path from "node:path";
import { axe, check, open, until } from "./lib.mjs";
import { browser, claude, daemon, dir, scenario } from "./clicks-world.mjs";

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

scenario("prices in use, where they come from, and models without one", async (page) => {
  const row = (model, unpricedTokens, price) => ({
    model,
    used: 1000,
    tokens: { input: 1000, output: 0, cacheRead: 0, cacheCreation: 0 },
    costUsd: price ? 0.003 : null,
    unpricedTokens,
    price,
  });
  const price = { input: 3, output: 15, cacheRead: 0.3, cacheCreation: 3.75, from: "given", asOf: "2026-11-01" };
  await page.route("**/api/tokens/summary", async (route) => {
    const real = await (await route.fetch()).json();
    real.byModel = [row("claude-sonnet-4-5", 0, price), row("nobodys-model", 1234, null)];
    await route.fulfill({ json: real });
  });
  await page.goto(`${daemon.url}/#/tokens`);
  const shown = page.getByRole("region", { name: "Prices" }).locator("tbody tr");
  const cells = (await shown.innerText()).split("\t");
  const wanted = ["claude-sonnet-4-5", "$3", "$15", "$0.3", "$3.75", "a table of yours", "2026-11-01"];
  check(cells.join("|") === wanted.join("|"), `prices: ${cells}`);
  await page.getByText("Nobody knows what nobodys-model costs: 1,234 tokens are unpriced.").waitFor();
  const { asOf } = await daemon.api("GET", "/api/prices");
  await page.getByText(`the built-in table is of ${asOf}`).waitFor();
});

scenario("a further login is shown, and chosen for an agent", async (page) => {
  await daemon.post("/api/accounts", { name: "night", provider: "ollama" });
  await page.goto(`${daemon.url}/#/tokens`);
  const row = page.getByRole("region", { name: "Accounts" }).locator("tbody tr");
  check((await row.innerText()).startsWith("night\tollama"), `accounts: ${await row.innerText()}`);
  await page.getByText("svc credentials set account/night").waitFor();
  await page.keyboard.press("n");
  await page.getByLabel("Provider").selectOption("script");
  await page.locator("dialog summary", { hasText: "More" }).click();
  check(!(await page.getByLabel("Whose login").isVisible()), "script has one login");
  await page.getByLabel("Provider").selectOption("ollama");
  const names = await page.getByLabel("Whose login").locator("option").allInnerTexts();
  check(names.at(-1) === "night" && names.length === 3, `offered: ${names}`);
  await page.getByLabel("Whose login").selectOption("night");
  await page.getByLabel("Role", { exact: true }).fill("tester");
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByText("account night has no key yet").waitFor();
  // The browser calls every refusal an error.
  check(page.faults.splice(0).every((fault) => fault.includes("409")), "another error");
  await page.keyboard.press("Escape");
  await daemon.api("DELETE", "/api/accounts/night");
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
  await phase(2).getByText("security · script · quick").waitFor();
  await page.getByRole("button", { name: "Save a team" }).click();
  await page.getByLabel("Name").fill("Night shift");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Delete team Night shift" }).waitFor();
});

scenario("a recommended team is changed before its launch; a phase that failed is tried again, then passed over", async () => {
  const agent = (name, phase, prompt) => ({ role: "backend", name, phase, provider: "script", model: "breaks", prompt, scope: ["api/**"] });
  const agents = [agent("fails", 1, "Break it"), agent("dropped", 1, "Nothing"), { ...agent("after", 2, "Look"), model: "quick" }];
  daemon.scenario("breaks", { steps: [{ say: "now" }, { exit: 3 }] });
  daemon.scenario("plan-two", {
    steps: [{ write: { path: ".svc/recommended-team.json", text: JSON.stringify({ agents }) } }, { answer: "Planned." }, { exit: 0 }],
  });
  await daemon.spawn("planner", "plan-two");
  await until("the recommendation", async () => (await daemon.get("/api/recommended-team")).agents[0]?.name === "fails");
  const page = await open(browser, `${daemon.url}/#/teams`, { bypassCSP: true });
  page.away = true;
  const wished = page.getByRole("region", { name: "Recommended team by phase" });
  await wished.getByText("backend · script · breaks · api/**").first().waitFor();
  await wished.getByRole("button", { name: "Drop dropped" }).focus();
  await page.keyboard.press("Enter");
  await until("two of them", async () => (await daemon.get("/api/recommended-team")).agents.length === 2);
  await wished.getByRole("button", { name: "Edit fails" }).focus();
  await page.keyboard.press("Enter");
  const box = page.getByRole("dialog");
  await box.getByLabel("Phase").fill("77");
  await box.getByRole("button", { name: "Save" }).click();
  await box.locator(".fault", { hasText: "phase" }).waitFor();
  await axe(page, "the form");
  await box.getByLabel("Phase").fill("1");
  await box.getByLabel("Task").fill("Break <b>all</b> of it");
  await page.keyboard.press("Control+Enter");
  await box.waitFor({ state: "detached" });
  await wished.getByText("Break <b>all</b> of it").waitFor();
  await axe(page, "the recommended team");
  await page.getByRole("button", { name: "Launch" }).click();
  const plan = async () => (await daemon.get("/api/plans")).plans[0];
  await until("the phase to be blocked", async () => (await plan())?.status === "blocked");
  check((await plan()).agents[0].task === "Break <b>all</b> of it", JSON.stringify(await plan()));
  const board = page.getByRole("region", { name: /^Plan \w+ by phase/ }).first();
  const after = board.locator(".card", { hasText: "after" });
  await after.getByText("backend · script · quick · api/**").waitFor();
  await after.getByText("Look").waitFor();
  await after.getByText("pending").waitFor();
  await axe(page, "a blocked plan");
  const { agentId } = (await plan()).agents[0];
  await board.getByRole("button", { name: "Try phase 1 again" }).focus();
  await page.keyboard.press("Enter");
  const { agentId: second } = await until("its next life, and that it failed again", async () => {
    const now = await plan();
    return now.status === "blocked" && now.agents[0].agentId !== agentId && now.agents[0];
  });
  // The page hears of it by and by; until then it may not be skipped.
  const heard = (id) => page.evaluate(async (one) => (await import("/console/store.js")).find(one)?.status, id);
  await until("the page to hear of that", async () => (await heard(second)) === "crashed");
  // Whoever stands at a button by keys stays there when it is drawn anew, and is never led to another one.
  const at = await page.evaluate(async () => {
    const { fill, h } = await import("/console/dom.js");
    const box = h("div");
    document.body.append(box);
    const names = (...all) => all.map((name) => h("button", name));
    const focused = (before, after) => {
      fill(box, names(...before));
      box.firstChild.focus();
      fill(box, names(...after));
      return box.contains(document.activeElement) && document.activeElement.textContent;
    };
    const found = [focused(["Skip", "Try"], ["Try", "Skip"]), focused(["Remove", "Remove"], ["Remove"]), focused(["Skip"], ["Try"])];
    box.remove();
    return found;
  });
  check(String(at) === "Skip,false,false", `${at}`);
  // The board may be drawn without it for a moment, when news of its agent come in another order.
  await until("the question", async () => {
    if (await box.count()) return true;
    await board.getByRole("button", { name: "Skip phase 1…" }).focus();
    await page.keyboard.press("Enter");
    return box.count();
  });
  await box.getByText("fails is passed over").waitFor();
  await page.keyboard.press("Enter");
  await board.locator(".card", { hasText: "fails" }).getByText("skipped").waitFor();
  await until("the end of the plan", async () => (await plan()).status === "done");
  await board.locator(".card", { hasText: "after" }).getByText("completed").waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= 390, `${wide} px wide`);
  check(!page.faults.length, page.faults.join());
  await page.context().close();
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
  // Through the queue, if something waits, into the list.
  for (let n = 0; n < 40 && !(await page.locator(".vrow.selected").count()); n += 1) await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.locator(".agent-top").waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
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
  await daemon.forget(page, id);
});

scenario("a key is stored for something that there is", async (page) => {
  await daemon.post("/api/integrations", { id: "hub", name: "Hub", command: "true", env: ["HUB_TOKEN"] });
  await daemon.post("/api/accounts", { name: "night", provider: "ollama" });
  await daemon.api("PATCH", "/api/accounts/night", { label: "The night's" });
  await page.goto(`${daemon.url}/#/credentials`);
  const place = page.getByLabel("For", { exact: true });
  await place.locator("option", { hasText: "Codex · OPENAI_API_KEY" }).waitFor({ state: "attached" });
  const keys = (await daemon.get("/api/providers")).filter((one) => one.envKey).map((one) => one.id);
  const offered = await place.locator("option").evaluateAll((all) => all.map((one) => one.value));
  const wanted = [...keys, "account/night", "integration/hub/HUB_TOKEN"];
  check(JSON.stringify(offered) === JSON.stringify(wanted), `offered ${offered}, there is ${wanted}`);
  for (const name of ["codex", "account/night", "integration/hub/HUB_TOKEN"]) {
    await place.selectOption(name);
    await page.getByLabel("Key", { exact: true }).fill("sk-planted-0123456789");
    await page.getByRole("button", { name: "Store" }).click();
    await page.getByRole("button", { name: `Forget the key for ${name}` }).waitFor();
    check((await page.getByLabel("Key", { exact: true }).inputValue()) === "", "the key stays on the page");
  }
  const hub = await daemon.get("/api/integrations/hub");
  check(hub.configured, "the integration does not have its key");
  const { accounts } = await daemon.get("/api/accounts");
  check(accounts[0].hasKey && accounts[0].label === "The night's", "the account does not have its key");
  await daemon.api("DELETE", "/api/accounts/night");
  await daemon.api("DELETE", "/api/credentials/codex");
  await daemon.api("DELETE", "/api/integrations/hub");
});

scenario("agents without a team stand beside the default one", async (page) => {
  const { id } = await daemon.spawn("worker", "long", { name: "worker-free" });
  await page.goto(`${daemon.url}/#/teams`);
  const card = (name) => page.locator(".card", { has: page.getByRole("heading", { name, exact: true }) });
  const free = (await daemon.get("/api/agents")).filter(
    (one) => one.teamId === "__unassigned__" && ["active", "waiting", "spawning"].includes(one.status),
  );
  check(free.some((one) => one.id === id), "it has a team");
  await card("Unassigned").getByText(/^[1-9]\d* alive$/).waitFor();
  await card("default").getByText("0 alive").waitFor();
  await daemon.forget(page, id);
});

scenario("an integration says what it needs before it is installed", async (page) => {
  await page.goto(`${daemon.url}/#/integrations`);
  const card = page.locator(".card", { has: page.getByText("Stripe", { exact: true }) });
  await card.getByText("Needs STRIPE_SECRET_KEY").waitFor();
  const all = await daemon.get("/api/integrations");
  for (const one of (all.integrations ?? all).filter(({ custom }) => !custom))
    check(one.description?.length > 20, `${one.id} does not say what it is`);
  await page.getByLabel("Filter integrations").fill("repositor");
  await page.getByRole("button", { name: "About GitHub" }).click();
  const about = page.getByRole("dialog", { name: "GitHub" });
  for (const words of [
    "issues",
    "@modelcontextprotocol/server-github, version 2025.4.8",
    "GITHUB_PERSONAL_ACCESS_TOKEN: not stored",
    "create_pull_request",
    "not installed",
  ])
    await about.getByText(words).first().waitFor();
  await page.keyboard.press("Escape");
  await about.waitFor({ state: "detached" });
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

scenario("a session of one's own is found by its words, and adopted by keys", async (page) => {
  const id = "0199f3c2-0000-4000-8000-0000000000aa";
  const line = (kind, at, content) =>
    JSON.stringify({
      type: kind,
      sessionId: id,
      cwd: dir,
      timestamp: `2026-11-23T19:30:0${at}Z`,
      isSidechain: false,
      message: { id: `m${at}`, role: kind, model: "m", content },
    });
  const folder = path.join(claude, "projects", dir.replace(/[^a-zA-Z0-9]/g, "-"));
  fs.mkdirSync(folder, { recursive: true });
  const said = [{ type: "text", text: "The ferry sails at <b>eight</b>." }];
  fs.writeFileSync(path.join(folder, `${id}.jsonl`), `${line("user", 1, "When does the ferry sail?")}\n${line("assistant", 2, said)}\n`);
  await page.keyboard.press("g");
  await page.keyboard.press("o");
  await page.getByRole("cell", { name: "When does the ferry sail?", exact: true }).waitFor();
  await page.getByLabel("Search these sessions").fill("zeppelin");
  await page.keyboard.press("Enter");
  await page.getByText("No entry has all of these words.").waitFor();
  await page.getByLabel("Search these sessions").fill("EIGHT ferry");
  await page.keyboard.press("Enter");
  await page.getByRole("cell", { name: "The ferry sails at <b>eight</b>." }).waitFor();
  // The palette leads there, too.
  await page.goto(`${daemon.url}/#/`);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("ferry sails");
  await page.locator(".palette").getByText("look in the sessions that you had yourself").waitFor();
  for (let n = 0; n < 20 && !(await page.locator('.palette li[aria-selected="true"]', { hasText: "yourself" }).count()); n += 1)
    await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.getByRole("cell", { name: "The ferry sails at <b>eight</b>." }).waitFor();
  check((await page.getByLabel("Search these sessions").inputValue()) === "ferry sails", "the words are not kept");
  await page.getByRole("button", { name: `Adopt ${id}` }).focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/#\/agent\//);
  const agent = await daemon.get("/api/agents/adopted-1");
  check(agent.sessionId === id && agent.state === "waiting", JSON.stringify(agent));
  await page.getByText("The ferry sails at").first().waitFor();
  await page.goto(`${daemon.url}/#/sessions`);
  await page.getByRole("link", { name: "adopted-1" }).waitFor();
  check(!(await page.getByRole("button", { name: /^Adopt / }).count()), "it can be adopted twice");
});
