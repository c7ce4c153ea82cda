// The connection: lost, taken up again, and from where only a token opens it.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Daemon, check, makeProject, open, text, until } from "./lib.mjs";
import { browser, daemon, dir, scenario } from "./clicks-world.mjs";

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
  await daemon.forget(page, id);
});

scenario("reconnect after a restart of the daemon, without loss or repeats", async (page) => {
  await daemon.spawn("worker", "long", { name: "worker-again" });
  await page.goto(`${daemon.url}/#/agent/worker-again`);
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  // While the daemon is away the browser itself reports refused connections.
  page.away = true;
  await daemon.stop("SIGKILL");
  await page.locator("#pill:not(.live)").waitFor();
  await daemon.start();
  await page.locator("#pill.live").waitFor();
  // Its keeper has kept it at work.
  await page.locator(".agent-top .status.running").waitFor();
  page.away = false;
  await page.locator(".vlist").focus();
  await page.keyboard.press("End");
  await moves(page)();
  check((await counts(page)).connects >= 2, "it did not connect again");
  const { id } = await daemon.get("/api/agents/worker-again");
  await wholeTimeline(page, id);
  await daemon.forget(page, id);
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
  await row.locator(".status.running").waitFor();
  const after = await look();
  check(after.enabled > 0 && after.figures === "none", `it does not come back: ${JSON.stringify(after)}`);
  page.away = false;
  // Ended first, then removed.
  await daemon.api("DELETE", "/api/agents/worker-ghost");
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

scenario("where the operator's token is set, the page asks for it before the first change", async () => {
  const asking = new Daemon(makeProject());
  const token = "a-token-of-this-test";
  asking.env = { SVC_OPERATOR_TOKEN: token };
  await asking.start();
  const page = await open(browser, `${asking.url}/#/settings`);
  const box = page.getByRole("dialog", { name: "Are you a person?" });
  const save = async (count) => {
    await page.getByLabel("Agents at once").fill(String(count));
    await page.getByRole("button", { name: "Save" }).click();
  };
  const answer = async (given) => {
    await box.getByLabel("Token").fill(given);
    await box.getByRole("button", { name: "Continue" }).click();
  };
  const agents = async () => (await asking.get("/api/config")).maxAgents;
  // The browser itself reports what is refused.
  page.away = true;
  await save(7);
  await box.waitFor();
  await page.keyboard.press("Escape");
  await page.locator("[role=alert]", { hasText: "SVC_OPERATOR_TOKEN" }).first().waitFor();
  check(!(await box.count()), "who does not want to say it is asked twice");
  await save(7);
  await box.waitFor();
  const first = await box.elementHandle();
  await answer("a-wrong-one");
  await until("the question to come again", () => first.evaluate((el) => !el.isConnected));
  await box.waitFor();
  check((await agents()) === 50, "it is changed without the token");
  await answer(token);
  await until("the change", async () => (await agents()) === 7);
  page.away = false;
  // The form is filled anew once it is saved.
  await page.quiet();
  await save(8);
  await until("the next change", async () => (await agents()) === 8);
  check(!(await box.count()), "it is asked for again");
  const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie]));
  check(!kept.includes(token), `the browser keeps it: ${kept}`);
  await page.reload();
  page.away = true;
  await save(9);
  await box.waitFor();
  check((await agents()) === 8, "a page that was loaded anew knows it");
  check(!page.faults.length, `console errors: ${page.faults.join("; ")}`);
  await page.context().close();
  await asking.remove();
});

scenario("the link of svc open makes one browser count as a person", async () => {
  const asking = new Daemon(makeProject());
  const token = "a-token-of-this-test";
  asking.env = { SVC_OPERATOR_TOKEN: token };
  await asking.start();
  const asPerson = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const link = async () => {
    const options = { method: "POST", headers: asPerson, body: "{}" };
    return (await (await fetch(`${asking.url}/api/console/codes`, options)).json()).link;
  };
  const agents = async () => (await asking.get("/api/config")).maxAgents;
  const save = async (page, count) => {
    await page.getByLabel("Agents at once").fill(String(count));
    await page.getByRole("button", { name: "Save" }).click();
  };
  const box = (page) => page.getByRole("dialog", { name: "Are you a person?" });
  const used = await link();
  const page = await open(browser, used);
  await page.locator("#pill.live").waitFor();
  check(!page.url().includes("code"), `the code stays in the address: ${page.url()}`);
  await page.goto(`${asking.url}/#/settings`);
  await save(page, 7);
  await until("the change", async () => (await agents()) === 7);
  check(!(await box(page).count()), "it asks although the link has proven it");
  check((await page.evaluate(() => document.cookie)) === "", "scripts can read the cookie");
  await page.reload();
  await save(page, 8);
  await until("the change after a reload", async () => (await agents()) === 8);
  const second = await page.context().newPage();
  await second.goto(`${asking.url}/#/settings`);
  await save(second, 9);
  await until("the change in another tab", async () => (await agents()) === 9);
  check(!page.faults.length, `console errors: ${page.faults.join("; ")}`);

  // Another browser gains nothing by the link that was used.
  const other = await open(browser, used);
  other.away = true;
  await other.locator(".toast.bad", { hasText: "svc open" }).waitFor();
  await other.goto(`${asking.url}/#/settings`);
  await save(other, 3);
  await box(other).waitFor();
  check((await agents()) === 9, "a used link proves something");
  await other.context().close();

  const ended = await fetch(`${asking.url}/api/console/sessions`, { method: "DELETE", headers: asPerson });
  check((await ended.json()).ended === 1, "the session is not counted");
  page.away = true;
  await save(page, 4);
  await box(page).waitFor();
  check((await agents()) === 9, "a session that was ended proves something");
  await page.context().close();
  await asking.remove();
});
