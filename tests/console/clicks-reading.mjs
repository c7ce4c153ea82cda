// Reading: Markdown as text nodes, calls folded by kind, turns, and what hostile texts cost.

import { axe, check, open, text, until } from "./lib.mjs";
import { browser, daemon, scenario } from "./clicks-world.mjs";

/** Markdown in, what the page makes of it out: as nested arrays of tag, words, and where links lead. */
const rendered = (page, markdown, options = {}) =>
  page.evaluate(
    async ([source, how]) => {
      const { prose } = await import("/console/prose.js");
      const tree = (node) => {
        if (node.nodeType === Node.TEXT_NODE) return node.data;
        const name = node.tagName.toLowerCase() + (node.getAttribute("href") ? `=${node.getAttribute("href")}` : "");
        return [name, ...[...node.childNodes].map(tree)];
      };
      return prose(source, how).map(tree);
    },
    [markdown, options],
  );

async function makes(page, markdown, wanted, options) {
  const got = JSON.stringify(await rendered(page, markdown, options));
  check(got === JSON.stringify(wanted), `${JSON.stringify(markdown)} became ${got}`);
}

scenario("Markdown: marks within words", async (page) => {
  const p = (...parts) => [["p", ...parts]];
  await makes(page, "a **b** _c_ ~~d~~ `e*f*`", p("a ", ["strong", "b"], " ", ["em", "c"], " ", ["s", "d"], " ", ["code", "e*f*"]));
  await makes(page, "***both*** and **in *one* other**", p(["strong", ["em", "both"]], " and ", ["strong", "in ", ["em", "one"], " other"]));
  await makes(page, "2 * 3 * 4, snake_case_name, src/**/*.js, **open", p("2 * 3 * 4, snake_case_name, src/**/*.js, **open"));
  await makes(page, "``a ` b`` \\*no\\* <b>x</b> &amp;", p(["code", "a ` b"], " *no* <b>x</b> &amp;"));
  await makes(page, "one\ntwo", p("one\ntwo"));
  await makes(page, "one\ntwo", p("one two"), { join: true });
});

scenario("Markdown: links say where they lead, and lead nowhere else", async (page) => {
  const p = (...parts) => [["p", ...parts]];
  const goes = (where) => ["span", ` (${where})`];
  await makes(page, "see https://example.org/a?b=1.", p("see ", ["a=https://example.org/a?b=1", "https://example.org/a?b=1"], "."));
  await makes(page, "[your bank](https://evil.example/x)", p(["a=https://evil.example/x", "your bank"], goes("https://evil.example/x")));
  // The words claim another host than the address has, or hide it behind a name.
  await makes(page, "[https://bank.example](https://evil.example/)", p(["a=https://evil.example/", "https://bank.example"], goes("https://evil.example/")));
  await makes(page, "[x](https://bank.example@evil.example/)", p("x (", ["code", "https://bank.example@evil.example/"], ")"));
  await makes(page, "[x](java\u200bscript:alert) [y](file:///etc/passwd)", p("x (", ["code", "java\\u{200b}script:alert"], ") y (", ["code", "file:///etc/passwd"], ")"));
  await makes(page, "[run me](data:text/html,hi)", p("run me (", ["code", "data:text/html,hi"], ")"));
  await makes(page, "[it](src/login.js#L12) and [up](../secret)", p(["a=#/files/src%2Flogin.js", "it"], goes("src/login.js"), " and up (", ["code", "../secret"], ")"));
  await makes(page, "![a picture](https://far.example/p.png)", p(["a=https://far.example/p.png", "a picture"], goes("https://far.example/p.png")));
  const kept = await page.evaluate(async () => {
    const { prose } = await import("/console/prose.js");
    const [el] = prose("https://example.org/");
    return [el.firstChild.rel, el.firstChild.target];
  });
  check(kept.join() === "noopener noreferrer nofollow,_blank", `a link is ${kept}`);
});

