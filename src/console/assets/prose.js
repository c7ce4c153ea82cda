// Markdown as far as briefs and maps use it: headings, lists, code, bold. Everything becomes text nodes.

import { h } from "./dom.js";

function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`"))
      return h("code", {}, part.slice(1, -1));
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**"))
      return h("strong", {}, part.slice(2, -2));
    return part;
  });
}

/** `top` is the level that `#` becomes; with `join` the lines of a paragraph are one, as in Markdown. */
export function prose(text, top = 2, join = false) {
  const out = [];
  let list = null;
  let fence = null;
  let open = null;
  for (const line of String(text)
    .replace(/<!--[^]*?-->/g, "")
    .split("\n")) {
    const before = open;
    open = null;
    if (/^\s*(```|~~~)/.test(line)) {
      if (fence) {
        out.push(h("pre", { class: "panel" }, fence.join("\n")));
        fence = null;
      } else fence = [];
      list = null;
    } else if (fence) fence.push(line);
    else if (/^#{1,6} /.test(line)) {
      const level = Math.min(6, line.indexOf(" ") - 1 + top);
      out.push(h(`h${level}`, {}, inline(line.replace(/^#+ /, ""))));
      list = null;
    } else if (/^\s*[-*] /.test(line)) {
      if (!list) out.push((list = h("ul")));
      open = h("li", {}, inline(line.replace(/^\s*[-*] /, "")));
      list.append(open);
    } else if (!line.trim()) list = null;
    else if (join && before) {
      open = before;
      open.append(h("span", {}, " ", inline(line.trim())));
    } else {
      list = null;
      open = h("p", {}, inline(line));
      out.push(open);
    }
  }
  if (fence) out.push(h("pre", { class: "panel" }, fence.join("\n")));
  return out;
}
