// Every page, empty and filled, light and dark, wide and on a phone: axe-core finds nothing, nothing is
// wider than the window, and the browser reports no error.

import { Daemon, Market, faultsOf, launch, makeProject, open } from "./lib.mjs";
import { shop } from "./shop.mjs";

const PAGES = [
  "",
  "approvals",
  "teams",
  "schedules",
  "files",
  "files/README.md",
  "locks",
  "sessions",
  "tokens",
  "memory",
  "map",
  "audit",
  "replay",
  "integrations",
  "skills",
  "toys",
  "gateways",
  "credentials",
  "settings",
  "nowhere",
];
const AGENT_PAGES = ["", "/diff", "/files", "/rotate", "/about"]
  .map((tab) => `agent/backend-1${tab}`)
  .concat("compare/backend-1,frontend-1");
const PHONE = { width: 390, height: 844 };
const WIDE = { width: 1280, height: 800 };

/** What is shown by the page of this name, or opened over it. */
async function show(page, name) {
  await page.keyboard.press("Escape");
  if (name === "spawn dialog") await page.locator("#new").click();
  else if (name === "palette") await page.keyboard.press("Control+k");
  else if (name === "a skill") {
    await page.evaluate(() => {
      location.hash = "#/skills";
    });
    await page.locator('main[data-route="skills"] .skill').first().getByRole("button", { name: /^Read / }).click();
    await page.locator("dialog .reading").waitFor();
  } else if (name === "an integration") {
    await page.evaluate(() => {
      location.hash = "#/integrations";
    });
    await page.locator('main[data-route="integrations"]').getByRole("button", { name: "About GitHub" }).click();
    await page.locator("dialog .reading").waitFor();
  } else if (name === "side by side") {
    await page.evaluate(() => {
      location.hash = "#/agent/backend-1/diff";
    });
    await page.locator("details.file .l").first().waitFor();
    await page.keyboard.press("s");
    await page.locator(".pair").first().waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("c");
    await page.locator("form.said").waitFor();
  } else if (name === "an entry") {
    await page.evaluate(() => {
      location.hash = "#/agent/backend-1";
    });
    await page.locator('main[data-route="agent/backend-1"] .vrow.entry:not([hidden])').first().click();
  } else if (name === "the turns" || name === "a turn") {
    await page.evaluate(() => {
      location.hash = "#/agent/backend-1";
    });
    await page.locator('main[data-route="agent/backend-1"] .vrow.entry:not([hidden])').first().waitFor();
    await page.locator(".vlist").focus();
    await page.keyboard.press("Home");
    // The turn of its task, which has its report.
    await page.locator(".vrow.user:not([hidden])", { hasText: "Write a test that shows it" }).click();
    await page.keyboard.press(name === "a turn" ? "t" : "o");
    await page.locator(name === "a turn" ? ".detail .turn table" : ".detail .turn-row").first().waitFor();
  } else {
    await page.evaluate((hash) => {
      location.hash = `#/${hash}`;
    }, name);
    await page.locator(`main[data-route="${name}"]`).waitFor();
  }
  await page.quiet();
}

async function look(browser, daemon, names, options) {
  // The checker itself is injected, which the pages' own policy rightly forbids.
  const page = await open(browser, daemon.url, { bypassCSP: true, ...options });
  const faults = [];
  await page.locator("#pill.live").waitFor();
  for (const name of names) {
    await show(page, name);
    faults.push(...(await faultsOf(page)).map((one) => `${name || "home"}: ${one}`));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) faults.push(`${name || "home"}: ${wide} px wider than the window`);
  }
  faults.push(...page.faults.map((fault) => `console: ${fault}`));
  await page.context().close();
  return faults;
}

const browser = await launch();
let failed = 0;
/** In four tabs at once: each waits for its own quiet, while the others are looked at. */
async function all(what, daemon, names) {
  const looks = ["light", "dark"].flatMap((colorScheme) =>
    Object.entries({ wide: WIDE, phone: PHONE }).map(async ([size, viewport]) => {
      const faults = await look(browser, daemon, names, { colorScheme, viewport });
      return { faults, words: `${names.length} pages, ${what}, ${colorScheme}, ${size}` };
    }),
  );
  for (const { faults, words } of await Promise.all(looks)) {
    failed += faults.length;
    console.log(`${faults.length ? "FAIL" : "ok  "} ${words}`);
    for (const fault of faults) console.log(`     ${fault}`);
  }
}

/** What is shown while nobody answers, once the daemon has been killed; it is there again afterwards. */
async function away(daemon) {
  const pages = [];
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(browser, daemon.url, { bypassCSP: true, colorScheme });
    await page.locator("#pill.live").waitFor();
    page.away = true;
    pages.push(page);
  }
  await daemon.stop("SIGKILL");
  for (const page of pages) {
    await page.locator("#away").waitFor();
    const faults = [...(await faultsOf(page)), ...page.faults];
    failed += faults.length;
    console.log(`${faults.length ? "FAIL" : "ok  "} the first page while the daemon is away`);
    for (const fault of faults) console.log(`     ${fault}`);
    await page.context().close();
  }
  await daemon.start();
}

const market = await new Market().start();
const skills = { baseUrl: `${market.url}/api/v1` };
const fresh = await new Daemon(makeProject(), { skills }).start();
await all("empty", fresh, PAGES);
await fresh.remove();
const filled = await shop({ skills });
await away(filled);
await all("filled", filled, [...PAGES, ...AGENT_PAGES, "an entry", "the turns", "a turn", "side by side", "a skill", "an integration", "spawn dialog", "palette"]);
await filled.remove();
await market.stop();
await browser.close();
// At once: a browser's helper process may hold on to a pipe for long.
process.exit(failed ? 1 : 0);
