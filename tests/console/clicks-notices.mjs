// Being told by the browser: with consent, once for each thing, not of what one looks at.

import { check, open, until, watchRequests } from "./lib.mjs";
import { browser, daemon, scenario } from "./clicks-world.mjs";

/** Notices as the page gives them to the browser, which shows none without a desktop. */
const recorder = () => {
  const told = [];
  window.told = told;
  window.Notification = class {
    static permission = "default";
    static async requestPermission() {
      window.asked = (window.asked ?? 0) + 1;
      return (window.Notification.permission = "granted");
    }
    constructor(title, { body, tag }) {
      Object.assign(this, { title, body, tag, closed: false });
      told.push(this);
    }
    close() {
      this.closed = true;
    }
  };
  // Whether somebody looks is what the test says.
  window.looks = false;
  document.hasFocus = () => window.looks;
};

const told = (page) => page.evaluate(() => window.told.map(({ title, body, tag, closed }) => ({ title, body, tag, closed })));

/** Beside agents of other scenarios that have been silent for long, which it tells as well. */
const toldOfApprovals = async (page) => (await told(page)).filter(({ tag }) => tag.includes("approval"));

scenario("the browser tells what waits, once, with consent, and not to who looks at it", async () => {
  for (const n of [1, 2, 3, 4, 5])
    daemon.scenario(`told-${n}`, {
      steps: [{ write: { path: `elsewhere/told-${n}.txt`, text: "x" } }, { answer: "done" }],
    });
  const start = (n) => daemon.spawn("teller", `told-${n}`, { name: `teller-${n}`, scope: ["src/**"] });
  const page = await open(browser, null);
  await page.addInitScript(recorder);
  await page.goto(`${daemon.url}/#/approvals`);
  await page.locator("#pill.live").waitFor();
  const pending = async (n) => (await daemon.get("/api/approvals")).pending.find((one) => one.agentName === `teller-${n}`);
  await start(1);
  await until("a first approval", () => pending(1));
  await page.locator(".card.approval", { hasText: "told-1.txt" }).waitFor();
  await until("the title to count it", async () => /^\(\d+\)/.test(await page.title()));
  await page.evaluate(() => (location.hash = "#/settings"));
  check(!(await toldOfApprovals(page)).length, "it told without having been asked to");
  check(!(await page.evaluate(() => window.asked)), "it asked for consent without a click");
  await page.getByRole("button", { name: "Tell me" }).click();
  await page.getByRole("button", { name: "No more notices" }).waitFor();
  check(!(await toldOfApprovals(page)).length, "it told what had waited before");

  await start(2);
  const [first] = await until("a notice", async () => {
    const all = await toldOfApprovals(page);
    return all.length && all;
  });
  check(first.title.startsWith("teller-2 asks · ") && first.body.includes("told-2.txt"), JSON.stringify(first));
  await page.evaluate(() => {
    window.looks = true;
    location.hash = "#/approvals";
  });
  await page.locator('main[data-route="approvals"]').waitFor();
  await start(3);
  await page.locator(".card.approval", { hasText: "told-3.txt" }).waitFor();
  await page.quiet();
  check((await toldOfApprovals(page)).length === 1, "it told who looks at it, or told again");
  await daemon.post(`/api/approvals/${(await pending(2)).id}/reject`);
  await until("the notice to go", async () => (await toldOfApprovals(page))[0].closed);

  // In another tab there is somebody who looks at it: this one is silent, though nobody looks here.
  const other = await page.context().newPage();
  await other.addInitScript(recorder);
  watchRequests(other);
  await other.goto(`${daemon.url}/#/approvals`);
  await other.locator("#pill.live").waitFor();
  // What waits by then is nothing new to it.
  await other.quiet();
  await other.evaluate(() => {
    window.looks = true;
    window.Notification.permission = "granted";
  });
  await page.evaluate(() => {
    window.looks = false;
    location.hash = "#/tokens";
    window.heard = [];
    new BroadcastChannel("svc-notices").onmessage = ({ data }) => window.heard.push(data);
  });
  await start(5);
  await other.locator(".card.approval", { hasText: "told-5.txt" }).waitFor();
  const { id } = await pending(5);
  await until("the other tab to say so", async () => (await page.evaluate(() => window.heard)).includes(`approval:${id}:`));
  // Back to one who is elsewhere in all tabs: each knows, and the browser shows one of a tag.
  await other.evaluate(() => {
    window.looks = false;
    location.hash = "#/tokens";
  });
  await start(4);
  await until("a second notice", async () => (await toldOfApprovals(page)).length === 2);
  const again = await toldOfApprovals(page);
  check(again[1].body.includes("told-4.txt"), `it told what another tab shows: ${JSON.stringify(again)}`);
  await until("the other tab to know", async () => (await toldOfApprovals(other)).length === 1);
  check((await toldOfApprovals(other))[0].tag === again[1].tag, "two tabs tell under two tags");
  await other.close();
  await page.evaluate((tag) => window.told.find((one) => one.tag === tag).onclick(), again[1].tag);
  await page.locator('main[data-route="approvals"]').waitFor();
  const tags = (await toldOfApprovals(page)).map(({ tag }) => tag);
  check(new Set(tags).size === 2, `tags ${tags}`);
  for (const n of [1, 3, 4, 5]) await daemon.post(`/api/approvals/${(await pending(n)).id}/reject`);
  check(!page.faults.length, page.faults.join("; "));
  await page.context().close();
});

