// discord.js against the server that stands for Discord: identify, events, resume, interactions, REST.
import { createRequire } from "node:module";
const require = createRequire(process.argv[3] + "/");
const { Client, GatewayIntentBits, Partials, Events, WebSocketShardEvents } = require("discord.js");

const client = new Client({
  intents: [GatewayIntentBits.Guilds, GatewayIntentBits.GuildMessages, GatewayIntentBits.DirectMessages],
  partials: [Partials.Channel, Partials.Message],
  rest: { api: process.argv[2] + "/api" },
});
client.on("shardResume", () => console.log("resumed"));
client.on("raw", (packet) => {
  if (packet.t === "MESSAGE_CREATE") console.log("message " + packet.d.content);
});
client.on(Events.InteractionCreate, async (interaction) => {
  if (interaction.isButton()) {
    await interaction.deferUpdate();
    console.log("interaction " + interaction.customId);
  } else if (interaction.isChatInputCommand()) {
    try {
      await interaction.editReply({ content: "too early" });
    } catch (error) {
      console.log("early " + error.code);
    }
    const hook = `/webhooks/${interaction.applicationId}/${interaction.token}/messages/@original`;
    try {
      await interaction.client.rest.patch(hook, { auth: false, body: { content: "too early" } });
    } catch (error) {
      console.log("raw " + error.status + " " + error.code);
    }
    await interaction.deferReply();
    await interaction.editReply({ content: "here you are", allowedMentions: { parse: [] } });
    console.log("command " + interaction.commandName + " " + interaction.options.getString("arguments"));
  }
});
client.once(Events.ClientReady, async (ready) => {
  console.log("ready " + ready.user.username);
  const body = {
    content: "hello", allowed_mentions: { parse: [] },
    components: [{ type: 1, components: [{ type: 2, style: 3, label: "Yes", custom_id: "/approve x" }] }],
  };
  const sent = await ready.rest.post("/channels/55/messages", { body });
  await ready.rest.patch(`/channels/55/messages/${sent.id}`, { body: { ...body, content: "done", components: [] } });
  console.log("sent " + sent.id);
  try {
    await ready.rest.post("/channels/55/messages", { body: { ...body, content: "x".repeat(2001) } });
  } catch (error) {
    console.log("refused " + error.status + " " + error.message);
  }
});
process.stdin.on("end", () => client.destroy().then(() => process.exit(0)));
process.stdin.resume();
await client.login(process.argv[4]);