scenario("Markdown: blocks", async (page) => {
  await makes(page, "# A\n\n---\n\n> q\n> r", [["h2", "A"], ["hr"], ["blockquote", ["p", "q\nr"]]]);
  await makes(page, "- a\n  - b\n- [x] c\n\n3. d\n4. e", [
    ["ul", ["li", "a", ["ul", ["li", "b"]]], ["li", "☑ ", "c"]],
    ["ol", ["li", "d"], ["li", "e"]],
  ]);
  const table = (await rendered(page, "| n | *m* |\n|---|--:|\n| 1 | `a\\|b` |\n| 2 |\n\nend"))[0];
  const cells = JSON.stringify(table);
  check(cells.includes('["thead",["tr",["th","n"],["th",["em","m"]]]]'), cells);
  check(cells.includes('["tr",["td","1"],["td",["code","a|b"]]],["tr",["td","2"],["td",""]]'), cells);
  const code = JSON.stringify(await rendered(page, "```js\n<b>**x**</b>\n```\nafter"));
  check(code.includes('["span","js"]') && code.includes('["pre","<b>**x**</b>"]') && code.includes('["p","after"]'), code);
});

scenario("Markdown: what is hostile costs time in line with its length, and is bounded", async (page) => {
  const told = await page.evaluate(async () => {
    const { prose, MAX_CHARS, MAX_CELLS, MAX_ELEMENTS } = await import("/console/prose.js");
    const kinds = {
      stars: "*", "stars apart": "*a ", "double stars": "**a", ticks: "`", "ticks of many lengths": null, brackets: "[",
      links: "[a](", "links with titles": '[a](b "', pictures: "![a", angles: "<http", escapes: "\\", lines: "_a __b ",
      quotes: "> ", "nested quotes": ">", "nested lists": null, items: "- \n", fences: "```\n`", addresses: "http://a.b/((",
      bars: "|", tables: "|a|b|\n|-|-|\n", "one table": null, comments: "<!-- ", mixed: "*_`[~~](<>|\n", blanks: " ", tabs: "\t\n",
    };
    const made = {
      "ticks of many lengths": (n) => Array.from({ length: Math.sqrt(2 * n) | 0 }, (_, at) => "`".repeat(at + 1)).join(" "),
      "nested lists": (n) => Array.from({ length: n >> 6 }, (_, at) => `${"  ".repeat(at % 30)}- a`).join("\n"),
      "one table": (n) => `|a|b|\n|-|-|\n${"|1|2|\n".repeat(n / 6)}`,
    };
    const out = [];
    for (const [name, unit] of Object.entries(kinds)) {
      const run = (n) => {
        const source = made[name]?.(n) ?? unit.repeat(Math.ceil(n / unit.length));
        const began = performance.now();
        const nodes = prose(source, { most: Infinity, bare: true });
        const box = document.createElement("div");
        box.append(...nodes);
        return { ms: performance.now() - began, elements: box.querySelectorAll("*").length, cells: box.querySelectorAll("td").length };
      };
      run(1 << 14);
      const small = run(1 << 17);
      // On a machine that is busy with something else, the quickest of three.
      let large = run(1 << 20);
      for (let again = 0; again < 2 && large.ms > 1_000; again += 1) {
        const other = run(1 << 20);
        if (other.ms < large.ms) large = other;
      }
      out.push({ name, small, large });
    }
    const cut = prose("word ".repeat(MAX_CHARS), {});
    return { out, cut: cut.at(-1).textContent, max: MAX_ELEMENTS, cells: MAX_CELLS };
  });
  for (const { name, small, large } of told.out) {
    check(large.ms < 2_000 && large.ms < 24 * small.ms + 250, `1 MB of ${name}: ${large.ms} ms, an eighth of it: ${small.ms} ms`);
    check(large.elements < told.max * 2, `1 MB of ${name} made ${large.elements} elements`);
    check(large.cells <= told.cells, `1 MB of ${name} made ${large.cells} cells`);
  }
  const slowest = told.out.toSorted((a, b) => b.large.ms - a.large.ms)[0];
  console.log(`     the slowest megabyte: ${slowest.name}, ${slowest.large.ms.toFixed(0)} ms`);
  check(/^… and 800,000 more characters/.test(told.cut), `what is left out is not told: ${told.cut}`);
});