scenario("the browser tells when most of a day's budget is spent, and when all is, once each", async () => {
  const use = (input) => ({ steps: [{ usage: { input, output: 100 } }, { answer: "done" }] });
  // Named like models that have a price.
  daemon.scenario("claude-opus-4-6", use(2_000_000));
  daemon.scenario("claude-haiku-4-5", use(2000));
  const budget = (dailyBudgetUsd) => daemon.api("PATCH", "/api/config", { safety: { dailyBudgetUsd } });
  /** As a budget counts it: what nobody has counted or priced, too. */
  const spent = async () => {
    const { todayUsd, todayEstimatedUsd, todayUnpricedAtMostUsd } = (await daemon.get("/api/dashboard")).cost;
    return todayUsd + todayEstimatedUsd + todayUnpricedAtMostUsd;
  };
  let count = 0;
  const spend = async (model = "claude-haiku-4-5") => {
    const name = `spender-${(count += 1)}`;
    await daemon.spawn("spender", model, { name });
    await daemon.until(name, ["completed", "killed"]);
  };
  await spend("claude-opus-4-6");
  const before = await spent();
  await spend();
  const each = (await spent()) - before;
  check(each > 0, `${before} and then ${await spent()}`);
  const page = await open(browser, null);
  await page.addInitScript(recorder);
  await page.goto(`${daemon.url}/#/settings`);
  await page.locator("#pill.live").waitFor();
  await page.getByRole("button", { name: "Tell me" }).click();
  await page.getByRole("button", { name: "No more notices" }).waitFor();
  await page.evaluate(async () => {
    window.heard = [];
    (await import("/console/store.js")).on("budget:warning", ({ percent }) => window.heard.push(percent));
  });
  const heard = () => page.evaluate(() => window.heard.join());
  const ofBudget = async () => (await told(page)).filter(({ tag }) => tag.includes("budget"));
  const goes = (looks, where) =>
    page.evaluate(
      ([is, hash]) => {
        window.looks = is;
        location.hash = hash;
      },
      [looks, where],
    );
  try {
    await budget((await spent()) / 0.9);
    await spend();
    const [first] = await until("the first notice", async () => {
      const all = await ofBudget();
      return all.length && all;
    });
    check(first.title.startsWith("80 % of a day's budget is spent · ") && first.body.includes("of a daily budget of"), JSON.stringify(first));
    await spend();
    await page.quiet();
    check((await ofBudget()).length === 1 && !(await ofBudget())[0].closed, "it is told again, or is gone");
    // All of it is spent before the eyes of who looks at it.
    await goes(true, "#/tokens");
    await page.locator('main[data-route="tokens"]').waitFor();
    await budget((await spent()) + each / 2);
    await spend();
    await until("the daemon to say so", async () => (await heard()).endsWith("100"));
    await page.quiet();
    check((await ofBudget()).length === 1, "it told who looks at it");
    await goes(false, "#/settings");
    await budget((await spent()) * 10);
    await spend();
    await budget((await spent()) + each / 2);
    await spend();
    // Of the new budget most was spent before: that may be told, too.
    await until("the last notice", async () => (await ofBudget()).at(-1).title.startsWith("A day's budget is spent · "));
    await page.evaluate(() => window.told.at(-1).onclick());
    await page.locator('main[data-route="tokens"]').waitFor();
  } finally {
    await budget(null);
  }
  check(!page.faults.length, page.faults.join("; "));
  await page.context().close();
});
