// Reviewing what an agent has changed: by clicks and by keys.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { axe, check, open, text, until } from "./lib.mjs";
import { browser, daemon, dir, scenario } from "./clicks-world.mjs";

const git = (...args) =>
  execFileSync("git", ["-c", "user.email=a@example.org", "-c", "user.name=a", ...args], { cwd: dir, encoding: "utf8" });

/** Commits files in the project; the agent that then starts has a worktree with them. */
function commit(files) {
  for (const [file, content] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(dir, file)), { recursive: true });
    fs.writeFileSync(path.join(dir, file), content);
  }
  git("add", ...Object.keys(files));
  git("commit", "-qm", "more of it");
}

const lines = (count, word) => Array.from({ length: count }, (_, n) => `${word} ${n + 1}\n`).join("");

/** An agent in a worktree that has played its scenario up to where so many files are changed. */
async function reviewed(name, steps, files) {
  daemon.scenario(name, { steps, onSay: [{ answer: "I was told: {{message}}" }] });
  const { id } = await daemon.spawn("writer", name, { name, isolation: "worktree" });
  await until("what it changes", async () => (await daemon.get(`/api/agents/${id}/diff`)).files.length === files);
  return id;
}

const write = (file, content) => ({ write: { path: file, text: content } });
const where = (page, ...words) => page.locator(".l", { hasText: words[0] });

scenario("differing words of two lines, and the files of a diff", async (page) => {
  const told = await page.evaluate(async () => {
    const { differ, parse } = await import("/console/diff.js");
    const marked = (old, now) => differ(old, now)?.map((side) => side.map(([part, is]) => (is ? `[${part}]` : part)).join(""));
    const long = "word ".repeat(100);
    const began = performance.now();
    for (let n = 0; n < 3000; n += 1) differ("a b ".repeat(40), "b a c ".repeat(26));
    const patch =
      "diff --git a/a b/b\nsimilarity index 90%\nrename from a\nrename to b\n--- a/a\n+++ b/b\n@@ -2,2 +3,2 @@ fn\n one\n--- a/x\n\\ No newline\n+++ b/x\n" +
      "diff --git a/p.png b/p.png\nnew file mode 100644\nBinary files /dev/null and b/p.png differ\n" +
      "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
    return {
      pairs: [
        marked("let total = sum(items);", "let whole = sum(items);"),
        marked("a(b, c)", "a(b, c, d)"),
        marked("naïve Größe", "naïve Länge"),
      ],
      other: marked("nothing alike", "return x * 2;"),
      long: marked(long, `${long}more`),
      ms: performance.now() - began,
      files: parse(patch),
    };
  });
  check(
    JSON.stringify(told.pairs) ===
      '[["let [total] = sum(items);","let [whole] = sum(items);"],["a(b, c)","a(b, c[, d])"],["naïve [Größe]","naïve [Länge]"]]',
    `the words: ${JSON.stringify(told.pairs)}`,
  );
  check(!told.other && !told.long, `marked: ${told.other} ${told.long}`);
  console.log(`     3000 pairs of 160 words compared in ${told.ms.toFixed(0)} ms`);
  const [moved, picture, gone] = told.files;
  check(moved.path === "b" && moved.from === "a" && moved.is === "moved from a, 90 % alike", JSON.stringify(moved));
  const [gap, one, minus, plus] = moved.lines;
  check(gap.left === 2 && gap.text === " fn" && one.o === 2 && one.n === 3, JSON.stringify(moved.lines));
  check(minus.text === "-- a/x" && minus.o === 3 && minus.note && plus.text === "++ b/x" && plus.n === 4, JSON.stringify(moved.lines));
  check(picture.path === "p.png" && picture.is === "binary" && gone.path === "gone" && gone.is === "deleted", JSON.stringify(told.files));
});

