// Drives a running daemon, whose address is the first word and a file of whose project the second.
import assert from "node:assert/strict";
import { Client, Refused, type LogEntry } from "svc-client";

const [url, file] = process.argv.slice(2) as [string, string];
const svc = new Client(url);
assert.equal((await svc.getHealth()).status, "ok");

const wordsOf = (entries: LogEntry[]): string[] =>
  entries.flatMap((entry) => (entry.type === "text" ? [entry.text] : []));

const stream = svc.stream();
const first = await stream.receive();
assert(first.type === "state" && first.data.length === 0);
const seen = first.seq;
const made = await svc.postAgents({ role: "tester", provider: "script", model: "quick", prompt: "rehearse" });
let statusCode: string | undefined;
while (statusCode === undefined) {
  const message = await stream.receive();
  if (message.type === "agent:output") assert.equal(message.agentId, made.id);
  if (message.type === "agent:exit" && message.agentId === made.id) {
    assert.equal(message.status, "completed");
    assert.equal(message.code, 0);
    statusCode = message.statusCode;
  }
}
await stream.send({ type: "watch", path: file });
await stream.send({ type: "ping" });
const answers: string[] = [];
while (answers.length < 2) {
  const message = await stream.receive();
  if (message.type === "watching" || message.type === "pong") answers.push(message.type);
}
assert.deepEqual(answers, ["watching", "pong"]);
stream.close();
for await (const message of svc.stream({ types: ["agent:exit"], since: seen })) {
  assert(message.type === "agent:exit" && message.agentId === made.id, "what was missed is told again");
  break;
}

const agent = await svc.getAgentsId(made.id);
assert.equal(agent.statusCode, statusCode);
assert.deepEqual(agent.instructions, []);
assert.notEqual(wordsOf((await svc.getAgentsIdLog(made.id, { since: 0 })).entries).length, 0);
assert.equal(await svc.getAgentsIdRoutingSuggestion(made.id), undefined);
assert((await svc.getMetrics()).includes("svc_agents"));
const text = "é".repeat(70_000);
assert.equal((await svc.postFilesWrite({ path: file, content: text })).size, 140_000);
assert.equal(new TextDecoder().decode(await svc.getFilesRaw({ path: file })), text);

await assert.rejects(svc.getAgentsId("no such/agent?"), (error) => {
  return error instanceof Refused && error.status === 404 && error.code === "not_found";
});
assert.equal((await svc.deleteAgentsId(made.id)).removed, true);
console.log("all is well");
