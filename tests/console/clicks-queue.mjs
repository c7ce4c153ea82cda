// The first screen with many things that wait: rows by kind, keys, several decided at once.

import { Daemon, axe, check, makeProject, open, until } from "./lib.mjs";
import { inbox } from "./inbox.mjs";
import { browser, scenario } from "./clicks-world.mjs";

const PHONE = { width: 390, height: 844 };

scenario("fourteen things wait: rows by kind above the agents, decided by keys and several at once", async () => {
  const daemon = await inbox();
  const page = await open(browser, daemon.url, { bypassCSP: true });
  const row = (who, what = "") => page.locator(".wait", { hasText: who }).filter({ hasText: what });
  await page.getByText("14 things wait for you").waitFor();
  await until("the first ten rows", async () => (await page.locator(".wait").count()) === 10);
  const { y, height } = await page.locator(".page-home .vlist").boundingBox();
  check(y + Math.min(height, 60) < 800, `the agents begin at ${y}`);
  const rows = await page.locator(".wait > summary").evaluateAll((all) => all.map((el) => el.offsetHeight));
  check(rows.every((one) => one < 40), `rows of ${rows} px`);
  await axe(page, "ten rows");
  await page.getByRole("button", { name: "Show 4 more" }).click();
  await until("all rows", async () => (await page.locator(".wait").count()) === 14);
  await page.mouse.move(2, 2);

  // By keys: the first row of all, down to the approvals; what is closed opens before it is decided.
  const key = (name) => page.keyboard.press(name);
  const focused = () => page.evaluate(() => document.activeElement.innerText);
  await page.evaluate(() => document.activeElement.blur());
  await key("j");
  check((await focused()).includes("Which of 1?"), `at ${await focused()}`);
  /** By `j` and `k` to a painter other than this one. */
  const painter = async (not) => {
    const is = async () => /painter-\d/.exec(await focused())?.[0];
    for (const way of ["j", "k"]) {
      for (let n = 0; n < 20; n += 1) {
        const name = await is();
        if (name && name !== not) return name;
        await key(way);
      }
      await row("painter").last().locator("summary").focus();
    }
    throw new Error(`no painter but ${not}, at ${await focused()}`);
  };
  const who = await painter();
  const pending = async (name) => (await daemon.get("/api/approvals")).pending.filter((one) => one.agentName === name).length;
  await key("a");
  await row(who).locator(".card.approval").waitFor();
  check((await pending(who)) === 1, "it was approved before it was shown");
  await key("a");
  await until("the decision", async () => (await pending(who)) === 0);
  await row(who).and(page.locator(".settled")).waitFor();
  check((await page.locator(".wait").count()) === 14, "a row went from under the hand");
  const next = await painter(who);
  await key("x");
  await row(next).locator(".card.approval").waitFor();
  await key("x");
  await until("the second decision", async () => (await pending(next)) === 0);
  const { resolved } = await daemon.get("/api/approvals");
  check(resolved.find((one) => one.agentName === next).status === "rejected", JSON.stringify(resolved));

  // Several of one agent, and only what is shown.
  const group = page.locator(".group", { hasText: "Outside of their scope" });
  const bulk = group.getByRole("button", { name: /^Approve \d+ of roles-1/ });
  check((await bulk.count()) === 0, "closed rows can be approved");
  for (const file of ["a.txt", "b.txt"]) await row("roles-1", file).locator("summary").click();
  await bulk.waitFor();
  check((await bulk.innerText()) === "Approve 2 of roles-1", await bulk.innerText());
  await row("roles-1", "c.txt").locator("summary").focus();
  await key("Enter");
  await group.getByRole("button", { name: "Approve 3 of roles-1" }).waitFor();
  await axe(page, "open rows");
  await group.getByRole("button", { name: "Approve 3 of roles-1" }).focus();
  await key("Enter");
  await page.getByText("3 approved").waitFor();
  check((await pending("roles-1")) === 0, "not all were approved");
  const { entries } = await daemon.get("/api/audit?limit=100");
  const lines = entries.filter((one) => one.event === "approval.approve").map(({ id }) => id);
  // A line that came to something else before it was on disk is followed by its withdrawal, and written anew.
  check(new Set(lines).size === 4, `the audit log has ${lines}`);

  // Those that have crashed, after a question.
  await page.getByRole("button", { name: "Remove 4…" }).click();
  await page.getByText("their records and logs go").waitFor();
  const named = await page.locator("dialog").innerText();
  check([1, 2, 3, 4].every((n) => named.includes(`breaker-${n}`)), named);
  await key("Enter");
  await page.getByText("4 removed").waitFor();
  check(!(await daemon.get("/api/agents")).some(({ name }) => name.startsWith("breaker")), "they are still there");
  check(!page.faults.length, page.faults.join());
  await page.context().close();

  const small = await open(browser, daemon.url, { viewport: PHONE, hasTouch: true, isMobile: true, colorScheme: "dark", bypassCSP: true });
  await small.locator(".wait").first().waitFor();
  await small.locator(".wait > summary").first().tap();
  await small.locator(".wait .card").first().waitFor();
  const wide = await small.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= 390, `${wide} px wide`);
  await axe(small, "on a phone");
  await small.context().close();
  await daemon.remove();
});

scenario("the list of agents in another order, and without those that have ended", async () => {
  const daemon = new Daemon(makeProject("order"));
  daemon.scenario("works", { steps: [{ say: "at it" }, { loop: { times: 3000, steps: [{ sleepMs: 500 }] } }] });
  daemon.scenario("done", { steps: [{ answer: "done" }, { exit: 0 }] });
  await daemon.start();
  for (const name of ["cleo", "ada"]) await daemon.spawn("worker", "works", { name });
  await daemon.spawn("worker", "done", { name: "bert" });
  await daemon.until("bert", ["completed"]);
  const page = await open(browser, daemon.url);
  const names = () => page.locator(".vrow:not([hidden]) .name").allInnerTexts();
  await until("those at work first", async () => (await names()).join() === "cleo,ada,bert");
  await page.getByLabel("Order of the agents").selectOption("name");
  await until("by name", async () => (await names()).sort().join() === "ada,bert,cleo" && (await page.locator(".vrow[data-index='0'] .name").innerText()) === "ada");
  await page.getByLabel("Hide ended").check();
  await until("two of them", async () => (await names()).length === 2);
  await page.reload();
  await until("two of them after it was loaded again", async () => (await names()).join() === "ada,cleo");
  check(!page.faults.length, page.faults.join());
  await page.context().close();
  await daemon.remove();
});
