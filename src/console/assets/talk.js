// The box under an agent's work: instruct it, or ask it something aside.

import { button, h, say, select, toast } from "./dom.js";
import { at, post } from "./api.js";
import { find } from "./store.js";

/** Instruct and query. */
export function talk(key) {
  const text = h("textarea", { rows: 1, placeholder: "Write to the agent", "aria-label": "Message" });
  const how = select(
    [
      ["now", "Now"],
      ["idle", "When its turn ends"],
      ["rotation", "With its next rotation"],
      ["query", "Ask aside, without disturbing it"],
    ],
    "now",
  );
  how.setAttribute("aria-label", "How it is delivered");
  const answer = h("div", { class: "answer", hidden: true, role: "status" });
  const send = button(
    "Send",
    async () => {
      const message = text.value.trim();
      if (!message) return text.focus();
      const id = find(key)?.id ?? key;
      if (how.value === "query") {
        answer.hidden = false;
        say(answer, "Asking; at most 60 s.");
        try {
          say(answer, (await post(at`/api/agents/${id}/query`, { question: message })).answer);
        } catch (error) {
          answer.hidden = true;
          throw error;
        }
      } else {
        const told = await post(at`/api/agents/${id}/instruct`, { message, deliver: how.value });
        toast(
          { rotation: "It is told with its next rotation", idle: "It is told when its turn ends" }[
            told.deliverOn
          ] ?? "Sent",
        );
      }
      text.value = "";
      return undefined;
    },
    { class: "primary" },
  );
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send.click();
    }
  });
  return {
    el: h("div", {}, h("div", { class: "say" }, text, h("div", { class: "how" }, how, send)), answer),
    focus: () => text.focus(),
  };
}
