// Calls to the daemon. A refusal becomes an Error with its sentence, its code and the faults by field.

import { dialog, field, h, keep, kept, toast } from "./dom.js";

export class Refusal extends Error {
  constructor(status, body, text) {
    super(body?.error || text || `the daemon answered ${status}`);
    this.status = status;
    this.code = body?.code;
    this.errors = body?.errors ?? [];
    this.body = body;
  }
}

// The operator's token, where the daemon asks for one. This page alone knows it, as long as it is open.
let token = "";
let asking;
let proven = false;

// The page's half of what proves a person: the browser keeps the other one in a cookie, which it would also
// send to pages on other ports of this machine.
const HALF = `svc-console${location.pathname}`;
let half = kept(HALF);
let entering;

/** Begins a session with the code of a link, which is then out of the address and the history. */
function enter() {
  const code = /^#code=(\w+)$/.exec(location.hash)?.[1];
  if (!code) return;
  history.replaceState(null, "", `${location.pathname}#/`);
  entering = answer("POST", "/api/console/session", { code })
    .then(({ key }) => {
      half = key;
      keep(HALF, key);
    })
    .catch((error) => toast(error.message, "bad"))
    .finally(() => {
      entering = undefined;
    });
}

/** Asks for the token; whether there is one to try now. One question serves all calls that wait for it. */
function ask(why) {
  asking ??= new Promise((done) => {
    const input = h("input", { type: "password", autocomplete: "off", required: true });
    const form = h(
      "form",
      h("p", why),
      field("token", "Token", input, "or come by the link of svc open, which needs none"),
      h("div.actions", h("button.primary", { type: "submit" }, "Continue")),
    );
    const el = dialog("Are you a person?", form);
    let given = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      token = input.value.trim();
      given = token !== "";
      el.close();
    });
    el.addEventListener("close", () => done(given));
    input.focus();
  }).finally(() => {
    asking = undefined;
  });
  return asking;
}

async function call(method, path, body) {
  let declined = false;
  if (method !== "GET" && !proven) {
    proven = true;
    // What only a person may read tells whether a change would count as a person's.
    await call("GET", "/api/credentials").catch((error) => {
      declined = error.code === "prove_yourself";
    });
  }
  for (;;) {
    const shown = token;
    try {
      return await send(method, path, body);
    } catch (error) {
      const helps = error.code === "prove_yourself" && error.body.tokenHelps;
      if (!helps || declined || (shown === token && !(await ask(error.message)))) throw error;
    }
  }
}

/** Readings under way: the path of each, by what ends it. */
const readings = new Map();

/** Gives up what is being read of a path and below it, because it goes or is no longer looked at. */
export function abandon(path) {
  for (const [reading, of] of readings) if (of === path || of.startsWith(`${path}/`)) reading.abort();
}

async function send(method, path, body) {
  await entering;
  if (method !== "GET") return answer(method, path, body);
  const reading = new AbortController();
  readings.set(reading, path);
  try {
    return await answer(method, path, body, reading.signal);
  } finally {
    readings.delete(reading);
  }
}

async function answer(method, path, body, signal) {
  const options = { method, headers: {}, signal };
  if (token) options.headers.Authorization = `Bearer ${token}`;
  if (half) options.headers["Svc-Console"] = half;
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  let text;
  try {
    response = await fetch(`.${path}`, options);
    text = await response.text();
  } catch {
    const why = signal?.aborted ? "what was asked for is gone" : "the daemon cannot be reached; retrying automatically";
    throw new Refusal(0, null, why);
  }
  let value = text;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // Plain text, for example a markdown answer.
  }
  if (!response.ok) throw new Refusal(response.status, typeof value === "object" ? value : null, text.slice(0, 200));
  return value;
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const del = (path) => call("DELETE", path);
export const at = (strings, ...values) =>
  strings.reduce((path, part, n) => path + part + (n < values.length ? encodeURIComponent(values[n]) : ""), "");

addEventListener("hashchange", enter);
enter();
