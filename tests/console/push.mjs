// A phone-sized browser that is told while its page is closed. The daemon encrypts for a real key and posts by TLS to a
// push service, which is this script: it decrypts, and hands what it read to the browser's service worker by the DevTools
// protocol (ServiceWorker.deliverPushMessage). What is not real: the browser's own subscription, which needs a push
// service of its maker. PushManager is stood in for by a few lines below.

import crypto from "node:crypto";
import fs from "node:fs";
import https from "node:https";
import path from "node:path";
import { Daemon, axe, certificateOf, check, chromium, launch, makeProject, open, pinOf, until } from "./lib.mjs";

const TOLD_MS = 2_000;
const DECIDED_MS = 2_000;
const AGAIN_MS = 3_000;
const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

const dir = makeProject("shop");
const authority = path.join(dir, ".svc/push.pem");
const settings = { push: { own: ["127.0.0.1"], certificate: authority } };
fs.mkdirSync(path.join(dir, ".config/svc"), { recursive: true });
fs.writeFileSync(path.join(dir, ".config/svc/config.json"), JSON.stringify(settings));
const daemon = await new Daemon(dir).start();
const { code, url } = await daemon.post("/api/phones/codes", { address: "127.0.0.1:0" });
const ask = async (question) => (await daemon.post("/api/questions", { question })).approvalId;
const phone = async () => (await daemon.get("/api/phones")).phones[0];

/** What a browser keeps of its subscription. */
const own = crypto.createECDH("prime256v1");
own.generateKeys();
const auth = crypto.randomBytes(16);

/** Decrypts as a browser does (RFC 8291, RFC 8188). */
function opened(body) {
  const hkdf = (input, salt, info, bytes) => Buffer.from(crypto.hkdfSync("sha256", input, salt, info, bytes));
  const [salt, sender, sealed] = [body.subarray(0, 16), body.subarray(21, 86), body.subarray(86)];
  const info = Buffer.concat([Buffer.from("WebPush: info\0"), own.getPublicKey(), sender]);
  const input = hkdf(own.computeSecret(sender), auth, info, 32);
  const key = hkdf(input, salt, "Content-Encoding: aes128gcm\0", 16);
  const nonce = hkdf(input, salt, "Content-Encoding: nonce\0", 12);
  const cipher = crypto.createDecipheriv("aes-128-gcm", key, nonce).setAuthTag(sealed.subarray(-16));
  const text = Buffer.concat([cipher.update(sealed.subarray(0, -16)), cipher.final()]);
  return text.subarray(0, text.lastIndexOf(2)).toString();
}

// The push service shows the certificate of the phones' listener, which the daemon has made for this address.
const identity = JSON.parse(fs.readFileSync(path.join(dir, ".svc/state/phone-identity.json")));
const pem = (kind, text) => `-----BEGIN ${kind}-----\n${text}\n-----END ${kind}-----\n`;
fs.writeFileSync(authority, pem("CERTIFICATE", identity.issuer));
const messages = [];
const cert = pem("CERTIFICATE", identity.certificate);
const service = https.createServer({ cert, key: pem("PRIVATE KEY", identity.key) }, async (request, response) => {
  const parts = await request.toArray();
  messages.push({ at: Date.now(), headers: request.headers, text: opened(Buffer.concat(parts)) });
  response.writeHead(201).end();
});
await new Promise((done) => service.listen(0, "127.0.0.1", done));
const subscription = {
  endpoint: `https://127.0.0.1:${service.address().port}/push/1`,
  keys: { p256dh: own.getPublicKey("base64url"), auth: auth.toString("base64url") },
};

/** In the place of the browser's own: it keeps what a page subscribed with, as a browser does. */
function standIn(made) {
  const KEY = "test-subscription";
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const kept = () => {
    const key = localStorage.getItem(KEY);
    if (!key) return null;
    const options = { userVisibleOnly: true, applicationServerKey: bytes(key).buffer };
    return { options, toJSON: () => made, unsubscribe: async () => (localStorage.removeItem(KEY), true) };
  };
  PushManager.prototype.getSubscription = async () => kept();
  PushManager.prototype.subscribe = async (options) => {
    if (Notification.permission !== "granted") throw new DOMException("not allowed", "NotAllowedError");
    localStorage.setItem(KEY, options.applicationServerKey);
    return kept();
  };
}

const port = Number(new URL(url).port);
const browser = await launch([`--ignore-certificate-errors-spki-list=${pinOf(await certificateOf(port))}`], chromium);
const page = await open(browser, null, { ...PHONE, permissions: ["notifications"] });
await page.addInitScript(standIn, subscription);
await page.goto(url);
const devtools = await page.context().newCDPSession(page);
const registrations = [];
devtools.on("ServiceWorker.workerRegistrationUpdated", (event) => registrations.push(...event.registrations));
await devtools.send("ServiceWorker.enable");

async function deliver(data) {
  const { registrationId } = await until("the service worker", async () => registrations.find((one) => !one.isDeleted));
  await devtools.send("ServiceWorker.deliverPushMessage", { origin: new URL(url).origin, registrationId, data });
}

const notices = () =>
  page.evaluate(async () => {
    const all = await (await navigator.serviceWorker.ready).getNotifications();
    return all.map(({ title, body, tag, data }) => ({ title, body, tag, data }));
  });
