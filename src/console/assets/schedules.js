// Agents by the clock.

import { ago, button, confirm, dayOf, dialog, empty, field, fill, formOf, h, head, select, span, toast, unavailable } from "./dom.js";
import { at, del, get, patch, post } from "./api.js";
import { on } from "./store.js";

export default function schedules(view) {
  const list = h("div.list");
  view.append(
    head("Schedules", "Start agents at set times.", h("button.primary", { onclick: () => edit() }, "New schedule")),
    list,
  );
  const edit = async (old) => {
    const providers = await get("/api/providers");
    const name = h("input", { value: old?.name ?? "" });
    const cron = h("input", { value: old?.cron ?? "", placeholder: "0 7 * * mon-fri" });
    const zone = h("input", { value: old?.timezone ?? Intl.DateTimeFormat().resolvedOptions().timeZone });
    const role = h("input", { value: old?.agent.role ?? "" });
    const prompt = h("textarea", { rows: 4, value: old?.agent.prompt ?? "" });
    const provider = select(
      providers.map((one) => [one.id, one.name, !one.installed]),
      old?.agent.provider ?? providers.find((one) => one.installed)?.id,
    );
    const model = h("input", { value: old?.agent.model ?? "" });
    const form = formOf("Save", submit, [
      field("name", "Name", name),
      h("div.two", field("cron", "When", cron, "Minute, hour, day, month, weekday"), field("timezone", "Time zone", zone)),
      field("agent.prompt", "Task", prompt),
      field("agent.role", "Role", role),
      h("div.two", field("agent.provider", "Provider", provider), field("agent.model", "Model", model)),
    ]);
    const el = dialog(old ? "Change the schedule" : "New schedule", form);
    async function submit() {
      const body = {
        name: name.value.trim() || undefined,
        cron: cron.value,
        timezone: zone.value.trim() || undefined,
        agent: {
          ...old?.agent,
          role: role.value.trim(),
          prompt: prompt.value,
          provider: provider.value,
          model: model.value.trim(),
        },
      };

      await (old ? patch(at`/api/schedules/${old.id}`, body) : post("/api/schedules", body));
      el.close();
      await load();
    }
    name.focus();
  };
  const card = (one) =>
    h(
      "article.card.plain",
      h(
        "div.card-head",
        h("strong", one.name || one.agent.role),
        h("code", one.cron),
        h("span.muted", one.timezone ?? ""),
        h(
          "span.muted.right",
          one.enabled ? (one.nextRun ? `next in ${span(one.nextRun)}, ${dayOf(one.nextRun)}` : "no next run") : "off",
        ),
      ),
      h("p.clamp", one.agent.prompt ?? ""),
      one.lastRun && h("p.muted", "Last ", ago(one.lastRun, " ago")),
      one.history?.length > 0 &&
        h(
          "details",
          h("summary", `${one.history.length} runs`),
          h(
            "ul.rows",
            [...one.history]
              .reverse()
              .slice(0, 50)
              .map((run) =>
                h(
                  "li",
                  h("span", dayOf(run.at ?? run.ts ?? run.dueAt)),
                  h(
                    "span",
                    run.outcome ?? run.status ?? run.result ?? "",
                    " ",
                    run.agentId ? h("a", { href: `#/agent/${run.agentId}` }, run.agentId) : (run.reason ?? ""),
                  ),
                ),
              ),
          ),
        ),
      h(
        "div.actions",
        h(
          "button",
          {
            onclick: () =>
              confirm(`Remove ${one.name || "the schedule"}?`, "Agents that it started go on.", "Remove", async () => {
                await del(at`/api/schedules/${one.id}`);
                await load();
              }),
          },
          "Remove",
        ),
        h("button", { onclick: () => edit(one) }, "Change"),
        button(one.enabled ? "Turn off" : "Turn on", async () => {
          await post(`${at`/api/schedules/${one.id}`}/${one.enabled ? "disable" : "enable"}`);
          await load();
        }),
        button(
          "Run now",
          async () => {
            await post(at`/api/schedules/${one.id}/run`);
            toast("It has started");
            await load();
          },
          { class: "primary" },
        ),
      ),
    );
  const load = async () => {
    const answer = await get("/api/schedules");
    const all = answer.schedules ?? answer;
    fill(
      list,
      all.length ? all.map(card) : empty("No schedules", "For example a reviewer every weekday at seven: ", h("code", "0 7 * * mon-fri")),
    );
  };
  const safe = () => load().catch(unavailable(list));
  safe();
  const stops = [on("schedule:execute", safe), on("reconnect", safe)];
  return {
    stop() {
      for (const stop of stops) stop();
    },
  };
}
