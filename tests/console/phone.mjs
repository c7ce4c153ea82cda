// A phone-sized browser: paired by the six digits, a card read and decided, an answer given, another origin refused,
// the page kept without a network, and what a revoked phone sees. It knows the certificate by its key, as a phone that
// was made to trust it does.

import crypto from "node:crypto";
import http from "node:http";
import https from "node:https";
import { Daemon, axe, certificateOf, check, chromium, launch, makeProject, open, pinOf, text, until } from "./lib.mjs";

const DECIDED_MS = 2_000;
const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

const daemon = await new Daemon(makeProject("shop")).start();
const invite = (more = {}) => daemon.post("/api/phones/codes", { address: "127.0.0.1:0", ...more });
const ask = async (question) => (await daemon.post("/api/questions", { question })).approvalId;
const { code, url, fingerprint } = await invite({ name: "pocket" });
const port = Number(new URL(url).port);

/** What the listener shows. */
const shown = await certificateOf(port);
check(shown.fingerprint256 === fingerprint, `the fingerprint is ${shown.fingerprint256}, told is ${fingerprint}`);
const issuer = new crypto.X509Certificate((await daemon.get("/api/phones")).listener.toTrust.certificate);
check(issuer.ca && shown.verify(issuer.publicKey) && shown.checkIP("127.0.0.1"), "the certificate of another");

const browser = await launch([`--ignore-certificate-errors-spki-list=${pinOf(shown)}`], chromium);

async function pair(page, digits) {
  await page.locator("#code").fill(digits);
  await page.getByRole("button", { name: "Pair" }).tap();
}

