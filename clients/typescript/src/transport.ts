// How a request goes out and an answer comes back: fetch alone.
import { Stream } from "./stream.js";
import type { Problem } from "./types.js";

/** What stands in a query; undefined is left out. */
export type Query = string | number | boolean | undefined;

/** Milliseconds that a call may take where nothing else is said: a question to an agent takes up to 60 s. */
const TIMEOUT_MS = 90_000;

/** The daemon does not do it: `problem` says why, for programs by its `code`. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.error || `status ${status}`);
    this.name = "Refused";
  }

  /** A stable word. */
  get code(): string {
    return this.problem.code;
  }
}

/** Who calls, and how long is waited. */
export interface Options {
  /** What is in `.svc/token`, or an agent's; a program of a person on the same machine needs none. */
  token?: string;
  timeoutMs?: number;
}

/** Where the daemon is and who calls it. */
export class Transport {
  readonly url: string;

  constructor(
    url = "http://127.0.0.1:31415",
    private readonly options: Options = {},
  ) {
    this.url = url.replace(/\/+$/, "");
  }

  /**
   * Sends one request: `Refused` for 400 and above. `wanted` is "data" for bytes; else JSON is read, text comes as
   * it is, and nothing as undefined.
   */
  protected async call(
    method: string,
    path: string,
    query: Record<string, Query>,
    body: unknown,
    wanted: string,
  ): Promise<unknown> {
    const url = new URL(this.url + path);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = {};
    if (this.options.token !== undefined) headers["Authorization"] = `Bearer ${this.options.token}`;
    const request: RequestInit = {
      method,
      headers,
      signal: AbortSignal.timeout(this.options.timeoutMs ?? TIMEOUT_MS),
    };
    if (method !== "GET" && method !== "DELETE") {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(body ?? {});
    }
    const answer = await fetch(url, request);
    if (!answer.ok) throw new Refused(answer.status, await problemOf(answer));
    if (wanted === "data") return new Uint8Array(await answer.arrayBuffer());
    const text = await answer.text();
    if (text === "") return undefined;
    const media = (answer.headers.get("content-type") ?? "").split(";")[0];
    return media === "application/json" ? JSON.parse(text) : text;
  }

  /**
   * What the daemon tells, from now on, or after the message with the number `since`. `types` are those to be told
   * of; `delta` asks for changes instead of further whole states. The platform's WebSocket can show no token: the
   * daemon must see who calls.
   */
  stream(asked: { types?: string[]; since?: number; delta?: boolean } = {}): Stream {
    const url = new URL(this.url.replace(/^http/, "ws") + "/ws");
    if (asked.types?.length) url.searchParams.set("types", asked.types.join(","));
    if (asked.since !== undefined) url.searchParams.set("since", String(asked.since));
    if (asked.delta) url.searchParams.set("delta", "1");
    return new Stream(url);
  }
}

async function problemOf(answer: Response): Promise<Problem> {
  const text = await answer.text();
  try {
    const told: unknown = JSON.parse(text);
    if (typeof told === "object" && told !== null && "error" in told) return told as Problem;
  } catch {
    // It is no JSON: somebody else has answered.
  }
  return { error: text, code: "", status: answer.status, title: "", detail: text };
}
