// grammy against the server that stands for Telegram: it polls, gets a command, answers with buttons, edits.
import { createRequire } from "node:module";
const require = createRequire(process.argv[3] + "/");
const { Bot, InlineKeyboard } = require("grammy");

const bot = new Bot(process.argv[4], { client: { apiRoot: process.argv[2] } });
bot.command("start", async (context) => {
  const keyboard = new InlineKeyboard().text("Yes", "/approve apr-00000001");
  const sent = await context.reply("<b>hello</b> &amp; welcome", { parse_mode: "HTML", reply_markup: keyboard });
  console.log("sent " + sent.message_id);
});
bot.on("callback_query:data", async (context) => {
  await context.answerCallbackQuery({ text: "thanks" });
  await context.editMessageText("done");
  console.log("clicked " + context.callbackQuery.data);
  try {
    await context.reply("x".repeat(4097));
  } catch (error) {
    console.log("refused " + error.error_code + " " + error.description);
  }
  // Not awaited: the loop that it ends waits for this handler.
  void bot.stop();
});
await bot.start({ onStart: (me) => console.log("ready " + me.username) });
console.log("over");
