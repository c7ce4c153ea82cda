// A project in which much waits for a person.

import { Daemon, makeProject, until } from "./lib.mjs";

/** A daemon of its own in which fourteen things wait for a person. */
export async function inbox() {
  const daemon = new Daemon(makeProject("inbox"));
  const write = (file) => ({ write: { path: `elsewhere/${file}`, text: "x\n" } });
  daemon.scenario("three", { steps: [write("a.txt"), write("b.txt"), write("c.txt"), { ask: "On?" }] });
  daemon.scenario("one", { steps: [write("d.txt"), { ask: "On?" }] });
  daemon.scenario("works", { steps: [{ say: "at it" }, { loop: { times: 3000, steps: [{ sleepMs: 500 }] } }] });
  daemon.scenario("breaks", { steps: [{ say: "now" }, { exit: 3 }] });
  await daemon.start();
  const scope = ["src/**"];
  await daemon.spawn("roles", "three", { scope });
  for (let n = 0; n < 3; n += 1) await daemon.spawn("painter", "one", { scope });
  for (let n = 0; n < 4; n += 1) await daemon.spawn("breaker", "breaks");
  await daemon.spawn("worker", "works");
  for (let n = 1; n <= 4; n += 1) await daemon.post("/api/questions", { question: `Which of ${n}?`, agentId: "worker-1" });
  for (let n = 1; n <= 4; n += 1) await daemon.until(`breaker-${n}`, ["crashed"]);
  await until("all approvals", async () => (await daemon.get("/api/approvals")).pending.length === 10);
  return daemon;
}
