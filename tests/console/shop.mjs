// A small project with everything in it: what the pages are checked and photographed with. The agents are
// rehearsed; each plays a scenario that is named like a model, so that the pages show models and prices.

import fs from "node:fs";
import path from "node:path";
import { Daemon, makeProject, until } from "./lib.mjs";

const WINDOW = 200_000;
const usage = (input, output, cacheRead) => ({
  usage: { input, output, cacheRead, cacheCreation: Math.round(input / 3), contextWindow: WINDOW },
});
const write = (file, text) => ({ write: { path: file, text } });
const run = (command) => ({ run: { command } });
/** Stays at work: says something now and then, until it is ended. */
const goesOn = (...steps) => ({ loop: { times: 100_000, steps: [...steps, { sleepMs: 2600 }] } });

const LOGIN = `export async function login(user, password) {
  const record = await users.byName(user);
  if (!record) return null;
  return verify(password, record.hash) ? session(record) : null;
}
`;
const TEST = `import { login } from "../src/login.js";

test("a wrong password is refused", async () => {
  expect(await login("ada", "wrong")).toBe(null);
});
`;

const REPORT = `## The login

**Both tests pass.** What it answers now, in [the code](src/login.js#L4) and by [the rules for sessions](https://example.org/sessions):

| Who asks | Answer |
|---|---|
| the right password | a session |
| a wrong one, or nobody | \`null\` |

\`\`\`js
if (!record) return null;
\`\`\`

Left to do: sessions end after eight hours.
`;

/** What the planner recommends. */
const PLAN = [
  {
    role: "backend",
    name: "cart-api",
    phase: 1,
    scope: ["api/**"],
    prompt: "Build the cart's API: add, remove, total.",
    provider: "script",
    model: "claude-haiku-4-5",
  },
  {
    role: "frontend",
    name: "cart-web",
    phase: 1,
    scope: ["web/**"],
    prompt: "Build the cart's page on the API.",
    provider: "script",
    model: "gemini-2.5-pro",
  },
  {
    role: "security",
    name: "cart-check",
    phase: 2,
    prompt: "Read both parts and try to order for nothing.",
    provider: "script",
    model: "claude-sonnet-4-6",
  },
];

const SCENARIOS = {
  "claude-sonnet-4-6": [
    { think: "The login takes any password. I read it first, then write a test that fails." },
    { say: "I start with the login: it accepts every password." },
    { read: "src/login.js" },
    usage(1800, 420, 21_000),
    write("tests/login.test.js", TEST),
    run("grep -c password tests/login.test.js"),
    {
      say: "The test fails as expected. Now the login itself:\n\n- look the user up by name\n- compare the hash",
    },
    write("src/login.js", LOGIN),
    run("wc -l src/login.js tests/login.test.js"),
    { run: { command: "cat src/session.js" } },
    { say: "There is no session module yet. I keep the session next to the login." },
    usage(5200, 2900, 96_000),
    run("ls src tests"),
    { say: REPORT },
    goesOn({ think: "Eight hours from the last request, or from the login?" }),
  ],
  "claude-haiku-4-5": [
    { say: "I build the sign-in form." },
    write("web/form.html", "<form>\n  <label>Name <input name=user></label>\n</form>\n"),
    usage(900, 380, 31_000),
    goesOn({ say: "Checking the form at phone width." }, run("ls web")),
  ],
  "gpt-5.6-terra": [
    { say: "I read the migrations." },
    usage(2400, 310, 155_000),
    write("infra/deploy.yml", "steps: []\n"),
    goesOn({ say: "Is the migration safe to run twice? I try it on a copy." }),
  ],
  "gemini-2.5-flash": [{ say: "I look at the API's errors." }, usage(1100, 200, 40_000), { exit: 3 }],
  "gemini-2.5-pro": [
    { say: "The README now tells how to start." },
    usage(700, 650, 18_000),
    { answer: "Done." },
    { exit: 0 },
  ],
  "claude-opus-4-6": [
    { think: "Which parts do not touch each other?" },
    { say: "Two builders side by side, then a review." },
    usage(2300, 900, 30_000),
    write(".svc/recommended-team.json", JSON.stringify({ agents: PLAN })),
    { answer: "The team stands in .svc/recommended-team.json." },
    { exit: 0 },
  ],
};