const REPORT = `## What I found

The **session** never ends. See [the code](src/login.js) and https://example.org/sessions.

| File | Fault |
|---|--:|
| \`src/login.js\` | 1 |

- first
- second

\`\`\`js
export const HOURS = 8;
\`\`\`
`;

/** A timeline out of these entries, whatever the agent really did. */
async function plays(page, id, entries) {
  const log = entries.map((entry, at) => ({ ...entry, n: at + 1, ts: new Date(1.7e12 + at * 900).toISOString() }));
  await page.route(/\/log\?/, (route) => {
    const since = Number(new URL(route.request().url()).searchParams.get("since"));
    return route.fulfill({ json: { entries: log.filter(({ n }) => n > since), next: null } });
  });
}

const call = (id, name, input, more = {}) => [
  { type: "tool-started", id, name, input },
  { type: "tool-ended", id, output: `done ${id}`, error: false, ...more },
];

const ENTRIES = [
  { type: "user", text: "Why do sessions never end?" },
  { type: "thinking", text: "Look first." },
  ...[..."abcdef"].flatMap((id) => call(id, id < "d" ? "Read" : "Grep", { path: `src/${id}.js` })),
  ...call("g", "Bash", { command: "npm test" }, { error: true, output: "1 failed" }),
  { type: "text", text: REPORT },
  { type: "turn-ended", isError: false, text: "" },
  { type: "user", text: "Then mend it" },
  { type: "text", text: "Mended." },
  { type: "turn-ended", isError: false, text: "" },
];

scenario("a turn is read as it was written: calls folded, an outline, all by the keyboard, axe finds nothing", async (page) => {
  const { id } = await daemon.spawn("worker", "quick", { name: "worker-read" });
  await daemon.until("worker-read", ["completed", "waiting"]);
  for (const colorScheme of ["light", "dark"]) {
    const mine = await open(browser, null, { bypassCSP: true, colorScheme, permissions: ["clipboard-read", "clipboard-write"] });
    await plays(mine, id, ENTRIES);
    await mine.goto(`${daemon.url}/#/agent/${id}`);
    await reads(mine);
    check(!mine.faults.length, mine.faults.join("; "));
    await mine.context().close();
  }
  await page.quiet();
  await daemon.forget(page, id);
});

async function reads(page) {
  const row = (words) => page.locator(".vrow.entry:not([hidden])", { hasText: words });
  await row("6 × Read, Grep").waitFor();
  await row("npm test").waitFor();
  check((await row("What I found").locator("strong").count()) > 0, "marks stand in the list as they were typed");
  await page.locator(".vlist").focus();
  await page.keyboard.press("o");
  const turns = page.locator(".detail .turn-row");
  check((await turns.count()) === 2, `${await turns.count()} turns`);
  check(/7 calls.*1 failed/.test(await turns.first().innerText()), await turns.first().innerText());
  await axe(page, "the outline");
  await turns.first().focus();
  await page.keyboard.press("Enter");
  const turn = page.locator(".detail .turn");
  await turn.locator("h4", { hasText: "What I found" }).waitFor();
  check((await turn.locator("td code").innerText()) === "src/login.js", "a table has no cells");
  check((await turn.locator("details.fold.tool").count()) === 7, "calls are not folded one by one");
  check((await turn.locator("details.fold.tool[open]").count()) === 1, "what failed is not open, or all is");
  await turn.getByText("1 failed", { exact: true }).waitFor();
  await turn.getByRole("button", { name: "Copy this code" }).focus();
  await page.keyboard.press("Enter");
  await page.getByText("Copied").waitFor();
  check((await page.evaluate(() => navigator.clipboard.readText())) === "export const HOURS = 8;", "the code was not copied");
  const fold = turn.locator("details.fold.tool > summary", { hasText: "src/a.js" });
  await fold.focus();
  await page.keyboard.press("Enter");
  await turn.getByText("done a", { exact: true }).waitFor();
  await axe(page, "a turn");
  await page.keyboard.press("Escape");
  await page.locator(".detail").waitFor({ state: "hidden" });
  await row("6 × Read, Grep").click();
  check((await page.locator(".detail details.fold").count()) === 6, "the folded calls cannot be read");
  await page.keyboard.press("j");
  await until("the next entry", async () => (await text(page, ".detail h2")) === "Bash");
  await page.keyboard.press("t");
  await turn.waitFor();
}

