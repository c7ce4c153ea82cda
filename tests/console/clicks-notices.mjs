// Being told by the browser: with consent, once for each thing, not of what one looks at.

import { check, open, until } from "./lib.mjs";
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

scenario("the browser tells what waits, once, with consent, and not to who looks at it", async () => {
  for (const n of [1, 2, 3, 4])
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
  check(!(await told(page)).length, "it told without having been asked to");
  check(!(await page.evaluate(() => window.asked)), "it asked for consent without a click");
  await page.getByRole("button", { name: "Tell me" }).click();
  await page.getByRole("button", { name: "No more notices" }).waitFor();
  check(!(await told(page)).length, "it told what had waited before");

  await start(2);
  const [first] = await until("a notice", async () => {
    const all = await told(page);
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
  check((await told(page)).length === 1, "it told who looks at it, or told again");
  await daemon.post(`/api/approvals/${(await pending(2)).id}/reject`);
  await until("the notice to go", async () => (await told(page))[0].closed);

  // Back to one who is elsewhere: a click leads to what was told.
  await page.evaluate(() => {
    window.looks = false;
    location.hash = "#/tokens";
  });
  await start(4);
  await until("a second notice", async () => (await told(page)).length === 2);
  await page.evaluate(() => window.told[1].onclick());
  await page.locator('main[data-route="approvals"]').waitFor();
  const tags = (await told(page)).map(({ tag }) => tag);
  check(new Set(tags).size === 2, `tags ${tags}`);
  for (const n of [1, 3, 4]) await daemon.post(`/api/approvals/${(await pending(n)).id}/reject`);
  check(!page.faults.length, page.faults.join("; "));
  await page.context().close();
});