async function run(page) {
  check((await text(page, "#print")).includes(fingerprint), "the fingerprint of the picture is shown");
  const wrong = String((Number(code) + 1) % 1_000_000).padStart(6, "0");
  page.away = true;
  await pair(page, wrong);
  await page.getByText("the code is wrong, used up or too old").waitFor();
  await axe(page, "the page before it is paired");
  await until("the moment that a wrong code costs", async () => {
    await pair(page, code);
    return (await page.locator("#queue").isVisible()) || (await page.locator("#queue").waitFor({ timeout: 500 }).then(() => true, () => false));
  });
  page.away = false;
  await page.getByText("Nothing waits for you.").waitFor();
  await page.getByText("connected", { exact: true }).waitFor();

  // Agents that ask for what is not theirs.
  daemon.scenario("stay", { steps: [{ hang: true }] });
  await daemon.spawn("dev", "stay", { name: "owner", scope: ["src/**"] });
  const { id } = await daemon.spawn("dev", "stay", { name: "curious", scope: ["docs/**"] });
  const hook = { agentId: id, tool: "Edit", path: "src/login.js" };
  const { approvalId } = await daemon.post("/api/hooks/write", hook);
  const began = Date.now();
  const card = page.locator(`#${approvalId}`);
  await card.getByRole("button", { name: "Approve" }).waitFor();
  const told = await card.innerText();
  check(told.includes("curious") && told.includes("src/login.js") && told.includes("owner"), `the card: ${told}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(wide <= 0, `the page is ${wide} px wider than the phone`);
  await axe(page, "a card");
  const cardShown = Date.now() - began;
  const tapped = Date.now();
  await card.getByRole("button", { name: "Approve" }).tap();
  const done = await until("the approval", async () => {
    const one = await daemon.get(`/api/approvals/${approvalId}`);
    return one.status === "approved" && one;
  });
  const decided = Date.now() - tapped;
  check(done.resolvedBy === "phone:pocket", `decided by ${done.resolvedBy}`);
  check(decided <= DECIDED_MS, `the approval took ${decided} ms`);

  const question = await ask("Tabs <b>or</b> \u202espaces?");
  const asked = page.locator(`#${question}`);
  await asked.waitFor();
  check((await asked.innerText()).includes("Tabs <b>or</b> \\u{202e}spaces?"), "words are text, and all of it is seen");
  await asked.getByRole("textbox").fill("tabs");
  await asked.getByRole("button", { name: "Answer" }).tap();
  await until("the answer", async () => (await daemon.get(`/api/approvals/${question}`)).reason === "tabs");
  return `card ${cardShown} ms after it was asked with axe, decided ${decided} ms after the tap`;
}

/** What a thief who has the cookie alone is answered. */
const stolen = (cookie) =>
  new Promise((done, failed) => {
    const options = { host: "127.0.0.1", port, path: "/api/approvals", headers: { Cookie: cookie }, rejectUnauthorized: false };
    https.get(options, (response) => done(response.resume().statusCode)).on("error", failed);
  });

/** A page of another port of the same machine, which the phone's cookie goes to. */
async function elsewhere(page) {
  let cookie = "";
  const server = http.createServer((request, response) => {
    cookie = request.headers.cookie ?? cookie;
    response.setHeader("Content-Type", "text/html").end("<!doctype html><title>lure</title>");
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const other = await page.context().newPage();
  await other.goto(`http://127.0.0.1:${server.address().port}/`);
  const api = `https://127.0.0.1:${port}/api/approvals`;
  const refused = other.waitForResponse((response) => response.url() === api);
  await other.evaluate((where) => fetch(where, { mode: "no-cors", credentials: "include" }).catch(() => {}), api);
  check((await refused).status() === 403, `another origin was answered ${(await refused).status()}`);
  const key = await page.evaluate(() => localStorage.getItem("svc-phone"));
  const heard = await other.evaluate(
    (where) => new Promise((done) => Object.assign(new WebSocket(where), { onopen: () => done(true), onerror: () => done(false) })),
    `wss://127.0.0.1:${port}/api/ws?key=${key}`,
  );
  check(!heard, "another origin has a WebSocket, though it knew the key");
  // A browser trusts its own machine with secure cookies, whatever the port and without TLS: one half, worth nothing.
  check(cookie.includes("__Host-svc-phone="), "the browser sends no cookie to another port any more; say so in docs/phone.md");
  check((await stolen(cookie)) === 401, "a stolen cookie opens something");
  const readable = await page.evaluate(() => document.cookie);
  check(readable === "", `scripts read ${readable}`);
  await other.close();
  server.close();
}

async function offline(page) {
  await page.evaluate(() => navigator.serviceWorker.ready);
  await until("the page to be kept", () => page.evaluate(async () => (await (await caches.open("svc-phone")).keys()).length === 5));
  page.away = true;
  await page.context().setOffline(true);
  await page.reload();
  await page.getByText("The daemon cannot be reached from here").waitFor();
  check((await text(page, "h1")) === "svc", "the page without a network");
  const kept = await page.evaluate(async () => (await (await caches.open("svc-phone")).keys()).map((one) => new URL(one.url).pathname));
  check(kept.every((one) => one.startsWith("/phone")), `kept: ${kept}`);
  await page.context().setOffline(false);
  await page.getByText("connected", { exact: true }).waitFor();
  page.away = false;
}

async function revoked(page) {
  page.away = true;
  const { phones } = await daemon.get("/api/phones");
  // Another one, so that the listener stays.
  const stays = await invite();
  const second = await open(browser, stays.url, PHONE);
  await pair(second, stays.code);
  await second.locator("#queue").waitFor();
  await daemon.api("DELETE", `/api/phones/${phones[0].id}`);
  await page.getByText("This phone is not paired, or was revoked.").waitFor();
  check(await page.locator("#pair").isVisible(), "it is offered to pair");
  check((await page.evaluate(() => localStorage.getItem("svc-phone"))) === null, "its key is kept");
  const id = await ask("Who is left?");
  await second.locator(`#${id}`).waitFor();
  check((await page.locator(`#${id}`).count()) === 0, "it hears what waits");
}

let failed = 0;
const page = await open(browser, `${url}#${fingerprint.replaceAll(":", "")}`, { ...PHONE, ignoreHTTPSErrors: false });
for (const [name, scenario] of [["paired, decided, answered", run], ["another origin", elsewhere], ["without a network", offline], ["revoked", revoked]]) {
  const began = Date.now();
  try {
    const more = await scenario(page);
    check(!page.faults.length, `console errors: ${page.faults.join("; ")}`);
    console.log(`ok   ${name} (${more ?? `${Date.now() - began} ms`})`);
  } catch (error) {
    failed = 1;
    console.log(`FAIL ${name}: ${error.message} [${page.faults.join("; ")}]`);
    break;
  }
}
await browser.close();
await daemon.remove();
process.exit(failed);
