// The box under an agent's work: instruct it, or ask it something aside.

import { button, fill, h, keep, kept, select, toast } from "./dom.js";
import { at, post } from "./api.js";
import { find } from "./store.js";
import { passage } from "./prose.js";

/** Where the last choice of a delivery is kept. */
const HOW = "svc-how";

/** Instruct and query. */
export function talk(key) {
  const text = h("textarea", { rows: 1, placeholder: "Write to the agent", ariaLabel: "Message" });
  const how = select(
    [
      ["auto", "As soon as it listens"],
      ["now", "Now"],
      ["idle", "When its turn ends"],
      ["rotation", "With its next rotation"],
      ["query", "Ask aside, without disturbing it"],
    ],
    kept(HOW) || "auto",
  );
  how.ariaLabel = "How it is delivered";
  how.onchange = () => keep(HOW, how.value);
  const answer = h("div.answer", { hidden: true, role: "status" });
  /** Shows question and answer below the box, which may be the window's last line: then it moves up. */
  const tell = (question, words) => {
    answer.hidden = false;
    fill(answer, h("p.muted", `Asked aside: ${question}`), passage(words));
    answer.scrollIntoView({ block: "nearest" });
  };
  const send = button(
    "Send",
    async () => {
      const message = text.value.trim();
      if (!message) return text.focus();
      const id = find(key)?.id ?? key;
      if (how.value === "query") {
        tell(message, "Asking; at most 60 s.");
        try {
          tell(message, (await post(at`/api/agents/${id}/query`, { question: message })).answer);
        } catch (error) {
          answer.hidden = true;
          throw error;
        }
      } else {
        const told = await post(at`/api/agents/${id}/instruct`, { message, deliver: how.value });
        toast(
          { rotation: "It is told with its next rotation, or when its turn ends", idle: "It is told when its turn ends" }[told.deliverOn] ??
            "Sent",
        );
      }
      text.value = "";
      return undefined;
    },
    { class: "primary" },
  );
  text.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send.click();
    }
  };
  return {
    el: h("div", h("div.say", text, h("div.how", how, send)), answer),
    focus: () => text.focus(),
  };
}
