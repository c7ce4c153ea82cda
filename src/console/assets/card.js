// What it takes to decide: the inside of a card, and rules, what one decides once for what agents ask again.

import { ago, button, dialog, field, fill, formOf, h, plural, select, table, toast, visible, visibleLine } from "./dom.js";
import { at, del, get, patch, post } from "./api.js";
import { diffView } from "./diff.js";

const LIMITS = [
  ["uses:1", "once more"],
  ["uses:20", "20 times"],
  ["minutes:60", "for an hour"],
  ["minutes:480", "for 8 hours"],
  ["minutes:10080", "for a week"],
  ["minutes:43200", "for 30 days"],
];
const WHOM = [
  ["agent", "this agent"],
  ["role", "agents of its role"],
  ["project", "all agents"],
];

const row = (label, ...what) => [h("dt", label), h("dd", ...what)];
const globs = (scope) => (scope?.length ? scope.join(" ") : "everything that nobody owns");

/** What would happen, where, and why: what it takes to decide. */
export function details(card) {
  const { command, change, owner, words = [], before } = card;
  const of = command ? card.parameters.filter(([name]) => name !== "command") : card.parameters;
  return [
    h(
      "dl.params",
      command && row("Runs", h("pre", { tabIndex: 0 }, visible(command.text))),
      command && row("In", command.folder === null ? "a folder that is not known" : command.folder || "the project"),
      of.map(([name, text]) => row(visibleLine(name), name === "file" ? visibleLine(text) : visible(text))),
      card.certainty && row("How sure", card.certainty),
      owner && row("Owner", h("a", { href: `#/agent/${owner.id}` }, visibleLine(owner.name)), ` (${globs(owner.scope)})`),
      change && row("Its own files", visibleLine(globs(card.scope))),
    ),
    change &&
      h(
        "div.change",
        h("p.muted", `${change.note}: `, change.exists ? fileLink(change.path) : visibleLine(change.path)),
        change.diff && diffView(change.diff),
      ),
    words.length > 0 &&
      h("blockquote.words", words.map(({ text }) => h("p.clamp", visible(text)))),
    before.length > 0 &&
      h(
        "ul.before",
        { ariaLabel: "Decided before" },
        before.map((one) =>
          h(
            "li",
            `${one.same ? "Exactly this" : "One like it"} of ${visibleLine(one.agentName)} was `,
            h("span", { class: `status ${one.status}` }, one.status),
            one.reason ? `: ${visibleLine(one.reason)}` : "",
            " ",
            ago(one.at, " ago"),
          ),
        ),
      ),
  ];
}

const fileLink = (path) => h("a.mono", { href: `#/files/${encodeURIComponent(path)}` }, visibleLine(path));

/** What decides this one and all that are like it; nothing for what only a person answers. */
export function ruleForm(approval, done) {
  const may = approval.mayRule;
  if (!may || approval.agentId === "operator") return false;
  const what = select(
    [["exactly", "exactly this"], ...(may.command ? [["command", "this command in this folder"]] : [])],
    may.command ? "command" : "exactly",
  );
  const whom = select(WHOM, "agent");
  const limit = select(LIMITS, "uses:20");
  what.ariaLabel = "What the rule is about";
  whom.ariaLabel = "Whom the rule is for";
  limit.ariaLabel = "How long it is allowed";
  const words = h("p.muted");
  const why = h("p.muted");
  const make = (say) => async () => {
    const body = { say, approval: approval.id, match: what.value, for: whom.value };
    if (say === "allow") {
      const [name, n] = limit.value.split(":");
      body[name] = Number(n);
    }
    const { rule } = await post("/api/rules", body);
    toast(`Rule: ${visibleLine(rule.description)}`);
    await done(say);
  };
  const allow = button("Always allow", make("allow"));
  const never = button("Never allow", make("never"));
  const show = () => {
    const chosen = may[what.value];
    fill(words, `About: ${visibleLine(chosen.words)}`);
    allow.disabled = !chosen.allow;
    limit.disabled = !chosen.allow;
    fill(why, chosen.allow ? "" : `No rule can allow this: ${chosen.why}.`);
  };
  what.onchange = show;
  show();
  return h(
    "details.rule",
    h("summary", "Decide it for the next times, too"),
    words,
    h("div.actions", what, whom, limit, never, allow),
    why,
  );
}

/** The rules in force and the last that were; `load` reads them anew. */
export function ruleList() {
  const el = h("section", { ariaLabel: "Rules" });
  const load = async () => {
    const { rules } = await get("/api/rules");
    fill(el, rules.length > 0 && [h("h2", "Rules"), table("Rules", ["Says", "What", "Used", "Ends", "By", ""], rules.map(line))]);
  };
  const line = (rule) => [
    rule.say,
    visibleLine(rule.description),
    h(
      "span",
      rule.uses ? `${rule.used} of ${rule.uses}` : plural(rule.used, "time"),
      rule.lastUsedAt ? [", ", ago(rule.lastUsedAt, " ago")] : "",
    ),
    rule.over ? rule.over.replace("_", " ") : rule.expiresAt ? h("span", "in ", ago(rule.expiresAt)) : "never",
    rule.madeBy,
    rule.over
      ? ""
      : button(
          "Revoke",
          async () => {
            await del(at`/api/rules/${rule.id}`);
            toast("The rule is revoked");
            await load();
          },
          { ariaLabel: `Revoke: ${visibleLine(rule.description)}` },
        ),
  ];
  return { el, load };
}

/** The path as a glob that means itself. */
const plain = (path) => path.replace(/[*?[\]{}]/g, "[$&]");

/** Approves a write and makes such files the agent's own; nothing where it has no scope that could be widened. */
export function widening(approval, { scope, owner }, decide) {
  const path = approval.action.filePath;
  if (approval.action.type !== "scope_violation" || !path || !scope?.length) return false;
  const who = visibleLine(approval.agentName);
  const cut = path.lastIndexOf("/");
  const ask = () => {
    const glob = h("input", { value: cut > 0 ? `${plain(path.slice(0, cut))}/**` : plain(path), autocomplete: "off" });
    const exact = h("button", { onclick: () => ((glob.value = plain(path)), glob.focus()) }, "Only this file");
    const wide = async () => {
      const { scope: own } = await get(at`/api/agents/${approval.agentId}`);
      await patch(at`/api/agents/${approval.agentId}`, { scope: [...new Set([...own, glob.value.trim()])] });
      el.close();
      await decide();
    };
    const form = formOf(
      "Allow and widen",
      wide,
      [
        h("p", `${who} may write these from now on without asking. It has: `, h("span.mono", visibleLine(scope.join(" ")))),
        owner && h("p", `${visibleLine(owner.name)} owns this file, too: both may then write it.`),
        field("scope", "Files that become its own", glob, "A glob from the project's root"),
      ],
      {},
      exact,
    );
    const el = dialog(`Widen what ${who} owns`, form);
    glob.focus();
  };
  return h("button", { onclick: ask, ariaLabel: `Allow and widen… (${who})` }, "Allow and widen…");
}
