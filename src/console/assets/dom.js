// Building blocks. Text always becomes a text node: nothing here can turn words of an agent into markup.

/**
 * An element: `tag` or `tag.class.class`; a button submits only where it says so. `props`, if any: `class` instead,
 * `on<event>` handlers, properties that exist, else attributes.
 */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const el = document.createElement(name);
  if (classes.length) el.className = classes.join(" ");
  if (name === "button") el.type = name;
  if (props?.constructor !== Object) children.unshift(props);
  else
    for (const [key, value] of Object.entries(props)) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "class") el.className = value;
      else if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
      else if (key in el && !key.startsWith("aria-") && key !== "role" && key !== "list" && key !== "form") el[key] = value;
      else el.setAttribute(key, value === true ? "" : value);
    }
  add(el, children);
  return el;
}

function add(el, children) {
  for (const child of children.flat(4)) {
    if (child === undefined || child === null || child === false) continue;
    el.append(child instanceof Node ? child : visible(child));
  }
}

// What steers what shows it, or shows nothing: controls but tab and line end, marks of direction, ends of
// lines, blanks without width, letters without ink, tags. The daemon's twin is crates/base/src/untrusted.rs.
const MISLEADS =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/u;
const PLAIN = /^[\t\n -~]*$/;
const MISLEADING = new RegExp(MISLEADS, "gu");

/** Text whose characters are all seen: nothing in it turns its direction, hides, or forges an end. */
export function visible(text) {
  const words = String(text);
  if (PLAIN.test(words)) return words;
  return words.replaceAll("\r\n", "\n").replace(MISLEADING, (c, at, whole) => {
    // A joiner belongs to the word or the emoji before it.
    const before = whole[at - 1] ?? " ";
    if ((c === "\u200c" || c === "\u200d") && before > "\u036f" && !MISLEADS.test(before)) return c;
    return c === "\r" ? "\\r" : `\\u{${c.codePointAt(0).toString(16)}}`;
  });
}

/** [`visible`], on one line: what is decided upon must not look like something else. */
export function visibleLine(text) {
  return visible(String(text).replaceAll("\r", "\\r")).replaceAll("\n", "\\n").replaceAll("\t", "\\t");
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null && value !== false) el.setAttribute(key, value);
  }
  add(el, children);
  return el;
}

/** An element of the shell. */
export const byId = (id) => document.getElementById(id);

const nameOf = (el) => el.ariaLabel ?? el.textContent;
/** The one control of this name in `el`; of several alike nobody knows which it was. */
const named = (el, name) => {
  const all = [...el.querySelectorAll("button,a,summary")].filter((one) => nameOf(one) === name);
  return all.length === 1 ? all[0] : undefined;
};

/** Replaces what is in `el`. Whoever is at a control in it by keys is there afterwards, if it still is. */
export function fill(el, ...children) {
  const held = document.activeElement;
  const name = held !== el && el.contains(held) && named(el, nameOf(held)) && nameOf(held);
  el.textContent = "";
  add(el, children);
  if (name) named(el, name)?.focus({ preventScroll: true });
  return el;
}

/**
 * Sets text only when it differs, so that selections and screen readers are left alone. A text node that is
 * there gets new words: a new one would cost its element's styles and layout too.
 */
export function say(el, text) {
  const seen = visible(text);
  const only = el.firstChild;
  if (only && only === el.lastChild && only.nodeType === Node.TEXT_NODE) {
    if (only.data !== seen) only.data = seen;
  } else if (el.textContent !== seen) el.textContent = seen;
}

export const number = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en");
export const exact = (n) => whole.format(n ?? 0);
export const short = (n) => number.format(n ?? 0);
export const dollars = (n) => (n ? `$${n < 1 ? n.toFixed(3) : n.toFixed(2)}` : "$0");
/** Dollars beside `unpricedTokens`: a `+` where a part has no price, `unpriced` where nothing has. */
export const cost = (usd, unpriced) => (unpriced > 0 ? (usd ? `${dollars(usd)}+` : "unpriced") : dollars(usd));
export const percent = (n) => `${Math.round((n ?? 0) * 100)} %`;

/** A count with its noun: `1 agent`, `1,200 agents`. */
export const plural = (n, noun) => `${exact(n)} ${noun}${n === 1 ? "" : "s"}`;

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1048576 ? `${(n / 1024).toFixed(1)} KB` : `${(n / 1048576).toFixed(1)} MB`;
}

/** How long ago, or how long until: `5 s`, `3 min`, `2 h`, `4 d`. */
export function span(time) {
  const seconds = Math.abs(Date.now() - (typeof time === "number" ? time : Date.parse(time))) / 1000;
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});
export const timeOf = (ts) => (ts ? clock.format(Date.parse(ts)) : "");
export const dayOf = (ts) => (ts ? day.format(typeof ts === "number" ? ts : Date.parse(ts)) : "");

/** A `<time>`, before now or ahead, whose words are refreshed by [`tick`]. */
export function ago(time, suffix = "") {
  const el = h("time", { dateTime: String(time ?? ""), title: dayOf(time) }, span(time) + suffix);
  el.dataset.ago = String(time ?? "");
  el.dataset.suffix = suffix;
  return el;
}

/** Refreshes all times on the page. */
export function tick() {
  for (const el of document.querySelectorAll("time[data-ago]")) {
    const time = el.dataset.ago;
    say(el, span(/^\d+$/.test(time) ? Number(time) : time) + el.dataset.suffix);
  }
}

/** `work` as a listener that runs soon, and at most once in `ms`, however often it is called. */
export function soon(work, ms) {
  let waiting = 0;
  const later = () => {
    waiting ||= setTimeout(() => {
      waiting = 0;
      work();
    }, ms);
  };
  later.stop = () => clearTimeout(waiting);
  return later;
}

