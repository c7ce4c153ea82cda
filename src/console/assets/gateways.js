// Chats that bring notifications and take commands.

import { button, confirm, dialog, empty, field, fill, formOf, h, head, select, toast, unavailable } from "./dom.js";
import { at, del, get, patch, post } from "./api.js";
import { on } from "./store.js";

const NAMES = { telegram: "Telegram", discord: "Discord", slack: "Slack" };
const KEYS = { telegram: ["bot_token"], discord: ["bot_token"], slack: ["bot_token", "app_token"] };

const LABELS = { bot_token: "Bot token", app_token: "App token" };

export default function gateways(view) {
  const list = h("div.list");
  view.append(
    head(
      "Chat gateways",
      "Approvals and crashes reach you in a chat, and commands come back. All connections are outgoing.",
      h("button.primary", { onclick: () => edit() }, "New gateway"),
    ),
    list,
  );
  const edit = async (listed) => {
    let old = listed && (await get(at`/api/gateways/${listed.id}`));
    const type = select(Object.entries(NAMES), old?.type ?? "telegram");
    type.disabled = Boolean(old);
    const name = h("input", { value: old?.displayName ?? "" });
    const chat = h("input", { value: old?.chatId ?? "" });
    const preset = select(
      [
        ["critical", "Approvals and crashes"],
        ["lifecycle", "All agent events"],
        ["all", "Everything but output"],
      ],
      old?.notifications?.preset ?? "critical",
    );
    const permission = select(
      [
        ["read-only", "Look only"],
        ["full", "Full: spawn, kill, approve, rotate"],
      ],
      old?.commandPermission ?? "read-only",
    );
    const users = h("input", { value: Array.isArray(old?.allowedUsers) ? old.allowedUsers.join(", ") : "" });
    const secrets = h("div.two");
    let tokens = [];
    const ask = () => {
      tokens = KEYS[type.value].map((key) => {
        const placeholder = old?.credentials?.includes(key) ? "stored; write to replace" : "";
        return [key, h("input", { type: "password", autocomplete: "off", placeholder })];
      });
      fill(secrets, ...tokens.map(([key, input]) => field(key, LABELS[key], input, "Stored encrypted")));
    };
    type.onchange = ask;
    ask();
    const form = formOf("Save", submit, [
      h("div.two", field("type", "Platform", type), field("displayName", "Name", name)),
      h("div.two", field("chatId", "Chat id", chat), field("notifications.preset", "It sends", preset)),
      h(
        "div.two",
        field("commandPermission", "Commands may", permission),
        field("allowedUsers", "Only these users", users, "Ids, separated by commas; empty lets everybody in the chat"),
      ),
      secrets,
    ]);
    const el = dialog(old ? old.displayName : "New gateway", form);
    async function submit() {
      const body = {
        chatId: chat.value.trim() || null,
        notifications: { preset: preset.value },
        commandPermission: permission.value,
        allowedUsers: users.value
          .split(",")
          .map((one) => one.trim())
          .filter(Boolean),
      };
      if (name.value.trim()) body.displayName = name.value.trim();

      const kept = old ? await patch(at`/api/gateways/${old.id}`, body) : await post("/api/gateways", { type: type.value, ...body });
      // From here on it exists: a second try after a refused token changes it.
      old ??= kept;
      for (const [key, input] of tokens) if (input.value) await post(at`/api/gateways/${old.id}/credentials`, { key, value: input.value });
      el.close();
      await load();
    }
  };
  const act = (one, verb, said) => async () => {
    await post(`${at`/api/gateways/${one.id}`}/${verb}`);
    toast(said);
    await load();
  };
  const card = (one) =>
    h(
      "article.card.plain",
      h(
        "div.card-head",
        h("strong", one.displayName),
        h("span.tag", NAMES[one.type] ?? one.type),
        h(
          "span",
          { class: `status right ${one.connected ? "running" : one.lastError ? "failed" : "completed"}` },
          one.connected ? "connected" : "not connected",
        ),
      ),
      h(
        "p.muted",
        [
          one.botUsername && `@${one.botUsername}`,
          `sends ${one.notifications?.preset}`,
          `commands ${one.commandPermission}`,
          one.chatId && `chat ${one.chatId}`,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      one.lastError && h("p.fault", one.lastError),
      h(
        "div.actions",
        h(
          "button",
          {
            onclick: () =>
              confirm(`Remove ${one.displayName}?`, "Its token is forgotten too.", "Remove", async () => {
                await del(at`/api/gateways/${one.id}`);
                await load();
              }),
          },
          "Remove",
        ),
        h("button", { onclick: () => edit(one) }, "Change"),
        button("Test", act(one, "test", "A test message is on its way")),
        one.connected
          ? button("Disconnect", act(one, "disconnect", "Disconnected"))
          : button("Connect", act(one, "connect", "Connecting"), { class: "primary" }),
      ),
    );
  const load = async () => {
    const answer = await get("/api/gateways");
    const all = answer.gateways ?? answer;
    fill(
      list,
      all.length
        ? all.map(card)
        : empty("No gateways", "Make a bot on Telegram, Discord or Slack, then add it here to approve from your phone."),
    );
  };
  const safe = () => load().catch(unavailable(list));
  safe();
  const stops = [on("gateway:status", safe), on("reconnect", safe)];
  return {
    stop() {
      for (const stop of stops) stop();
    },
  };
}