const AGENTS = [
  [
    "backend",
    "claude-sonnet-4-6",
    "The login accepts every password. Write a test that shows it, then mend it.",
    ["src/**", "tests/**"],
  ],
  ["frontend", "claude-haiku-4-5", "Build the sign-in form. It has to work without a mouse.", ["web/**"]],
  ["database", "gpt-5.6-terra", "Make the migrations safe to run twice.", ["db/**"]],
  ["api", "gemini-2.5-flash", "Give every error of the API a sentence.", ["api/**"]],
  ["writer", "gemini-2.5-pro", "Tell in the README how to start the shop.", ["README.md"]],
];

async function agents(daemon) {
  for (const [role, model, prompt, scope] of AGENTS) await daemon.spawn(role, model, { prompt, scope });
  await daemon.until("api-1", ["crashed"]);
  await daemon.until("writer-1", ["completed"]);
  await until("an approval", async () => (await daemon.get("/api/approvals")).pending.length);
  const reported = (line) => line.text?.startsWith("## The login");
  await until("the report", async () => (await daemon.get("/api/agents/backend-1/log?tail=60")).entries.some(reported));
  await daemon.post("/api/agents/backend-1/instruct", {
    message: "Please keep sessions to eight hours.",
    deliver: "now",
  });
  await daemon.post("/api/coordination/declare", {
    agentId: "backend-1",
    operation: "npm install",
    resources: ["package.json", "node_modules"],
  });
}

async function team(daemon) {
  await daemon.spawn("planner", "claude-opus-4-6", { prompt: "Plan a shopping cart." });
  await daemon.until("planner-1", ["completed"]);
  await until("the plan", async () => (await daemon.get("/api/recommended-team")).exists);
  await daemon.post("/api/recommended-team/launch");
  await daemon.until("cart-web", ["completed"]);
  await daemon.post("/api/teams", { name: "Checkout" });
}

async function memory(daemon) {
  const rules = [
    ["style", "Two spaces, double quotes, no default exports."],
    ["safety", "Never touch db/migrations once they are on main."],
    ["tests", "A mended fault comes with the test that showed it."],
  ];
  for (const [category, text] of rules) await daemon.post("/api/memory/constraints", { category, text });
  const found = [
    ["backend", "tests hang at the end of the run", "close the database pool in afterAll"],
    ["frontend", "the label of an input is not announced", "give the input an id and the label a for"],
  ];
  for (const [role, trigger, fix] of found)
    await daemon.post("/api/memory/discoveries", { role, trigger, fix });
}

async function schedules(daemon) {
  const agent = { provider: "script", model: "gemini-2.5-pro" };
  await daemon.post("/api/schedules", {
    name: "Nightly review",
    cron: "0 3 * * 1-5",
    timezone: "Europe/Berlin",
    agent: { ...agent, role: "reviewer", prompt: "Read what changed yesterday." },
  });
  await daemon.post("/api/schedules", {
    name: "Dependencies",
    cron: "0 9 * * 1",
    agent: { ...agent, role: "updater", prompt: "Raise one dependency." },
  });
}

/** A daemon in which everything has something to show. */
export async function shop(config = {}) {
  const dir = makeProject();
  for (const [file, text] of Object.entries({
    "package.json": '{"name": "shop"}\n',
    "web/index.html": "<h1>Shop</h1>\n",
    "db/001.sql": "create table users (name text);\n",
  })) {
    fs.mkdirSync(path.dirname(path.join(dir, file)), { recursive: true });
    fs.writeFileSync(path.join(dir, file), text);
  }
  const daemon = new Daemon(dir, config);
  for (const [name, steps] of Object.entries(SCENARIOS))
    daemon.scenario(name, { steps, query: "The sessions end after eight hours; see src/login.js." });
  await daemon.start();
  await team(daemon);
  await agents(daemon);
  await memory(daemon);
  await schedules(daemon);
  await daemon.post("/api/integrations/github/install");
  await daemon.post("/api/gateways", {
    type: "telegram",
    displayName: "Team chat",
    chatId: "-1001234",
    commandPermission: "read-only",
  });
  await daemon.post("/api/skills/code-review/install");
  await daemon.post("/api/agents/frontend-1/rotate");
  await daemon.post("/api/journalist/cycle");
  return daemon;
}
