// Drives the console in a browser against a daemon of its own. Each scenario prints one line; the exit
// status is the number of those that failed. Words on the command line choose scenarios.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { Daemon, axeSource, launch, makeProject, open, until } from "./lib.mjs";

const FRAME_LIMIT_MS = 32;
const PAINT_LIMIT_MS = 200;
const WEIGHT_LIMIT = 300 * 1024;
const RUNS = 5;
const MANY_AGENTS = 1000;
const MANY_ENTRIES = 100_000;

const scenarios = [];
const scenario = (name, run) => scenarios.push([name, run]);
const check = (is, what) => {
  if (!is) throw new Error(what);
};
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const text = (page, selector) => page.locator(selector).first().innerText();

let daemon;
let browser;
const dir = makeProject();
const git = (...args) =>
  execFileSync("git", ["-c", "user.email=a@example.org", "-c", "user.name=a", ...args], {
    cwd: dir,
    stdio: "ignore",
  });

const LONG = {
  steps: [
    { say: "I begin" },
    { usage: { input: 900, output: 80, cacheRead: 60000, contextWindow: 200000 } },
    { run: { command: "echo checked" } },
    { loop: { times: 3000, steps: [{ say: "<img src=x onerror=alert(1)> still at it" }, { sleepMs: 400 }] } },
  ],
  onSay: [{ say: "You said: {{message}}" }],
};

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
  await page.locator(".vrow.tool").first().waitFor();
  await page.locator("h1", { hasText: "counter-1" }).waitFor();
  await page.locator(".vrow.tool").first().click();
  await page.getByRole("button", { name: "Raw line" }).click();
  check((await text(page, ".detail")).includes('"type": "tool-started"'), "the raw line is not shown");
  check(!(await page.locator(".vlist b", { hasText: /^words$/ }).count()), "a task became markup");
});

scenario("live output, as text, and an instruction", async (page) => {
  daemon.scenario("long", LONG);
  await daemon.spawn("worker", "long", { name: "worker-live" });
  await page.goto(`${daemon.url}/#/agent/worker-live`);
  const row = page.locator(".vrow.text", { hasText: "<img src=x onerror=alert(1)> still at it" }).first();
  await row.waitFor();
  check(!(await page.locator("main img").count()), "words of an agent became an image");
  const before = await text(page, ".follow");
  await until("more entries", async () => (await text(page, ".follow")) !== before);
  await page.keyboard.press("i");
  await page.keyboard.type("use tabs");
  await page.keyboard.press("Enter");
  await page.locator(".vrow.user", { hasText: "use tabs" }).waitFor();
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
    const { resolved } = await daemon.api("GET", "/api/approvals");
    const of = (n) => resolved.find((one) => one.action.filePath === `elsewhere/file-${n}.txt`);
    return of(1)?.status === "approved" && of(2)?.status === "rejected" && of(2).reason === "not there";
  });
  await page.mouse.move(2, 2);
  await page.locator(".status.rejected").first().waitFor();
});

