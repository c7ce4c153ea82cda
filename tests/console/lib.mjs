// What the browser tests share: a daemon of their own, a browser, and watched pages.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "../..");
const tools = process.env.SVC_CONSOLE_TOOLS_DIR ?? path.join(root, "target/console-tools");
const need = createRequire(path.join(tools, "package.json"));
export const assets = path.join(root, "src/console/assets");
export const chromium = process.env.SVC_CHROMIUM ?? "/usr/bin/chromium";
export const axeSource = () => fs.readFileSync(path.join(tools, "node_modules/axe-core/axe.min.js"), "utf8");

/** Waits until `look` answers something true; fails after `limit` ms. */
export async function until(what, look, limit = 20000) {
  const end = Date.now() + limit;
  for (;;) {
    const value = await look();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${limit} ms for ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** A project with a little in it, under git. */
export function makeProject() {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-console-"));
  fs.mkdirSync(path.join(dir, "src"));
  fs.mkdirSync(path.join(dir, ".svc/rehearsals"), { recursive: true });
  fs.writeFileSync(path.join(dir, "src/login.js"), "export function login(user) {\n  return user;\n}\n");
  fs.writeFileSync(path.join(dir, "README.md"), "# Shop\n\nA small shop.\n");
  fs.writeFileSync(path.join(dir, ".gitignore"), ".svc/\n.config/\n");
  return dir;
}

export class Daemon {
  constructor(dir, port = 0) {
    this.dir = dir;
    this.port = port;
  }

  async start() {
    const env = { ...process.env, XDG_CONFIG_HOME: path.join(this.dir, ".config") };
    delete env.SVC_AGENT_ID;
    this.child = spawn(
      process.env.SVC_BIN ?? path.join(root, "target/debug/svc"),
      ["start", "--port", String(this.port), "--project", this.dir],
      { env, stdio: ["ignore", "pipe", "ignore"] },
    );
    let said = "";
    this.child.stdout.on("data", (data) => {
      said += data;
    });
    const line = await until("the daemon to listen", () => said.match(/listening on (http:\S+)/));
    this.url = line[1];
    this.port = Number(new URL(this.url).port);
    return this;
  }

  async stop(signal = "SIGTERM") {
    const gone = new Promise((done) => this.child.once("exit", done));
    this.child.kill(signal);
    await gone;
  }

  async api(method, where, body) {
    const response = await fetch(this.url + where, {
      method,
      headers: body ? { "Content-Type": "application/json" } : {},
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  spawn(role, model, more = {}) {
    return this.api("POST", "/api/agents", {
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
      const agent = await this.api("GET", `/api/agents/${name}`);
      return states.includes(agent.state) && agent;
    });
  }
}

export async function launch() {
  const { chromium: driver } = need("playwright-core");
  return driver.launch({
    executablePath: chromium,
    args: [
      "--no-sandbox",
      "--disable-dev-shm-usage",
      "--disable-gpu",
      "--force-color-profile=srgb",
      ...(process.env.SVC_CONSOLE_FROM_DISK ? ["--disable-features=LocalNetworkAccessChecks"] : []),
    ],
  });
}

/** A page whose console errors, refused loads and exceptions are collected in `page.faults`. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("console", (message) => {
    if (message.type() === "error" && !page.away) page.faults.push(message.text());
  });
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.setDefaultTimeout(15000);
  // While one works on the pages: from the disk instead of from the binary.
  if (process.env.SVC_CONSOLE_FROM_DISK) {
    await page.route("**/console/*", (route) => {
      const file = path.join(assets, path.basename(new URL(route.request().url()).pathname));
      return fs.existsSync(file)
        ? route.fulfill({
            path: file,
            contentType:
              { css: "text/css", svg: "image/svg+xml" }[file.split(".").pop()] ?? "text/javascript",
          })
        : route.continue();
    });
    await page.route(
      (address) => address.pathname === "/",
      async (route) => {
        const answer = await route.fetch();
        return route.fulfill({ response: answer, body: fs.readFileSync(path.join(assets, "index.html")) });
      },
    );
  }
  await page.goto(url);
  return page;
}
