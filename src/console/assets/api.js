// Calls to the daemon. A refusal becomes an Error with its sentence, its code and the faults by field.

export class Refusal extends Error {
  constructor(status, body, text) {
    super(body?.error || text || `the daemon answered ${status}`);
    this.status = status;
    this.code = body?.code;
    this.errors = body?.errors ?? [];
    this.body = body;
  }
}

async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refusal(0, null, "the daemon cannot be reached; it is tried again by itself");
  }
  const text = await response.text();
  let value = text;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // Plain text, for example a markdown answer.
  }
  if (!response.ok)
    throw new Refusal(response.status, typeof value === "object" ? value : null, text.slice(0, 200));
  return value;
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const del = (path) => call("DELETE", path);
export const at = (strings, ...values) =>
  strings.reduce(
    (path, part, n) => path + part + (n < values.length ? encodeURIComponent(values[n]) : ""),
    "",
  );