scenario("rotate with a preview, then kill", async (page) => {
  const old = await daemon.spawn("worker", "long", { name: "worker-turn", prompt: "Write the handbook" });
  await daemon.until("worker-turn", ["running"]);
  await page.goto(`${daemon.url}/#/agent/${old.id}/rotate`);
  await page.locator(".brief", { hasText: "Write the handbook" }).waitFor();
  await page.getByRole("button", { name: "Rotate now" }).click();
  await until(
    "the address of the successor",
    () => page.url().includes("/agent/") && !page.url().includes(old.id),
  );
  await page.locator("h1", { hasText: "worker-turn" }).waitFor();
  await page.locator(".vrow", { hasText: "I begin" }).first().waitFor();
  await page.locator(".agent-top .status.running").waitFor();
  await page.getByRole("button", { name: "Kill", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Kill" }).click();
  await page.locator(".agent-top .status.killed").waitFor();
});

scenario("edit a file, and refuse to overwrite another's change", async (page) => {
  await page.goto(`${daemon.url}/#/files/src%2Flogin.js`);
  const editor = page.getByLabel("Text of src/login.js");
  await editor.fill("export const login = 1;\n");
  await page.keyboard.press("Control+s");
  await page.getByText("saved", { exact: false }).first().waitFor();
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
  await until("the setting", async () => (await daemon.api("GET", "/api/config")).maxAgents === 60);
});

scenario("command palette and keys", async (page) => {
  await page.goto(`${daemon.url}/#/`);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("memo");
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "Memory" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.locator(".vrow.agent-row").first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.locator(".agent-top").waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
});

scenario("reconnect after a restart of the daemon, without loss or repeats", async (page) => {
  await daemon.spawn("worker", "long", { name: "worker-again" });
  await page.goto(`${daemon.url}/#/agent/worker-again`);
  await page.locator(".vrow.text").first().waitFor();
  page.away = true;
  await daemon.stop("SIGKILL");
  await page.locator("#pill:not(.live)").waitFor();
  await daemon.start();
  await page.locator("#pill.live").waitFor();
  await page.locator(".agent-top .status.interrupted").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator(".agent-top .status.running").waitFor();
  page.away = false;
  const id = page.url().split("/agent/")[1];
  await page.locator(".vlist").focus();
  await page.keyboard.press("End");
  const before = await text(page, ".follow");
  await until("more entries of the second life", async () => (await text(page, ".follow")) !== before);
  // What the page holds is what the log says, entry by entry.
  const shown = await page.evaluate(async (agent) => {
    const { Log } = await import("/console/log.js");
    const log = new Log(agent, () => {});
    await log.start();
    const once = log.entries;
    await log.follow();
    return { entries: log.entries, last: log.last, first: log.first, once };
  }, id);
  check(
    shown.entries === shown.last - shown.first + 1,
    `entries are missing or doubled: ${JSON.stringify(shown)}`,
  );
  const counts = await page.evaluate(async () => (await import("/console/store.js")).store.counts);
  check(counts.connects >= 2, "it did not connect again");
  await daemon.api("DELETE", "/api/agents/worker-again");
});

const PAGES = [
  "",
  "approvals",
  "teams",
  "schedules",
  "files",
  "files/README.md",
  "locks",
  "tokens",
  "memory",
  "map",
  "audit",
  "integrations",
  "skills",
  "toys",
  "gateways",
  "credentials",
  "settings",
  "agent/counter-1",
  "agent/counter-1/diff",
  "agent/counter-1/files",
  "agent/counter-1/rotate",
  "agent/counter-1/about",
  "nowhere",
];

scenario("axe finds nothing on any page, light and dark", async () => {
  const api = await daemon.api("GET", "/api/openapi.json");
  for (const colorScheme of ["light", "dark"]) {
    // The checker itself is injected, which the pages' own policy rightly forbids.
    const page = await open(browser, daemon.url, { bypassCSP: true, colorScheme });
    await page.evaluate(axeSource());
    for (const name of [...PAGES, "spawn dialog", "palette"]) {
      const optional = ["teams", "schedules", "integrations", "skills", "toys", "gateways"].includes(name);
      if (optional && !api.paths[`/api/${name}`]) continue;
      if (name === "spawn dialog") {
        await page.evaluate(() => {
          location.hash = "#/";
        });
        await page.locator("#new").click();
      } else if (name === "palette") {
        await page.keyboard.press("Escape");
        await page.keyboard.press("Control+k");
      } else {
        await page.evaluate((hash) => {
          location.hash = `#/${hash}`;
        }, name);
        await page.locator("main h1").first().waitFor({ state: "attached" });
      }
      await page.waitForLoadState("networkidle");
      const { violations } = await page.evaluate(() => globalThis.axe.run(document));
      const said = violations.map(
        (one) =>
          `${one.id}: ${one.nodes
            .slice(0, 3)
            .map((node) => node.html.slice(0, 160))
            .join(" | ")}`,
      );
      check(!violations.length, `${colorScheme} ${name || "home"}: ${said.join("; ")}`);
    }
    check(!page.faults.length, `console errors: ${page.faults.join("; ")}`);
    await page.context().close();
  }
});

scenario("page weight and first paint", async () => {
  const paints = [];
  for (let run = 0; run < RUNS; run += 1) {
    const page = await open(browser, daemon.url);
    await page.locator("#pill.live").waitFor();
    const paint = await until("a first paint", () =>
      page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime),
    );
    paints.push(paint);
    await page.context().close();
  }
  const names = fs.readdirSync(new URL("../../src/console/assets", import.meta.url));
  let weight = (await (await fetch(daemon.url)).text()).length;
  for (const name of names.filter((one) => one !== "index.html")) {
    const answer = await fetch(`${daemon.url}/console/${name}`);
    check(answer.ok, `${name} is not served`);
    weight += (await answer.arrayBuffer()).byteLength;
  }
  console.log(
    `     first contentful paint: median ${median(paints).toFixed(0)} ms of ${RUNS} runs (limit ${PAINT_LIMIT_MS}); all files: ${(weight / 1024).toFixed(0)} KB uncompressed (limit ${WEIGHT_LIMIT / 1024})`,
  );
  check(weight < WEIGHT_LIMIT, `${weight} bytes`);
  check(median(paints) < PAINT_LIMIT_MS, `first paint ${paints}`);
});

/** Scrolls the list from end to end and answers the times between frames. */
const scroll = (page, selector, steps) =>
  page.evaluate(
    async ([css, count]) => {
      const el = document.querySelector(css);
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      const times = [];
      const work = [];
      const bottom = el.scrollHeight - el.clientHeight;
      let last = await frame();
      for (let step = 0; step <= count; step += 1) {
        const began = performance.now();
        el.scrollTop = bottom - (bottom * step) / count;
        el.getBoundingClientRect();
        work.push(performance.now() - began);
        const now = await frame();
        times.push(now - last);
        last = now;
      }
      times.sort((a, b) => a - b);
      return {
        frames: times.length,
        median: times[Math.floor(times.length / 2)],
        p95: times[Math.floor(times.length * 0.95)],
        worst: times[times.length - 1],
        rows: el.querySelectorAll(".vrow").length,
        height: bottom,
      };
    },
    [selector, steps],
  );

const told = (what, result) =>
  console.log(
    `     ${what}: median frame ${result.median.toFixed(1)} ms, 95 % below ${result.p95.toFixed(1)} ms, worst ${result.worst.toFixed(1)} ms (limit ${FRAME_LIMIT_MS}); ${result.rows} rows in the page`,
  );

scenario(`${MANY_AGENTS} agents scroll smoothly while 200 events a second come`, async () => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  const one = await daemon.api("GET", "/api/agents/counter-1");
  const record = (n) => ({
    ...one,
    id: n.toString(16).padStart(8, "0"),
    name: `agent-${n}`,
    status: n % 3 ? "running" : "completed",
    tokensUsed: n * 991,
    contextUsage: (n % 100) / 100,
    currentActivity: `step ${n}`,
  });
  let seq = 1;
  await page.routeWebSocket(/\/ws/, (socket) => {
    const send = (message) =>
      socket.send(JSON.stringify({ ...message, seq: (seq += 1), ts: new Date().toISOString() }));
    send({ type: "state", data: Array.from({ length: MANY_AGENTS }, (_, n) => record(n)) });
    const timer = setInterval(() => {
      for (let n = 0; n < 9; n += 1)
        socket.send(
          `{"type":"agent:output","agentId":"${(seq % MANY_AGENTS).toString(16).padStart(8, "0")}","data":{},"seq":${(seq += 1)},"ts":""}`,
        );
      send({ type: "state:delta", data: { changed: [record(seq % MANY_AGENTS)], removed: [] } });
    }, 50);
    socket.onClose(() => clearInterval(timer));
  });
  await page.goto(daemon.url);
  await page.locator(".vrow.agent-row").first().waitFor();
  const result = await scroll(page, ".vlist", 300);
  told(`${MANY_AGENTS} agents`, result);
  check(result.p95 < FRAME_LIMIT_MS, `frames of ${result.p95} ms`);
  check(result.rows < 100, `${result.rows} rows`);
  const heap = () => page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
  const before = await heap();
  const taken = () => page.evaluate(async () => (await import("/console/store.js")).store.counts.taken);
  const from = await taken();
  await until("2000 more events", async () => (await taken()) > from + 2000, 30000);
  console.log(
    `     browser heap: ${(before / 1048576).toFixed(1)} MB, after 2000 more events ${((await heap()) / 1048576).toFixed(1)} MB`,
  );
  await context.close();
});