/** The notices once there is one of this message: DevTools says nothing of a message that it could not deliver. */
async function shows(data) {
  let again = 0;
  return until("the notice", async () => {
    if (Date.now() >= again) {
      await deliver(data);
      again = Date.now() + AGAIN_MS;
    }
    const all = await notices();
    return all.length && all;
  });
}

const focused = () => page.evaluate(() => document.activeElement.id);

/** A tap on the notice of this thing, as the service worker hears of it. */
const tap = (tag) =>
  page.context().serviceWorkers()[0].evaluate(async (wanted) => {
    const [notification] = await registration.getNotifications({ tag: wanted });
    dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  }, tag);

async function subscribed() {
  await page.locator("#code").fill(code);
  await page.getByRole("button", { name: "Pair" }).tap();
  await page.getByRole("button", { name: "Tell me here when something waits" }).tap();
  await page.getByRole("button", { name: "Tell me here no more" }).waitFor();
  check((await phone()).push.host === "127.0.0.1", "the daemon knows where the phone is told");
  await axe(page, "a phone that is told");
  await page.reload();
  await page.getByRole("button", { name: "Tell me here no more" }).waitFor();
  check((await phone()).push.sent === 0, "a reload subscribes anew");
}

async function told() {
  daemon.scenario("stay", { steps: [{ hang: true }] });
  await daemon.spawn("dev", "stay", { name: "owner", scope: ["src/**"] });
  const { id } = await daemon.spawn("dev", "stay", { name: "curious", scope: ["docs/**"] });
  const began = Date.now();
  const { approvalId } = await daemon.post("/api/hooks/write", { agentId: id, tool: "Edit", path: "src/login.js" });
  const message = await until("the message", () => messages.at(-1));
  check(message.at - began <= TOLD_MS, `the message took ${message.at - began} ms`);
  check(!message.text.includes("login"), `it says what is asked: ${message.text}`);
  const [notice] = await shows(message.text);
  const shown = Date.now() - began;
  check(notice.title === "curious waits for your yes or no" && notice.tag === approvalId, JSON.stringify(notice));
  await deliver(message.text);
  check((await notices()).length === 1, "one thing is one notice");
  const card = page.locator(`#${approvalId}`);
  await card.waitFor();
  await page.evaluate(() => scrollTo(0, 0));
  await tap(approvalId);
  await until("the card to be shown", async () => (await focused()) === approvalId);
  // Where no page is open, one is, at the card.
  await page.goto("about:blank");
  await page.goto(`${url}#${approvalId}`);
  await until("the card to be shown", async () => (await focused()) === approvalId);
  check((await page.evaluate(() => location.hash)) === "", "a reload shows it again");
  await deliver(message.text);
  await card.getByRole("button", { name: "Approve" }).waitFor();
  const tapped = Date.now();
  await card.getByRole("button", { name: "Approve" }).tap();
  await until("the approval", async () => (await daemon.get(`/api/approvals/${approvalId}`)).status === "approved");
  const decided = Date.now() - tapped;
  check(decided <= DECIDED_MS, `the approval took ${decided} ms`);
  await until("the notice to go", async () => (await notices()).length === 0);
  await page.goto("about:blank");
  await page.goto(`${url}#${approvalId}`);
  await page.getByText("What the notice was about is decided already.").waitFor();
  return `pushed ${message.at - began} ms, shown ${shown} ms after it was asked, decided ${decided} ms after the tap`;
}

async function malformed() {
  // The page takes away what it does not know whenever it looks at what waits.
  await page.quiet();
  for (const wrong of ["", "x", "[]", "null", '{"title":7}']) await deliver(wrong);
  const all = await until("the notices", async () => (await notices()).length && notices());
  check(all.length === 1 && all[0].tag === "svc", JSON.stringify(all));
}

async function ended() {
  await page.getByRole("button", { name: "Tell me here no more" }).tap();
  await page.getByRole("button", { name: "Tell me here when something waits" }).waitFor();
  check((await phone()).push === null, "the daemon still tells it");
  const before = messages.length;
  await ask("Who hears this?");
  await page.getByRole("button", { name: "Tell me here when something waits" }).tap();
  await page.getByRole("button", { name: "Tell me here no more" }).waitFor();
  await ask("And this?");
  const next = await until("the next message", () => messages[before]);
  check(JSON.parse(next.text).more === 1, next.text);
  await until("the record", async () => (await phone()).push.sent === 1);
  page.away = true;
  // A code, so that the listener stays.
  await daemon.post("/api/phones/codes", { address: "127.0.0.1:0" });
  await daemon.api("DELETE", `/api/phones/${(await phone()).id}`);
  await page.getByText("This phone is not paired, or was revoked.").waitFor();
  await until("the subscription to end", () => page.evaluate(() => localStorage.getItem("test-subscription") === null));
  await ask("Nobody?");
  check(messages.length === before + 1, "a revoked phone is told");
}

let failed = 0;
for (const [name, scenario] of [["subscribed", subscribed], ["told, opened, decided", told], ["malformed", malformed], ["ended", ended]]) {
  const began = Date.now();
  try {
    const more = await scenario();
    check(!page.faults.length, `console errors: ${page.faults.join("; ")}`);
    console.log(`ok   ${name} (${more ?? `${Date.now() - began} ms`})`);
  } catch (error) {
    failed = 1;
    console.log(`FAIL ${name}: ${error.message} [${page.faults.join("; ")}]`);
    break;
  }
}
await browser.close();
service.close();
await daemon.remove();
process.exit(failed);
