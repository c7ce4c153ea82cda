// What the daemon tells over WebSocket, by the platform's own: browsers, Node.js 22 and newer, Deno, Bun.
import type { ClientMessage, Message } from "./types.js";

/** Messages that wait to be taken; a client that falls further behind is closed, and may come again with `since`. */
const MAX_WAITING = 100_000;

/** The stream is over, for what `code` (RFC 6455, 7.4.1) and `reason` say. */
export class Closed extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
  ) {
    super(`${code} ${reason}`.trim());
    this.name = "Closed";
  }
}

/** Messages of the daemon, one after the other: `for await` takes them and ends with the stream. */
export class Stream implements AsyncIterable<Message> {
  private readonly socket: WebSocket;
  private readonly waiting: Message[] = [];
  private takers: { give: (message: Message) => void; refuse: (why: Closed) => void }[] = [];
  private over: Closed | undefined;
  /** Fulfilled when the daemon has taken the connection, refused when it has not. */
  readonly opened: Promise<void>;

  constructor(url: URL) {
    this.socket = new WebSocket(url);
    this.opened = new Promise((resolve, reject) => {
      this.socket.onopen = () => resolve();
      this.socket.onclose = (event) => {
        const why = this.over ?? new Closed(event.code, event.reason);
        reject(why);
        this.end(why);
      };
    });
    // Who waits for messages alone is told by them.
    this.opened.catch(() => undefined);
    this.socket.onmessage = (event) => this.hear(JSON.parse(String(event.data)) as Message);
  }

  /** The next message; `Closed` at the end of the stream. */
  async receive(): Promise<Message> {
    const next = this.waiting.shift();
    if (next !== undefined) return next;
    if (this.over !== undefined) throw this.over;
    return new Promise((give, refuse) => this.takers.push({ give, refuse }));
  }

  /** Says something: a ping, what is to be watched. */
  async send(message: ClientMessage): Promise<void> {
    await this.opened;
    this.socket.send(JSON.stringify(message));
  }

  /** Leaves; the daemon forgets what was watched. */
  close(): void {
    this.end(new Closed(1000, "closed here"));
    this.socket.close(1000);
  }

  async *[Symbol.asyncIterator](): AsyncIterator<Message> {
    try {
      for (;;) yield await this.receive();
    } catch (error) {
      if (!(error instanceof Closed)) throw error;
    } finally {
      this.close();
    }
  }

  private hear(message: Message): void {
    if (this.over !== undefined) return;
    const taker = this.takers.shift();
    if (taker !== undefined) return taker.give(message);
    this.waiting.push(message);
    if (this.waiting.length > MAX_WAITING) {
      this.end(new Closed(4000, `more than ${MAX_WAITING} messages wait`));
      this.socket.close(4000);
    }
  }

  private end(why: Closed): void {
    this.over ??= why;
    for (const taker of this.takers.splice(0)) taker.refuse(this.over);
  }
}
