// Starting agents from presets and with several models, and changing one that is alive.

import { axe, check, open, until } from "./lib.mjs";
import { browser, daemon, scenario } from "./clicks-world.mjs";

scenario("a preset fills the form; one's own is kept by the browser, and forgotten", async () => {
  const page = await open(browser, daemon.url, { bypassCSP: true });
  await page.locator("#pill.live").waitFor();
  await page.keyboard.press("n");
  const choice = page.getByLabel("Begin with");
  const task = page.getByLabel("Task");
  const role = page.getByLabel("Role", { exact: true });
  await choice.selectOption({ label: "Mend a fault" });
  check((await role.inputValue()) === "fixer" && (await task.inputValue()).includes("see it fail"), await task.inputValue());
  await page.getByLabel("Provider").selectOption("script");
  await task.fill("Water <b>all</b> plants");
  await role.fill("gardener");
  await page.getByLabel("Files it owns").fill("garden/**");
  await page.getByRole("button", { name: "Keep as a preset" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.type("Garden");
  await page.keyboard.press("Enter");
  await page.getByText("Garden is kept in this browser").waitFor();
  check(await page.locator("dialog.spawn").isVisible(), "an agent was started");
  await axe(page, "presets");
  await page.reload();
  await page.locator("#pill.live").waitFor();
  await page.keyboard.press("n");
  await page.getByLabel("Provider").locator("option").first().waitFor({ state: "attached" });
  await choice.selectOption({ label: "Garden" });
  check((await task.inputValue()) === "Water <b>all</b> plants" && (await role.inputValue()) === "gardener", await task.inputValue());
  check((await page.getByLabel("Files it owns").inputValue()) === "garden/**", "the scope is lost");
  check((await page.getByLabel("Provider").inputValue()) === "script", "the provider is lost");
  await page.getByRole("button", { name: "Forget it" }).click();
  check((await choice.locator("option", { hasText: "Garden" }).count()) === 0, "it is still there");
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("a living agent gets another name, scope and model from its page", async () => {
  const { id } = await daemon.spawn("worker", "long", { name: "worker-old", scope: ["old/**"] });
  const page = await open(browser, `${daemon.url}/#/agent/${id}/about`, { bypassCSP: true });
  await page.getByRole("button", { name: "Change…" }).focus();
  await page.keyboard.press("Enter");
  const box = page.getByRole("dialog");
  page.away = true;
  await box.getByLabel("Name").fill("bad name!");
  await page.keyboard.press("Control+Enter");
  await box.locator(".fault", { hasText: "name" }).waitFor();
  page.away = false;
  await axe(page, "the form");
  await box.getByLabel("Name").fill("worker-new");
  await box.getByLabel("Files it owns").fill("new/**, docs/**");
  await box.getByLabel("Model").fill("quick");
  await page.keyboard.press("Control+Enter");
  await box.waitFor({ state: "detached" });
  const agent = await daemon.get(`/api/agents/${id}`);
  check(agent.name === "worker-new" && agent.scope.join() === "new/**,docs/**" && agent.model === "quick", JSON.stringify(agent));
  check(["running", "waiting", "starting"].includes(agent.state), `it is ${agent.state}`);
  await page.getByText("new/**, docs/**").waitFor();
  const { entries } = await daemon.get("/api/audit?limit=20");
  const line = entries.find((one) => one.event === "agent.patch");
  check(line?.changes.scope?.join() === "new/**,docs/**" && line.changes.effort === undefined, JSON.stringify(line));
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("one task with two models, side by side: what they cost, said and changed", async () => {
  for (const [name, text] of [["reviewer", "one\n"], ["chatty", "one\ntwo\n"]])
    daemon.scenario(name, {
      steps: [
        { write: { path: "alike.txt", text } },
        { usage: { input: 900, output: 80, cacheRead: 0, contextWindow: 200000 } },
        { say: `The **${name}** way` },
        { answer: `The **${name}** way` },
        { exit: 0 },
      ],
    });
  const page = await open(browser, daemon.url, { bypassCSP: true });
  await page.locator("#pill.live").waitFor();
  await page.keyboard.press("n");
  await page.getByLabel("Task").fill("Do it alike");
  await page.getByLabel("Role", { exact: true }).fill("twin");
  await page.getByLabel("Name", { exact: true }).fill("alike");
  await page.getByLabel("Provider").selectOption("script");
  await page.locator("dialog summary", { hasText: "More" }).click();
  for (const name of ["Rehearsed reviewer", "Chatty"]) await page.getByRole("checkbox", { name }).check();
  await page.getByRole("button", { name: "Start", exact: true }).click();
  const side = (n) => page.getByRole("region", { name: `alike-${n}`, exact: true });
  for (const n of [1, 2]) {
    await side(n).waitFor();
    await daemon.until(`alike-${n}`, ["completed"]);
  }
  for (const [n, added] of [[1, 1], [2, 2]]) {
    await side(n).getByText(`1 file, +${added} −0`).waitFor();
    await side(n).getByText(`${n === 1 ? "reviewer" : "chatty"}`, { exact: true }).first().waitFor();
  }
  await side(2).getByText("What it has changed").focus();
  await page.keyboard.press("Enter");
  await side(2).locator(".plus", { hasText: "two" }).waitFor();
  await axe(page, "side by side");
  for (const n of [1, 2]) check((await daemon.get(`/api/agents/alike-${n}`)).worktree, "they share a folder");
  await page.setViewportSize({ width: 390, height: 844 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= 390, `${wide} px wide`);
  await axe(page, "on a phone");
  await side(1).getByRole("link", { name: "Review alike-1" }).click();
  await page.locator(".l.plus", { hasText: "one" }).first().waitFor();
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});