scenario("a link to an entry leads to its place in the timeline", async (page) => {
  daemon.scenario("chapters", {
    steps: [{ loop: { times: 700, steps: [{ say: "page {{n}} of the **book**" }] } }, { say: "the very last words" }, { ask: "More?" }],
  });
  const { id } = await daemon.spawn("worker", "chapters", { name: "worker-book" });
  await until("the book", async () => {
    const { entries } = await daemon.get(`/api/agents/${id}/log?tail=5`);
    return entries.some(({ text: words }) => words === "the very last words");
  });
  await page.goto(`${daemon.url}/#/agent/${id}/at/40`);
  const chosen = page.locator(".vrow.selected:not([hidden])");
  await until("entry 40", async () => (await chosen.getAttribute("data-entries"))?.split(" ").includes("40"));
  const { entries } = await daemon.get(`/api/agents/${id}/log?since=600&limit=1`);
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/agent/${id}/at/${entries[0].n}`);
  await until("another entry", async () => (await chosen.getAttribute("data-entries"))?.split(" ").includes(String(entries[0].n)));
  const list = await page.locator(".vlist").boundingBox();
  const at = await chosen.boundingBox();
  check(at.y >= list.y && at.y + at.height <= list.y + list.height, "the entry is not in sight");
  await daemon.forget(page, id);
});

scenario("the palette finds words in all logs and leads to their place", async (page) => {
  daemon.scenario("sailor", {
    steps: [
      { loop: { times: 30, steps: [{ say: "waves" }] } },
      { say: "The <b>Nordstern</b> sails at dawn" },
      { loop: { times: 30, steps: [{ say: "more waves" }] } },
      { ask: "Ahoy?" },
    ],
  });
  const { id } = await daemon.spawn("worker", "sailor", { name: "worker-sails" });
  await until("its words", async () => (await daemon.get("/api/search?q=nordstern")).hits.length);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search" }).fill("nordstern dawn");
  const hit = page.locator(".palette li.hit");
  await hit.waitFor();
  check((await hit.innerText()).includes("The <b>Nordstern</b> sails at dawn"), await hit.innerText());
  check((await hit.locator("mark").allInnerTexts()).join() === "Nordstern,dawn", "what was looked for is not marked");
  check(!(await hit.locator("b").count()), "words of an agent became markup");
  check((await page.locator(".palette-note").innerText()) === "1 in the logs with all these words", "it is not counted");
  await page.keyboard.press("Enter");
  const chosen = page.locator(".vrow.selected:not([hidden])");
  await chosen.waitFor();
  check((await chosen.innerText()).includes("sails at dawn"), await chosen.innerText());
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search" }).fill("xylophone");
  await page.getByText("No entry of a log has all of these words").waitFor();
  await page.getByRole("combobox", { name: "Search" }).fill("approv");
  await page.locator(".palette li", { hasText: "Approvals" }).waitFor();
  await page.keyboard.press("Escape");
  await daemon.forget(page, id);
});
