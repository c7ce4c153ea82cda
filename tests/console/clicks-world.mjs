// What the clicks share: one daemon, one marketplace, one browser, and the list of scenarios.

import path from "node:path";
import { Daemon, Market, launch, makeProject } from "./lib.mjs";

export const scenarios = [];
export const scenario = (name, run) => scenarios.push([name, run]);

export const dir = makeProject();
export const market = await new Market().start();
export const daemon = new Daemon(dir, { skills: { baseUrl: `${market.url}/api/v1` } });
/** Where Claude Code keeps what it was told outside of the daemon. */
export const claude = path.join(dir, ".svc/claude");
daemon.env = { CLAUDE_CONFIG_DIR: claude };
export const browser = await launch();

daemon.scenario("long", {
  steps: [
    { say: "I begin" },
    { usage: { input: 900, output: 80, cacheRead: 60000, contextWindow: 200000 } },
    { run: { command: "echo checked" } },
    { loop: { times: 3000, steps: [{ say: "<img src=x onerror=alert(1)> still at it" }, { sleepMs: 400 }] } },
  ],
  onSay: [{ say: "You said: {{message}}" }],
});
