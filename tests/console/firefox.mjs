// Web push from end to end in a real browser: Firefox subscribes itself, at a push service that is this script and speaks
// what Mozilla's speaks with it (`dom.push.serverURL`); the daemon encrypts for the key that Firefox has made, and Firefox
// decrypts and wakes the page's service worker. Firefox trusts the daemon's certificate as a phone is made to: it stands
// among its authorities.

import { execFileSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import https from "node:https";
import { createRequire } from "node:module";
import path from "node:path";
import { Daemon, check, makeProject, tools, until } from "./lib.mjs";

const TOLD_MS = 2_000;
const need = createRequire(path.join(tools, "package.json"));
const { WebSocketServer } = need("ws");
const puppeteer = need("puppeteer-core");
const firefox = process.env.SVC_FIREFOX ?? "/usr/bin/firefox-esr";

const dir = makeProject("shop");
const authority = path.join(dir, ".svc/push.pem");
const settings = { push: { own: ["127.0.0.1"], certificate: authority } };
fs.mkdirSync(path.join(dir, ".config/svc"), { recursive: true });
fs.writeFileSync(path.join(dir, ".config/svc/config.json"), JSON.stringify(settings));
const daemon = await new Daemon(dir).start();
const { code, url } = await daemon.post("/api/phones/codes", { address: "127.0.0.1:0" });
const phone = async () => (await daemon.get("/api/phones")).phones[0];

const identity = JSON.parse(fs.readFileSync(path.join(dir, ".svc/state/phone-identity.json")));
const pem = (kind, text) => `-----BEGIN ${kind}-----\n${text}\n-----END ${kind}-----\n`;
fs.writeFileSync(authority, pem("CERTIFICATE", identity.issuer));

// The push service: what comes to an endpoint goes to the browser that has registered its channel.
const channels = new Map();
const posted = [];
const cert = pem("CERTIFICATE", identity.certificate);
const service = https.createServer({ cert, key: pem("PRIVATE KEY", identity.key) }, async (request, response) => {
  const channelID = request.url.split("/").at(-1);
  const data = Buffer.concat(await request.toArray()).toString("base64url");
  posted.push(Date.now());
  const line = channels.get(channelID);
  response.writeHead(line ? 201 : 410).end();
  const headers = { encoding: request.headers["content-encoding"] };
  line?.send(JSON.stringify({ messageType: "notification", channelID, version: crypto.randomUUID(), data, headers }));
});
new WebSocketServer({ server: service }).on("connection", (line) => {
  line.on("message", (bytes) => {
    const { messageType, channelID } = JSON.parse(bytes);
    const answer = (more) => line.send(JSON.stringify({ messageType, status: 200, ...more }));
    if (messageType === "hello") answer({ uaid: crypto.randomUUID().replaceAll("-", ""), use_webpush: true });
    if (messageType === "register") {
      channels.set(channelID, line);
      answer({ channelID, pushEndpoint: `https://127.0.0.1:${service.address().port}/push/${channelID}` });
    }
    if (messageType === "unregister") {
      channels.delete(channelID);
      answer({ channelID });
    }
  });
});
await new Promise((done) => service.listen(0, "127.0.0.1", done));

const profile = path.join(dir, ".svc/firefox");
fs.mkdirSync(profile);
const certutil = (...words) => execFileSync("certutil", [...words, "-d", `sql:${profile}`]);
certutil("-N", "--empty-password");
certutil("-A", "-n", "svc", "-t", "C,,", "-i", authority);
const browser = await puppeteer.launch({
  browser: "firefox",
  executablePath: firefox,
  userDataDir: profile,
  extraPrefsFirefox: {
    "dom.push.serverURL": `wss://127.0.0.1:${service.address().port}/`,
    "dom.push.connection.enabled": true,
    "permissions.default.desktop-notification": 1,
    "alerts.useSystemBackend": false,
  },
});
const page = await browser.newPage();
await page.setViewport({ width: 390, height: 844, isMobile: false });

const button = (words) =>
  until(`the button ${words}`, () =>
    page.evaluate((wanted) => [...document.querySelectorAll("button")].some((one) => one.offsetParent && one.textContent === wanted), words),
  );
const press = async (words) => {
  await button(words);
  await page.locator(`::-p-xpath(//button[.="${words}"])`).click();
};
const notices = () =>
  page.evaluate(async () => {
    const all = await (await navigator.serviceWorker.ready).getNotifications();
    return all.map(({ title, tag }) => ({ title, tag }));
  });

async function run() {
  await page.goto(url);
  await page.locator("#code").fill(code);
  await press("Pair");
  await press("Tell me here when something waits");
  await button("Tell me here no more");
  check((await phone()).push.host === "127.0.0.1" && channels.size === 1, "the daemon knows where the phone is told");
  const began = Date.now();
  const { approvalId } = await daemon.post("/api/questions", { question: "Which port?" });
  const [notice] = await until("the notice", async () => (await notices()).length && notices());
  const shown = Date.now() - began;
  check(notice.title === "operator asks you" && notice.tag === approvalId, JSON.stringify(notice));
  check(posted[0] - began <= TOLD_MS, `the message took ${posted[0] - began} ms`);
  await until("the record", async () => (await phone()).push.sent === 1);
  await daemon.api("POST", `/api/approvals/${approvalId}/reject`, {});
  await until("the notice to go", async () => (await notices()).length === 0);
  // The browser's subscription ends, and the service says so.
  await press("Tell me here no more");
  await button("Tell me here when something waits");
  await until("the channel to be given back", () => channels.size === 0);
  check((await phone()).push === null, "the daemon still tells it");
  return `pushed ${posted[0] - began} ms, shown ${shown} ms after it was asked, by ${await browser.version()}`;
}

let failed = 0;
try {
  console.log(`ok   subscribed, told, taken back (${await run()})`);
} catch (error) {
  failed = 1;
  console.log(`FAIL subscribed, told, taken back: ${error.stack}`);
  console.log(await page.evaluate(() => document.body.innerText).catch(String));
}
await browser.close();
service.close();
service.closeAllConnections();
await daemon.remove();
process.exit(failed);
