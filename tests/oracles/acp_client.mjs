// The Agent Client Protocol's own library as an editor, with `svc acp` behind it: a prompt, a permission, a session
// that is loaded, a turn that is cancelled. Every message of svc is held against the protocol's published schema.
//
// node acp_client.mjs LIBRARIES PROJECT SVC ARGUMENTS..
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { Readable, Transform, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [libraries, project, svc, ...words] = process.argv.slice(2);
const require = createRequire(libraries + "/");
const sdk = libraries + "/node_modules/@agentclientprotocol/sdk";
const acp = await import(pathToFileURL(sdk + "/dist/v1/stable/acp.js"));
const Ajv = require("ajv/dist/2020.js");

const schema = JSON.parse(readFileSync(sdk + "/schema/v1/schema.json", "utf8"));
const ajv = new Ajv({ strict: false, validateFormats: false });
ajv.addSchema(schema, "acp");
const validator = (name) => ajv.getSchema("acp#/$defs/" + name);
const results = {
  initialize: "InitializeResponse",
  "session/new": "NewSessionResponse",
  "session/load": "LoadSessionResponse",
  "session/prompt": "PromptResponse",
};
const sent = new Map();
let checked = 0;

function hold(name, value) {
  const validate = validator(name);
  if (!validate(value)) {
    console.log("invalid " + name + " " + JSON.stringify(value) + " " + JSON.stringify(validate.errors));
    process.exit(1);
  }
  checked += 1;
}

function check(line) {
  const message = JSON.parse(line);
  if (message.jsonrpc !== "2.0") throw new Error("no JSON-RPC 2.0: " + line);
  if (message.method === "session/update") hold("SessionNotification", message.params);
  else if (message.method === "session/request_permission") hold("RequestPermissionRequest", message.params);
  else if (message.method === "$/cancel_request") hold("CancelRequestNotification", message.params);
  else if (message.method) throw new Error("not in the protocol: " + line);
  else if (message.error) hold("Error", message.error);
  else hold(results[sent.get(message.id)], message.result);
}

// Hands each line on as it is, once it was looked at.
function lines(look) {
  let rest = "";
  return new Transform({
    transform(chunk, _, done) {
      const parts = (rest + chunk).split("\n");
      rest = parts.pop();
      parts.filter((part) => part.trim()).forEach(look);
      done(null, chunk);
    },
  });
}

const child = spawn(svc, words, { cwd: project, stdio: ["pipe", "pipe", "inherit"] });
const out = lines((line) => {
  const message = JSON.parse(line);
  if (message.method && message.id !== undefined) sent.set(message.id, message.method);
});
out.pipe(child.stdin);
const stream = acp.ndJsonStream(Writable.toWeb(out), Readable.toWeb(child.stdout.pipe(lines(check))));

let updates = [];
let on = () => {};
const editor = acp
  .client({ name: "oracle" })
  .onRequest(acp.methods.client.session.requestPermission, (context) => {
    console.log("asked " + context.params.options.map((one) => one.kind).join(" "));
    writeFileSync(project + "/go", "");
    return { outcome: { outcome: "selected", optionId: context.params.options[0].optionId } };
  })
  .onNotification(acp.methods.client.session.update, (context) => {
    updates.push(context.params.update);
    on(context.params.update);
  });

const said = () =>
  updates
    .filter((one) => one.sessionUpdate === "agent_message_chunk")
    .map((one) => one.content.text)
    .join("")
    .replaceAll("\n", " ");
const kinds = () => [...new Set(updates.map((one) => one.sessionUpdate))].sort().join(" ");

await editor.connectWith(stream, async (svc) => {
  const { agent } = acp.methods;
  const hello = await svc.request(agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  console.log("hello " + hello.agentInfo.name + " " + hello.protocolVersion);
  const { sessionId } = await svc.request(agent.session.new, { cwd: project, mcpServers: [] });
  console.log("session " + sessionId);
  const prompt = (text) => svc.request(agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  let end = await prompt("work");
  console.log("first " + end.stopReason + " [" + kinds() + "] " + said());
  updates = [];
  rmSync(project + "/go");
  on = (update) => {
    const text = update.content?.text ?? "";
    if (text.includes("waiting")) svc.notify(agent.session.cancel, { sessionId });
  };
  end = await prompt("hang");
  console.log("second " + end.stopReason);
  updates = [];
  await svc.request(agent.session.load, { sessionId, cwd: project, mcpServers: [] });
  console.log("loaded [" + kinds() + "] " + said());
  try {
    await svc.request(agent.session.new, { cwd: "/", mcpServers: [] });
  } catch (error) {
    console.log("refused " + error.code + " " + error.message);
  }
});
console.log("over " + checked);
child.stdin.end();
