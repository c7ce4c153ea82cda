// Photographs the console, filled by shop.mjs: `node tests/console/shots.mjs FOLDER [NAME..]`.

import fs from "node:fs";
import path from "node:path";
import { Daemon, Market, launch, makeProject, open } from "./lib.mjs";
import { inbox } from "./inbox.mjs";
import { shop } from "./shop.mjs";

const WIDE = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
/** Sparklines cover two minutes; a few seconds give them something to show. */
const SETTLE_MS = 12_000;

/** Each: file name, hash, and what is done on the page before it is photographed. */
const SHOTS = [
  ["home", ""],
  ["agent", "agent/backend-1", showLogin],
  ["turn", "agent/backend-1", showTurn],
  ["review", "agent/backend-1/diff", showReview],
  ["rotate", "agent/backend-1/rotate"],
  ["about", "agent/backend-1/about"],
  ["touched", "agent/backend-1/files"],
  ["approvals", "approvals"],
  ["teams", "teams"],
  ["tokens", "tokens"],
  ["memory", "memory"],
  ["map", "map"],
  ["audit", "audit"],
  ["schedules", "schedules"],
  ["integrations", "integrations"],
  ["skills", "skills"],
  ["toys", "toys"],
  ["gateways", "gateways"],
  ["credentials", "credentials"],
  ["locks", "locks"],
  ["replay", "replay"],
  ["files", "files/src%2Flogin.js"],
  ["settings", "settings"],
  ["palette", "", (page) => page.keyboard.press("Control+k")],
  ["spawn", "", (page) => page.locator("#new").click()],
  ["menu", "", async (page) => (await page.locator("#menu").isVisible()) && page.locator("#menu").click()],
];

/** Opens the entry in which the login was written. */
async function showLogin(page) {
  await page.locator(".vlist").focus();
  await page.keyboard.press("Home");
  await page.locator(".vrow.tool:not([hidden])", { hasText: "src/login.js" }).last().click();
}

/** Side by side, with a comment on what was added and the form for one on what was removed. */
async function showReview(page) {
  await page.locator(".l.plus").first().waitFor();
  if (!(await page.locator(".pair").count())) await page.keyboard.press("s");
  for (const [line, words] of [
    [page.locator(".l.plus", { hasText: "if (!record)" }), "Say why, or nobody can tell a wrong name from a wrong password."],
    [page.locator(".l.minus").last(), "Was this ever right?"],
  ]) {
    await line.click();
    await page.keyboard.type(words);
    if (words.startsWith("Say")) await page.keyboard.press("Control+Enter");
    await page.locator(".said:not(form)").first().waitFor();
  }
}

/** Reads the turn in which it was written, from where the agent says what came of it. */
async function showTurn(page) {
  await showLogin(page);
  await page.keyboard.press("t");
  await page.locator(".detail .turn h4").scrollIntoViewIfNeeded();
  await page.locator(".detail").evaluate((el) => el.scrollBy(0, 200));
}

const [folder, ...names] = process.argv.slice(2);
fs.mkdirSync(folder, { recursive: true });
const market = await new Market().start();
const daemon = await shop({ skills: { baseUrl: `${market.url}/api/v1` } });
const browser = await launch();
if (!names.length || names.includes("queue")) {
  const full = await inbox();
  const page = await open(browser, full.url, { viewport: WIDE });
  await page.getByText("14 things wait for you").waitFor();
  for (const file of ["a.txt", "b.txt"]) await page.locator(".wait", { hasText: file }).locator("summary").click();
  await page.getByRole("button", { name: "Approve 2 of roles-1" }).waitFor();
  await page.mouse.move(640, 790);
  await page.evaluate(() => window.scrollTo(0, 0));
  await page.screenshot({ path: path.join(folder, "queue.png") });
  await page.context().close();
  await full.remove();
}
if (!names.length || names.includes("compare")) {
  const twins = new Daemon(makeProject());
  const login = (check) => `export function login(user, password) {\n  ${check}\n}\n`;
  const plays = (model, file, input, text) =>
    twins.scenario(model, {
      steps: [
        { read: "src/login.js" },
        { write: { path: "src/login.js", text: file } },
        { usage: { input, output: Math.round(input / 6), cacheRead: input * 9, contextWindow: 200_000 } },
        { run: { command: "wc -l src/login.js" } },
        { say: text },
        { exit: 0 },
      ],
    });
  plays(
    "claude-sonnet-4-6",
    login("const record = users.byName(user);\n  return record && verify(password, record.hash) ? session(record) : null;"),
    9200,
    "A wrong password is **refused** now, and so is a name that nobody has. I compare the hash, not the text.",
  );
  plays("claude-haiku-4-5", login("return users.byName(user)?.password === password ? user : null;"), 5100, "Done: it compares the password.");
  await twins.start();
  const task = { prompt: "The login takes any password. Mend it.", isolation: "worktree" };
  for (const model of ["claude-sonnet-4-6", "claude-haiku-4-5"]) await twins.spawn("login", model, task);
  for (const n of [1, 2]) await twins.until(`login-${n}`, ["completed"]);
  const page = await open(browser, `${twins.url}/#/compare/login-1,login-2`, { viewport: WIDE });
  for (const n of [0, 1]) await page.getByText("What it has changed").nth(n).click();
  await page.locator(".plus").nth(3).waitFor();
  await page.mouse.move(640, 790);
  await page.screenshot({ path: path.join(folder, "compare.png") });
  await page.context().close();
  await twins.remove();
}
for (const [suffix, options] of [
  ["", { viewport: WIDE }],
  ["-dark", { viewport: WIDE, colorScheme: "dark" }],
  ["-phone", { viewport: PHONE, hasTouch: true, isMobile: true }],
]) {
  const page = await open(browser, daemon.url, options);
  await page.locator("#pill.live").waitFor();
  await new Promise((done) => setTimeout(done, SETTLE_MS));
  for (const [name, hash, act] of SHOTS) {
    if (names.length && !names.includes(name + suffix)) continue;
    await page.keyboard.press("Escape");
    await page.evaluate((to) => {
      location.hash = `#/${to}`;
    }, hash);
    await page.locator(`main[data-route="${decodeURIComponent(hash)}"]`).waitFor();
    await page.quiet();
    await act?.(page);
    await page.quiet();
    await page.mouse.move(640, 790);
    await page.screenshot({ path: path.join(folder, `${name}${suffix}.png`) });
    await page.keyboard.press("Escape");
  }
  await page.context().close();
}
await browser.close();
await daemon.remove();
await market.stop();
process.exit(0);
