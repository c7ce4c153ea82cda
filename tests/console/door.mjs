// The door to all projects in a browser: the page that lists them, and the console of one below /p/NAME/.

import net from "node:net";
import path from "node:path";
import { Daemon, check, launch, makeProject, open, text, until } from "./lib.mjs";

const freePort = () =>
  new Promise((done) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });

const port = await freePort();
const dir = makeProject("shop");
// The first has the door as its own address; the other one is led to.
const first = new Daemon(dir, { door: port });
first.port = port;
const second = new Daemon(makeProject("blog"), { door: port });
second.env = { XDG_CONFIG_HOME: path.join(dir, ".config") };
await first.start();
await second.start();
const browser = await launch();
const door = `http://127.0.0.1:${port}`;

async function run(page) {
  await page.goto(`${door}/`);
  check((await text(page, "h1")) === "Projects", "the page of the door");
  await until("each project to say what waits", async () => {
    const said = await page.locator("[data-name]").allInnerTexts();
    return said.length === 2 && said.every((one) => one === "0 at work, 0 to decide");
  });
  await page.getByRole("link", { name: "blog" }).click();
  await page.locator("#pill.live").waitFor();
  check((await text(page, "#project")) === "blog", "the console of the project that was chosen");
  await second.spawn("worker", "quick", { name: "worker-seen" });
  await page.getByText("worker-seen").first().waitFor();
  await page.getByText("worker-seen").first().click();
  await page.locator(".vrow.text:not([hidden])").first().waitFor();
  // A link proves the browser to this project alone.
  const { code } = await second.post("/api/console/codes");
  const begun = page.waitForResponse((response) => response.url().endsWith("/api/console/session"));
  // From elsewhere: within the page it would be one more place of the console.
  await page.goto("about:blank");
  await page.goto(`${door}/p/blog/#code=${code}`);
  check((await begun).status() === 200, "the session begins");
  const cookies = await page.context().cookies();
  check(cookies.length === 1 && cookies[0].path === "/p/blog/", `cookies: ${JSON.stringify(cookies)}`);
  await page.goto(`${door}/p/shop/`);
  await page.locator("#pill.live").waitFor();
  check((await text(page, "#project")) === "shop", "the console of the other one");
  check((await page.getByText("worker-seen").count()) === 0, "an agent of the other project");
  check(!page.faults.length, `console errors: ${page.faults.join("; ")}`);
}

let failed = 0;
try {
  const began = Date.now();
  await run(await open(browser));
  console.log(`ok   all projects at one door (${Date.now() - began} ms)`);
} catch (error) {
  failed = 1;
  console.log(`FAIL all projects at one door: ${error.message}`);
}
await browser.close();
await second.remove();
await first.remove();
process.exit(failed);