scenario("review by keys: sides, words, folds, a comment on an added and on a removed line", async () => {
  const before = `${lines(40, "first")}let total = sum(items);\nremoved on purpose\n${lines(40, "last")}`;
  commit({ "shop/a.js": before, "shop/old.js": lines(30, "kept") });
  const after = before.replace("total", "whole").replace("removed on purpose\n", "").replace("last 40", "last forty");
  const id = await reviewed("review-keys", [
    write("shop/a.js", after),
    write("shop/big.js", lines(700, "big")),
    { run: { command: "git mv shop/old.js shop/moved.js" } },
    { ask: "Good?" },
  ], 3);
  const page = await open(browser, `${daemon.url}/#/agent/review-keys/diff`, { bypassCSP: true });
  const key = (name) => page.keyboard.press(name);
  const focused = () => page.evaluate(() => document.activeElement.innerText.trim());
  const summary = (name) => page.locator("details.file > summary", { hasText: name });
  await summary("shop/a.js").waitFor();
  check((await summary("moved.js").innerText()).includes("moved from shop/old.js"), await summary("moved.js").innerText());
  const big = page.locator("details.file", { hasText: "shop/big.js" });
  check((await big.getAttribute("open")) === null && (await summary("big.js").innerText()).includes("701 lines"), "the long file is not folded");
  // Words, and from change to change.
  await key("j");
  check((await focused()).includes("let total"), `at ${await focused()}`);
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  check(ring === "solid", `the focus is not seen: ${ring}`);
  const marks = page.locator(".l mark");
  check((await marks.allInnerTexts()).slice(0, 2).join() === "total,whole", (await marks.allInnerTexts()).join());
  await key("j");
  check((await focused()).includes("last 40"), `at ${await focused()}`);
  await key("k");
  check((await focused()).includes("let total"), `back at ${await focused()}`);
  await axe(page, "unified");
  // A comment on the removed lines, both of them.
  await key("Shift+ArrowDown");
  await key("c");
  await page.getByText("Comment on what was shop/a.js:41-42").waitFor();
  await axe(page, "the form");
  await page.keyboard.type("keep <b>these</b>");
  await key("Control+Enter");
  const said = page.locator(".said:not(form)");
  await said.getByText("keep <b>these</b>").waitFor();
  const stands = await said.evaluate((el) => el.previousElementSibling.innerText);
  check(stands.includes("removed on purpose"), `it stands below ${stands}`);
  // One on the added line, side by side.
  await key("s");
  check((await page.getByRole("button", { name: "Side by side" }).getAttribute("aria-pressed")) === "true", "it is not side by side");
  const pair = page.locator(".pair", { hasText: "let total" });
  check((await pair.innerText()).includes("let whole"), "the sides do not stand beside each other");
  check((await focused()).includes("removed on purpose"), `after the switch at ${await focused()}`);
  await key("k");
  await until("the change", async () => (await focused()).includes("let total"));
  await key("ArrowRight");
  await until("the other side", async () => (await focused()).includes("let whole"));
  await key("Enter");
  await page.getByText("Comment on shop/a.js:41", { exact: true }).waitFor();
  await key("Escape");
  await until("the line again", async () => (await focused()).includes("let whole"));
  await key("c");
  await page.keyboard.type("call it sum");
  await key("Control+Enter");
  await said.getByText("call it sum").waitFor();
  await axe(page, "side by side");
  // What is left out is opened in its place.
  await key("p");
  await key("e");
  await page.locator(".pair", { hasText: "first 12" }).waitFor();
  const numbers = await page.locator(".pair", { hasText: "first 12" }).locator(".l").last().getAttribute("data-n");
  check(numbers === "12", `line 12 is told as ${numbers}`);
  await key("n");
  await until("the long file", async () => (await focused()).startsWith("shop/big.js"));
  await key("Enter");
  await big.locator(".pair", { hasText: /big 499/ }).waitFor();
  await key("e");
  await big.locator(".pair", { hasText: /big 700/ }).waitFor();
  // It is remembered.
  await page.reload();
  await page.locator(".pair", { hasText: "let total" }).waitFor();
  await until("the comments at their lines", async () => (await said.count()) === 2);
  await key("s");
  await page.locator(".pair").first().waitFor({ state: "detached" });
  await key("A");
  await page.getByText("2 comments of yours go with it.").waitFor();
  await page.keyboard.type("before we merge:");
  await page.getByRole("button", { name: "Ask", exact: true }).click();
  await page.getByText("review-keys was told 2 comments").waitFor();
  await until("what it was told", async () => {
    const { entries } = await daemon.get(`/api/agents/${id}/log?tail=20`);
    const words = entries.map((one) => one.text ?? "").join("\n");
    return /before we merge:[^]*shop\/a\.js:41-42 before your changes, removed:[^]*> removed on purpose[^]*shop\/a\.js:41\n> let whole/.test(words);
  });
  await page.locator("dialog").waitFor({ state: "detached" });
  await key("?");
  await page.getByText("in a diff: next change").waitFor();
  await key("Escape");
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("lines of code have colours by the file's suffix", async (page) => {
  const told = await page.evaluate(async () => {
    const { coloursOf } = await import("/console/colours.js");
    const lines = [
      ["a/b.ts", "export const a = 'x\\'y' + `z` + 0x1f; // let it"],
      ["a.rs", "fn f<'a>(x: &'a str, c: char) -> bool { c == '\\n' || x == \"/* no */\" }"],
      ["a.js", " * the middle of a comment, for all"],
      ["a.c", "int x = a /* of b */ * 2;"],
      ["a.py", "def f(): return \"#1\" # none"],
      ["Makefile", "echo $# # it"],
      ["a.sql", "SELECT 1 FROM t WHERE a = 'b' -- for"],
      ["a.css", "a { color: none } /* if */ // b"],
      ["a.json", "{\"for\": [true, 12.5, null]}"],
      ["a.html", "<a href=\"x\"> for <!-- if -->"],
    ];
    const shown = ([file, line]) => coloursOf(file)(line).map(([part, name]) => (name ? `[${name} ${part}]` : part)).join("");
    const hostile = ['"', "'", "/*", "\\", '"\\', "#", "1", "a.", "<!--"].map((part) => part.repeat(400).slice(0, 400));
    const began = performance.now();
    for (const line of hostile) for (const [file] of lines) for (let n = 0; n < 20; n += 1) coloursOf(file)(line);
    return {
      shown: lines.map(shown),
      ms: performance.now() - began,
      long: coloursOf("a.js")(`for ${"x".repeat(400)}`).length,
      none: [coloursOf("a.txt"), coloursOf("README.md"), coloursOf("a.js.orig")].map((one) => typeof one),
    };
  });
  const wanted = [
    "[key export const] a = [str 'x\\'y'] + [str `z`] + [str 0x1f]; [muted // let it]",
    "[key fn] f<'a>(x: &'a str, c: [key char]) -> [key bool] { c == [str '\\n'] || x == [str \"/* no */\"] }",
    "[muted  * the middle of a comment, for all]",
    "[key int] x = a [muted /* of b */] * [str 2];",
    "[key def] f(): [key return] [str \"#1\"] [muted # none]",
    "echo $# [muted # it]",
    "[key SELECT] [str 1] [key FROM] t [key WHERE] a = [str 'b'] [muted -- for]",
    "a { color: [key none] } [muted /* if */] // b",
    "{[str \"for\"]: [[key true], [str 12.5], [key null]]}",
    "<a href=[str \"x\"]> for [muted <!-- if -->]",
  ];
  for (const [at, line] of wanted.entries()) check(told.shown[at] === line, `${told.shown[at]} is not ${line}`);
  check(told.none.join() === "undefined,undefined,undefined" && told.long === 1, JSON.stringify(told));
  console.log(`     1 800 hostile lines in ${told.ms.toFixed(0)} ms`);
  check(told.ms < 2000, `hostile lines took ${told.ms} ms`);
});

scenario("what follows the last change, to the end of the file", async (page) => {
  const before = lines(60, "const x =");
  const short = lines(8, "row");
  commit({ "tail/a.js": before, "tail/b.txt": short });
  await reviewed("review-tail", [
    write("tail/a.js", before.replace("const x = 5\n", "const x = 'five'\n")),
    write("tail/b.txt", short.replace("row 5\n", "row five\n")),
    { ask: "Good?" },
  ], 2);
  await page.goto(`${daemon.url}/#/agent/review-tail/diff`);
  const file = (name) => page.locator("details.file", { hasText: name });
  const colour = (what) => file("a.js").locator(what).first().evaluate((el) => getComputedStyle(el).color);
  await file("a.js").locator(".key").first().waitFor();
  check(new Set([await colour(".key"), await colour(".str"), await colour(".l > span")]).size === 3, "no colours are seen");
  const more = (name) => file(name).getByRole("button", { name: "what follows" });
  await more("a.js").click();
  await file("a.js").locator('.l[data-n="60"]').waitFor();
  const focused = await page.evaluate(() => document.activeElement.dataset.n);
  check(focused === "9" && !(await more("a.js").count()), `the focus is at line ${focused}`);
  await file("a.js").locator('.l[data-n="60"]').click();
  await page.getByText("Comment on tail/a.js:60", { exact: true }).waitFor();
  await page.keyboard.type("the last one");
  await page.keyboard.press("Control+Enter");
  await page.locator(".said:not(form)").getByText("the last one").waitFor();
  // Three unchanged lines stand below its change, and no more.
  await more("b.txt").focus();
  await page.keyboard.press("Enter");
  await file("b.txt").getByText("The file ends here").waitFor();
  check((await page.evaluate(() => document.activeElement.innerText)) === "The file ends here", "the focus is lost");
});

scenario("a change of megabytes: files at its end are read when they are opened, one that is too long says so", async (page) => {
  const many = Array.from({ length: 12 }, (_, n) => `long/part-${String(n).padStart(2, "0")}.js`);
  commit({ "long/gone.txt": lines(10, "gone") });
  const id = await reviewed("review-long", [
    ...many.map((name) => ({ run: { command: `seq -f 'export const some = "words that take their room" + %.0f;' 3000 > ${name}` } })),
    write("long/single.js", `const all = "${"word ".repeat(8000)}";\n`),
    { run: { command: "seq -f 'a line %.0f' 200000 > long/zz.txt" } },
    { ask: "Good?" },
  ], many.length + 2);
  const whole = await daemon.get(`/api/agents/${id}/diff`);
  check(whole.truncated && whole.files.length === many.length + 2, `${whole.files.length} files, ${whole.diff.length} bytes`);
  const began = Date.now();
  await page.goto(`${daemon.url}/#/agent/review-long/diff`);
  await page.getByText("it is long: the last files are read when opened").waitFor();
  const file = (name) => page.locator("details.file", { hasText: name });
  await file("long/zz.txt").waitFor();
  console.log(`     ${(whole.diff.length / 1e6).toFixed(1)} MB of a diff shown in ${Date.now() - began} ms`);
  check((await page.locator("details.file").count()) === many.length + 2, "not every file stands there, once");
  for (const [name, words] of [[many[0], "+ 400"], [many[11], "+ 400"]]) {
    await file(name).locator("summary").press("Enter");
    await file(name).locator(".l", { hasText: words }).first().waitFor();
    const summary = await file(name).locator("summary").innerText();
    check(summary.includes("+3000"), summary);
  }
  await file("single.js").locator("summary").press("Enter");
  await file("single.js").getByText(/and 35,0\d\d more characters/).waitFor();
  await file("zz.txt").locator("summary").press("Enter");
  await file("zz.txt").getByText("What follows in this file is more than can be shown.").waitFor();
  const drawn = await file("zz.txt").locator(".l").count();
  check(drawn > 400 && drawn <= 500, `${drawn} of its lines at once`);
});

scenario("merge: the dry run first, conflicts go to their owner, then it is merged", async (page) => {
  commit({ "merge/a.txt": "one\ntwo\n" });
  const id = await reviewed("review-merge", [write("merge/a.txt", "one\nzwei\n"), { ask: "Good?" }], 1);
  commit({ "merge/a.txt": "one\ndeux\n" });
  await page.goto(`${daemon.url}/#/agent/review-merge/diff`);
  await where(page, "zwei").waitFor();
  page.away = true;
  await page.keyboard.press("m");
  const box = page.locator("dialog");
  await box.getByText("still runs").waitFor();
  check(git("show", "HEAD:merge/a.txt") === "one\ndeux\n", "something was merged");
  await page.keyboard.press("Escape");
  await daemon.api("DELETE", `/api/agents/${id}`);
  await daemon.until("review-merge", ["killed"]);
  await page.keyboard.press("m");
  await box.getByText("conflicts with").waitFor();
  await box.getByRole("button", { name: "Let review-merge resolve them" }).click();
  await page.getByText("review-merge is asked to resolve them").waitFor();
  const next = await daemon.get("/api/agents/review-merge");
  await until("its next life to be told", async () => {
    const { entries } = await daemon.get(`/api/agents/${next.id}/log?tail=50`);
    return entries.some((one) => /Merge \w+ into your branch and resolve the conflicts in merge\/a\.txt/.test(one.text ?? ""));
  });
  await daemon.api("DELETE", `/api/agents/${next.id}`).catch(() => {});
  await until("its end", async () => !["running", "waiting", "starting"].includes((await daemon.get("/api/agents/review-merge")).status));
  commit({ "merge/a.txt": "one\ntwo\n" });
  await page.keyboard.press("m");
  await box.getByText("nothing conflicts").waitFor();
  check((await box.innerText()).includes("merge/a.txt"), "the files are not told");
  check(git("show", "HEAD:merge/a.txt") === "one\ntwo\n", "the dry run has merged");
  await page.keyboard.press("Enter");
  await page.getByText(/Merged into \w+ as \w+/).waitFor();
  check(git("show", "HEAD:merge/a.txt") === "one\nzwei\n", "it is not merged");
  page.away = false;
});

scenario("discard takes back all turns, after a question", async (page) => {
  // Of the same size, and within the same second: git has to look at the words.
  commit({ "gone/a.txt": "one\n" });
  const id = await reviewed("review-gone", [write("gone/a.txt", "uno\n"), { answer: "done" }], 1);
  const tree = path.join(dir, (await daemon.get(`/api/agents/${id}`)).worktree);
  await until("the end of its turn", async () => (await daemon.get(`/api/agents/${id}/snapshots`)).turns[0]?.endedAt);
  await page.goto(`${daemon.url}/#/agent/review-gone/diff`);
  await where(page, "uno").waitFor();
  await page.keyboard.press("X");
  await page.getByText("Discard what review-gone has changed?").waitFor();
  check(fs.readFileSync(path.join(tree, "gone/a.txt"), "utf8") === "uno\n", "it is gone before anybody agreed");
  await page.keyboard.press("Enter");
  await page.getByText("is undone: 1 file").waitFor();
  check(fs.readFileSync(path.join(tree, "gone/a.txt"), "utf8") === "one\n", "it is not taken back");
  await page.getByText("Nothing has changed").waitFor();
});

scenario("discard removes the worktree of one that has ended, by keys; its branch stays", async () => {
  commit({ "left/a.txt": "one\n" });
  const id = await reviewed("review-left", [write("left/a.txt", "uno\n"), { ask: "Good?" }], 1);
  const { worktree } = await daemon.get(`/api/agents/${id}`);
  const { branch } = await daemon.get(`/api/agents/${id}/diff`);
  const page = await open(browser, `${daemon.url}/#/agent/review-left/diff`, { bypassCSP: true });
  page.away = true;
  await where(page, "uno").waitFor();
  await page.keyboard.press("X");
  const box = page.locator("dialog");
  await box.getByText("Nothing is merged").waitFor();
  const told = await box.innerText();
  check(told.includes(`stays on the branch ${branch}`) && told.includes(`git branch -D ${branch}`), told);
  await axe(page, "what goes with it");
  const focused = () => page.evaluate(() => document.activeElement.innerText);
  check((await focused()) === "Take back its turns", `at ${await focused()}`);
  const remove = async () => {
    while ((await focused()) !== "Remove its worktree") await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
  };
  await remove();
  await box.getByText("still runs").waitFor();
  check(fs.existsSync(path.join(dir, worktree)), "the folder of one that runs is gone");
  await page.keyboard.press("Escape");
  await daemon.api("DELETE", `/api/agents/${id}`);
  await daemon.until("review-left", ["killed"]);
  await page.keyboard.press("X");
  await box.getByText("Nothing is merged").waitFor();
  await remove();
  await page.getByText("The worktree of review-left is removed; its work stays on").waitFor();
  check(!fs.existsSync(path.join(dir, worktree)), "its folder is still there");
  check(git("show", `${branch}:left/a.txt`) === "uno\n", `of ${branch} the work is lost`);
  check(git("show", "HEAD:left/a.txt") === "one\n", "something was merged");
  check(page.faults.length === 0, page.faults.join());
  await page.context().close();
});

scenario("files of a review are marked as viewed, until they change", async () => {
  commit({ "seen/a.txt": "one\n", "seen/deep/b.txt": "one\n", "seen/c.txt": "one\n" });
  const id = await reviewed("review-seen", [
    write("seen/a.txt", "uno\n"),
    write("seen/deep/b.txt", "uno\n"),
    write("seen/c.txt", "uno\n"),
    write("other.txt", "new\n"),
    { ask: "Good?" },
    write("seen/a.txt", "eins\n"),
    { ask: "Better?" },
  ], 4);
  const page = await open(browser, `${daemon.url}/#/agent/review-seen/diff`, { bypassCSP: true });
  const file = (name) => page.locator("details.file", { hasText: name });
  const list = page.locator(".changed-files");
  const box = (name) => page.getByRole("checkbox", { name: `Viewed ${name}` });
  await list.getByText("4 files, 0 viewed").waitFor();
  check((await list.locator("li.muted").allInnerTexts()).join() === "./,seen/,seen/deep/", (await list.locator("li.muted").allInnerTexts()).join());
  // By keys: a file is marked and folded, and the next one is next.
  await page.getByRole("button", { name: "To seen/a.txt" }).focus();
  await page.keyboard.press("Enter");
  const focused = () => page.evaluate(() => document.activeElement.innerText);
  check((await focused()).startsWith("seen/a.txt"), `at ${await focused()}`);
  await page.keyboard.press("v");
  check((await focused()).startsWith("seen/c.txt"), `then at ${await focused()}`);
  check((await file("seen/a.txt").getAttribute("open")) === null && (await box("seen/a.txt").isChecked()), "it is not marked");
  await page.keyboard.press("v");
  await list.getByText("4 files, 2 viewed").waitFor();
  await axe(page, "viewed files");
  await page.reload();
  await list.getByText("4 files, 2 viewed").waitFor();
  check((await file("seen/c.txt").getAttribute("open")) === null, "what was viewed stands open");
  // It writes one of them again: that one is to be looked at again.
  await daemon.post(`/api/agents/${id}/instruct`, { message: "better", deliver: "now" });
  await until("the other words", async () => (await daemon.get(`/api/agents/${id}/diff`)).diff.includes("eins"));
  await page.keyboard.press("R");
  await list.getByText("4 files, 1 viewed").waitFor();
  check(!(await box("seen/a.txt").isChecked()) && (await box("seen/c.txt").isChecked()), "the wrong one is marked");
  await box("seen/c.txt").uncheck();
  await list.getByText("4 files, 0 viewed").waitFor();
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});

scenario("the editor comments for an agent in a worktree, on the lines where they stand there", async () => {
  commit({ "shift/a.js": "one\ntwo\nthree\n", "shift/b.js": "one\n" });
  const id = await reviewed("review-shift", [write("shift/a.js", "zero\none\ntwo\nthree\n"), write("shift/b.js", "eins\n"), { ask: "Good?" }], 2);
  const page = await open(browser, `${daemon.url}/#/files/shift%2Fa.js`, { bypassCSP: true });
  const comment = async (file, from, to) => {
    const area = page.getByLabel(`Text of ${file}`);
    await area.focus();
    await area.evaluate((el, range) => el.setSelectionRange(...range), [from, to]);
    await page.getByRole("button", { name: "Comment…" }).click();
    await page.getByLabel("Agent", { exact: true }).selectOption(id);
    await page.getByLabel("What you think of them").fill("why?");
    await page.getByRole("button", { name: "Keep for later" }).click();
  };
  await comment("shift/a.js", 4, 13);
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const [first, ...others] = (await daemon.get(`/api/agents/${id}/comments`)).comments;
  check(!others.length && first.line === 3 && first.lastLine === 4 && first.quote === "two\nthree", JSON.stringify([first, ...others]));
  page.away = true;
  await page.evaluate(() => (location.hash = "#/files/shift%2Fb.js"));
  await comment("shift/b.js", 0, 0);
  await page.getByText("does not hold these lines where review-shift works").first().waitFor();
  check((await page.getByLabel("Agent", { exact: true }).innerText()).includes("· own worktree"), "it does not say where it works");
  check(!page.faults.length, page.faults.join());
  await page.context().close();
});
