// @slack/bolt against the server that stands for Slack: Socket Mode, a message, a command, a click, an update.
import { createRequire } from "node:module";
const require = createRequire(process.argv[3] + "/");
const { App, LogLevel } = require("@slack/bolt");

const app = new App({
  token: process.argv[4], appToken: process.argv[5], socketMode: true, logLevel: LogLevel.ERROR,
  clientOptions: { slackApiUrl: process.argv[2] + "/api/" },
});
app.message(async ({ message, client }) => {
  const blocks = [
    { type: "rich_text", elements: [{ type: "rich_text_section", elements: [{ type: "text", text: "hello", style: { bold: true } }] }] },
    { type: "actions", elements: [{ type: "button", action_id: "choice-0", value: "/approve x", text: { type: "plain_text", text: "Yes" } }] },
  ];
  const sent = await client.chat.postMessage({ channel: message.channel, text: "hello", blocks });
  await client.chat.update({ channel: sent.channel, ts: sent.ts, text: "done", blocks: blocks.slice(0, 1) });
  console.log("message " + message.text + " " + sent.ts);
});
app.command("/svc", async ({ command, ack, respond }) => {
  await ack();
  await respond("here you are");
  console.log("command " + command.text);
});
app.action("choice-0", async ({ action, ack }) => {
  await ack();
  console.log("clicked " + action.value);
});
process.stdin.on("end", () => app.stop().then(() => process.exit(0)));
process.stdin.resume();
await app.start();
console.log("ready");