scenario(`${MANY_ENTRIES} entries scroll smoothly`, async (page) => {
  daemon.scenario("many", { steps: [{ flood: { lines: MANY_ENTRIES, bytes: 80 } }] });
  const agent = await daemon.spawn("flooder", "many");
  await until(
    "the whole flood",
    async () =>
      ((await daemon.api("GET", `/api/agents/${agent.id}/log?tail=1`)).entries[0]?.n ?? 0) >= MANY_ENTRIES,
    120000,
  );
  await page.goto(`${daemon.url}/#/agent/${agent.id}`);
  await page.locator(".vrow").first().waitFor();
  await page.locator(".vlist").focus();
  const began = Date.now();
  await page.keyboard.press("Home");
  await until(
    "all entries",
    async () =>
      Number((await text(page, ".follow")).replace(/,/g, "").match(/^(\d+) of/)?.[1] ?? 0) >= MANY_ENTRIES,
    60000,
  );
  console.log(`     all ${MANY_ENTRIES} entries read in ${((Date.now() - began) / 1000).toFixed(1)} s`);
  const result = await scroll(page, ".vlist", 400);
  told(`${MANY_ENTRIES} entries`, result);
  check(result.height > MANY_ENTRIES * 25, `only ${result.height} px`);
  check(result.p95 < FRAME_LIMIT_MS, `frames of ${result.p95} ms`);
  check(result.rows < 150, `${result.rows} rows`);
});

git("init", "-q", ".");
git("add", "-A");
git("commit", "-qm", "start");
daemon = await new Daemon(dir).start();
await daemon.api("PATCH", "/api/config", { maxAgents: 50 });
browser = await launch();
let failed = 0;
const chosen = process.argv.slice(2);
for (const [name, run] of scenarios) {
  if (chosen.length && !chosen.some((word) => name.includes(word))) continue;
  const page = await open(browser, daemon.url);
  const began = Date.now();
  try {
    await page.locator("#pill.live").waitFor();
    await run(page);
    check(!page.faults.length, `console errors: ${page.faults.join("; ")}`);
    console.log(`ok   ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed += 1;
    console.log(
      `FAIL ${name}: ${String(error.message).slice(0, 1500)}${page.faults.length ? ` [console: ${page.faults.join("; ")}]` : ""}`,
    );
    if (process.env.SVC_CONSOLE_SHOTS)
      await page
        .screenshot({ path: path.join(process.env.SVC_CONSOLE_SHOTS, `failed-${failed}.png`) })
        .catch(() => {});
  }
  await page.context().close();
}
await browser.close();
await daemon.stop();
fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
process.exitCode = failed;
