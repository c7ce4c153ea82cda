// What the browser tests share: a daemon and a marketplace of their own, a browser, and watched pages.

import { execFileSync, spawn } from "node:child_process";
import crypto from "node:crypto";
import { createRequire } from "node:module";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import tls from "node:tls";

const root = path.resolve(import.meta.dirname, "../..");
export const tools = process.env.SVC_CONSOLE_TOOLS_DIR ?? path.join(root, "target/console-tools");
const need = createRequire(path.join(tools, "package.json"));
export const chromium = process.env.SVC_CHROMIUM ?? "/usr/bin/chromium";
/** The same browser without windows, for half of the processor time; it keeps no notices and no offline pages. */
const SHELL = "/usr/bin/chromium-headless-shell";
const bare = process.env.SVC_CHROMIUM || !fs.existsSync(SHELL) ? chromium : SHELL;
/** While one works on the pages they are taken from the folder instead of from the binary. */
const fromDisk = Boolean(process.env.SVC_CONSOLE_FROM_DISK);
/** Between two looks passes a tenth of what has passed, within these bounds. */
const POLL_MS = { least: 20, most: 250 };
const WAIT_MS = 20_000;
const QUIET_MS = 150;
const KINDS = { css: "text/css", svg: "image/svg+xml" };

export const assets = path.join(root, "src/console/assets");
const axeSource = () => fs.readFileSync(path.join(tools, "node_modules/axe-core/axe.min.js"), "utf8");

export function check(is, what) {
  if (!is) throw new Error(what);
}

export const text = (page, selector) => page.locator(selector).first().innerText();

/** Waits until `look` answers something true; fails after `limit` ms. */
export async function until(what, look, limit = WAIT_MS) {
  const began = Date.now();
  for (;;) {
    const value = await look();
    if (value) return value;
    const waited = Date.now() - began;
    if (waited > limit) throw new Error(`waited ${limit} ms for ${what}`);
    const pause = Math.min(Math.max(waited / 10, POLL_MS.least), POLL_MS.most);
    await new Promise((done) => setTimeout(done, pause));
  }
}

/** A project with a little in it, under git. */
export function makeProject(name = "shop") {
  const dir = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "svc-console-")), name);
  const files = {
    "README.md": "# Shop\n\nA small shop.\n",
    "src/login.js": "export function login(user) {\n  return user;\n}\n",
    ".gitignore": ".svc/\n.config/\n",
  };
  for (const [file, content] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(dir, file)), { recursive: true });
    fs.writeFileSync(path.join(dir, file), content);
  }
  fs.mkdirSync(path.join(dir, ".svc/rehearsals"), { recursive: true });
  const git = (...args) =>
    execFileSync("git", ["-c", "user.email=a@example.org", "-c", "user.name=a", ...args], {
      cwd: dir,
      stdio: "ignore",
    });
  git("init", "-q", ".");
  git("add", "-A");
  git("commit", "-qm", "start");
  return dir;
}

/** Starts a program and waits for the address it prints. */
async function listening(child, pattern) {
  let said = "";
  child.stdout.on("data", (data) => {
    said += data;
  });
  child.stderr?.on("data", (data) => {
    said += data;
  });
  const line = await until("it to listen", () => {
    check(child.exitCode === null, `it ended at once: ${said}`);
    return said.match(pattern);
  });
  return line[1];
}

const binary = (name, variable) => process.env[variable] ?? path.join(root, "target/debug", name);

async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((done) => child.once("exit", done));
  child.kill(signal);
  await gone;
}

/** The marketplace service on a database of its own. */
export class Market {
  async start() {
    this.dir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-console-market-"));
    const args = ["serve", "--addr", "127.0.0.1:0", "--db", path.join(this.dir, "skills.db")];
    this.child = spawn(binary("svc-skills", "SVC_SKILLS_BIN"), args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, SKILLS_API_KEY: "shared-secret" },
    });
    this.url = await listening(this.child, /listening on (http:\S+)/);
    return this;
  }

  async stop() {
    await end(this.child, "SIGTERM");
    fs.rmSync(this.dir, { recursive: true, force: true });
  }
}

export class Daemon {
  constructor(dir, config = {}) {
    this.dir = dir;
    this.port = 0;
    fs.writeFileSync(path.join(dir, ".svc/config.json"), JSON.stringify({ maxAgents: 50, ...config }));
  }

  async start() {
    const env = { ...process.env, XDG_CONFIG_HOME: path.join(this.dir, ".config"), ...this.env };
    delete env.SVC_AGENT_ID;
    const args = ["start", "--port", String(this.port), "--project", this.dir];
    if (this.host) args.push("--host", this.host);
    this.child = spawn(binary("svc", "SVC_BIN"), args, { env, stdio: ["ignore", "pipe", "ignore"] });
    this.url = await listening(this.child, /listening on (http:\S+)/);
    this.port = Number(new URL(this.url).port);
    return this;
  }

  stop(signal = "SIGTERM") {
    return end(this.child, signal);
  }