/** What this browser keeps of a choice; where it keeps nothing, it lasts as long as the page. */
export function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
  }
}
export function kept(name) {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

/** A short message at the foot of the page. */
export function toast(text, kind = "") {
  const el = h("div", { class: `toast ${kind}` }, text);
  const box = byId("toasts");
  box.append(el);
  while (box.children.length > 4) box.firstChild.remove();
  setTimeout(() => el.remove(), kind === "bad" ? 9000 : 4500);
}

/** A button that is off while its work runs, and says what went wrong. */
export function button(label, work, props = {}) {
  const el = h("button", { ...props, onclick: run }, label);
  async function run(event) {
    event.stopPropagation();
    if (el.disabled) return;
    el.disabled = true;
    try {
      await work(el);
    } catch (error) {
      toast(error.message, "bad");
    } finally {
      el.disabled = false;
    }
  }
  return el;
}

/** What stands where there is nothing yet: what it is, and what to do. */
export function empty(title, ...what) {
  return h("div.empty", h("p.empty-title", title), h("p", ...what));
}

/** Says in `el` why nothing is there. */
export const unavailable = (el) => (error) => fill(el, empty("Not available", error.message));

/** A panel below its title. */
export const panel = (title, ...what) => h("div.panel", h("h2", title), what);
export const code = (text) => h("code", text);

/** A labelled field; `fault(field)` shows messages of a refusal beside it. */
export function field(name, label, input, hint) {
  input.id ||= `f-${name.replace(/[^\w-]/g, "-")}`;
  input.name ||= name;
  const fault = h("p.fault", { id: `${input.id}-fault` });
  const note = hint && h("p.hint", { id: `${input.id}-hint` }, hint);
  input.setAttribute("aria-describedby", `${fault.id}${note ? ` ${note.id}` : ""}`);
  const el = h("div.field", h("label", { htmlFor: input.id }, label), input, note, fault);
  el.dataset.field = name;
  return el;
}

/** Shows the faults of a refusal at their fields; those without a field are returned. */
export function faults(form, error) {
  const rest = [];
  for (const el of form.querySelectorAll(".fault")) el.textContent = "";
  for (const el of form.querySelectorAll("[aria-invalid]")) el.removeAttribute("aria-invalid");
  let first = null;
  for (const fault of error?.errors ?? []) {
    const el = form.querySelector(`[data-field="${CSS.escape(fault.field)}"]`);
    if (!el) {
      rest.push(fault.message);
      continue;
    }
    el.querySelector(".fault").textContent = fault.message;
    const input = el.querySelector("input,select,textarea");
    input?.setAttribute("aria-invalid", "true");
    first ??= input;
  }
  first?.focus();
  if (error && !error.errors?.length) rest.push(error.message);
  return rest;
}

/**
 * A form with a button `verb` that does `work`. What a refusal says of a field stands beside it, the rest above
 * the buttons, of which there may be `others`.
 */
export function formOf(verb, work, fields, props = {}, others = []) {
  const rest = h("p.fault", { role: "alert" });
  const go = h("button.primary", { type: "submit" }, verb);
  const el = h("form", { noValidate: true, ...props }, fields, rest, h("div.actions", others, go));
  el.addEventListener("submit", async (event) => {
    event.preventDefault();
    fill(rest, faults(el, null));
    try {
      await work();
    } catch (error) {
      fill(rest, faults(el, error).join("; "));
    }
  });
  return el;
}

export function select(options, value) {
  const el = h("select");
  for (const option of options) {
    const [id, label, disabled] = Array.isArray(option) ? option : [option, option];
    el.append(h("option", { value: id, disabled: disabled || undefined, selected: id === value }, label));
  }
  return el;
}

/** A modal dialog; answers its element. Escape and the cross close it. */
export function dialog(title, body, props = {}) {
  const close = () => el.close();
  const el = h(
    "dialog",
    { class: props.class ?? "", "aria-labelledby": "dialog-title" },
    h(
      "div.dialog-head",
      h("h2", { id: "dialog-title" }, title),
      h("button.ghost", { ariaLabel: "Close", onclick: close }, "×"),
    ),
    body,
  );
  el.addEventListener("close", () => el.remove());
  el.addEventListener("click", (event) => {
    if (event.target === el) el.close();
  });
  document.body.append(el);
  el.showModal();
  return el;
}

/** Asks before something that cannot be undone. */
export function confirm(title, text, verb, work) {
  const go = button(
    verb,
    async () => {
      await work();
      el.close();
    },
    { class: "danger", autofocus: true },
  );
  const el = dialog(
    title,
    h("div", h("p", text), h("div.actions", h("button", { onclick: () => el.close() }, "Cancel"), go)),
  );
  go.focus();
}

/** A page's head: its title, a line about it, and its actions. */
export function head(title, line, ...actions) {
  return h("div.page-head", h("div", h("h1", title), line && h("p.muted", line)), h("div.actions", ...actions));
}

/** A table that scrolls sideways by itself, and becomes cards on a phone. Rows are arrays of cells. */
export function table(caption, heads, rows) {
  return h(
    "div.scroll",
    { tabIndex: 0, role: "region", ariaLabel: caption },
    h(
      "table.stacks",
      heads.some(Boolean) &&
        h(
          "thead",
          h(
            "tr",
            ...heads.map((head) =>
              head ? h("th", { scope: "col", class: head.startsWith("#") ? "num" : "" }, head.replace("#", "")) : h("td"),
            ),
          ),
        ),
      h(
        "tbody",
        ...rows.map((cells) =>
          h(
            "tr",
            ...cells.map((cell, at) =>
              h("td", { class: heads[at]?.startsWith("#") ? "num" : "", "data-label": heads[at]?.replace("#", "") || null }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}