  async api(method, where, body) {
    const response = await fetch(this.url + where, {
      method,
      headers: body ? { "Content-Type": "application/json" } : {},
      body: body && JSON.stringify(body),
    });
    const said = await response.text();
    if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${said}`);
    return said ? JSON.parse(said) : null;
  }

  get(where) {
    return this.api("GET", where);
  }

  post(where, body = {}) {
    return this.api("POST", where, body);
  }

  /** Ends agents, or removes those that have ended, once the page asks nothing more of them. */
  async forget(page, ...agents) {
    await page.goto("about:blank");
    for (const agent of agents) await this.api("DELETE", `/api/agents/${agent}`);
  }

  spawn(role, model, more = {}) {
    return this.post("/api/agents", {
      role,
      provider: "script",
      model,
      prompt: `Rehearse ${model}`,
      ...more,
    });
  }

  scenario(name, value) {
    fs.writeFileSync(path.join(this.dir, `.svc/rehearsals/${name}.json`), JSON.stringify(value));
  }

  async until(name, states) {
    return until(`${name} to be ${states}`, async () => {
      const agent = await this.get(`/api/agents/${name}`);
      return states.includes(agent.state) && agent;
    });
  }

  /** Ends it and removes its project. */
  async remove() {
    await this.stop();
    fs.rmSync(path.dirname(this.dir), { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A browser; `chromium` as the path is the whole one. */
export function launch(more = [], executablePath = bare) {
  const { chromium: driver } = need("playwright-core");
  const args = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--force-color-profile=srgb",
    ...more,
  ];
  if (fromDisk) args.push("--disable-features=LocalNetworkAccessChecks");
  return driver.launch({ executablePath, args });
}

/** What axe-core, brought to the page where it is not there yet, has against the page: a line for each. */
export async function faultsOf(page) {
  if (!(await page.evaluate(() => Boolean(globalThis.axe)))) await page.evaluate(axeSource());
  // Of what it does not find fault with, it need not say where: that is most of its work.
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, nodes }) => {
    const where = nodes.slice(0, 3).map(({ html, any }) => `${html.slice(0, 160)} (${any[0]?.message ?? ""})`);
    return `${id}: ${where.join(" | ")}`;
  });
}

/** axe-core finds nothing. */
export async function axe(page, what) {
  const faults = await faultsOf(page);
  check(!faults.length, `${what}: ${faults.join("; ")}`);
}

/** The certificate that is shown at this port of this machine. */
export const certificateOf = (port) =>
  new Promise((done, failed) => {
    const line = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false }, () => {
      done(line.getPeerX509Certificate());
      line.end();
    });
    line.on("error", failed);
  });

/** By what a browser knows it, which was made to trust it. */
export const pinOf = (certificate) =>
  crypto.createHash("sha256").update(certificate.publicKey.export({ type: "spki", format: "der" })).digest("base64");

/** A page whose console errors, refused loads and exceptions are collected in `page.faults`. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("console", (message) => {
    if (message.type() === "error" && !page.away) page.faults.push(`${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.setDefaultTimeout(15_000);
  watchRequests(page);
  if (fromDisk) await serveFromDisk(page);
  if (url) await page.goto(url);
  return page;
}

/** `page.quiet()` waits until no request has been under way for a moment. */
export function watchRequests(page) {
  let open = 0;
  let since = Date.now();
  const more = (n) => () => {
    open += n;
    since = Date.now();
  };
  page.on("request", more(1));
  page.on("requestfinished", more(-1));
  page.on("requestfailed", more(-1));
  page.quiet = () => until("the page to be quiet", () => open <= 0 && Date.now() - since > QUIET_MS);
}

async function serveFromDisk(page) {
  await page.route("**/console/*", (route) => {
    const file = path.join(assets, path.basename(new URL(route.request().url()).pathname));
    const contentType = KINDS[file.split(".").pop()] ?? "text/javascript";
    return fs.existsSync(file) ? route.fulfill({ path: file, contentType }) : route.continue();
  });
  await page.route(
    (address) => address.pathname === "/",
    async (route) => {
      const response = await route.fetch();
      return route.fulfill({ response, body: fs.readFileSync(path.join(assets, "index.html")) });
    },
  );
}

/**
 * Runs `scenarios`, pairs of a name and a function of a fresh page or of nothing, one after the other. Each prints one
 * line; the answer is the exit status. Words on the command line choose scenarios by their names.
 */
export async function runAll(scenarios, browser, daemon) {
  const chosen = process.argv.slice(2);
  let failed = 0;
  for (const word of chosen.filter((one) => !scenarios.some(([name]) => name.includes(one)))) {
    failed += 1;
    console.log(`FAIL no scenario's name has "${word}"`);
  }
  for (const [name, run] of scenarios) {
    if (chosen.length && !chosen.some((word) => name.includes(word))) continue;
    // Who opens pages of its own needs no other one beside them.
    const page = run.length ? await open(browser, daemon.url) : undefined;
    const began = Date.now();
    try {
      await page?.locator("#pill.live").waitFor();
      const skipped = await run(page);
      check(!page?.faults.length, `console errors: ${page?.faults.join("; ")}`);
      console.log(skipped ? `skip ${name}: ${skipped}` : `ok   ${name} (${Date.now() - began} ms)`);
    } catch (error) {
      failed += 1;
      const faults = page?.faults.length ? ` [console: ${page.faults.join("; ")}]` : "";
      console.log(`FAIL ${name}: ${String(error.message).slice(0, 1500)}${faults}`);
      const shots = process.env.SVC_CONSOLE_SHOTS;
      if (shots && page) await page.screenshot({ path: path.join(shots, `failed-${failed}.png`) }).catch(() => {});
    }
    await page?.context().close();
  }
  return failed ? 1 : 0;
}
