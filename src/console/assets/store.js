// What the daemon pushes: the registry of agents, and every event after the last one that was seen.
//
// Each message has a number (`seq`). After a break the socket is opened with `?since=` that number: what was
// missed comes first, what was seen already is dropped by its number. When the daemon no longer has what was
// missed it says `resync`, and pages read anew.

import { get } from "./api.js";

const RETRY_MS = [250, 500, 1000, 2000, 4000];
const SPARK_MS = 5000;
const SPARKS = 24;
const HEALTH_MS = 15000;
/** Between two looks at the connection, each with a ping when the last one was answered. */
const PING_MS = 5000;
/** A ping that is not answered for this long, or a connection that takes so long to open, is given up. */
const ANSWER_MS = 10000;

const agents = new Map();
const listeners = new Map();
const sparks = new Map();
let cursor = null;
let tries = 0;
let socket = null;
let heard = 0;
/** When the last ping was sent, or the connection was begun. */
let asked = 0;
let everOpen = false;

export const store = {
  agents,
  approvals: [],
  resolved: [],
  health: null,
  connected: false,
  /** Messages taken, and messages dropped because they were seen already; for tests. */
  counts: { taken: 0, repeated: 0, resyncs: 0, connects: 0 },
  cursor: () => cursor,
  /** When the daemon was heard last, in ms since 1970. */
  heard: () => heard,
};

/** Calls `listener` with every event of a type (`*` for all); answers how to stop. */
export function on(type, listener) {
  if (!listeners.has(type)) listeners.set(type, new Set());
  listeners.get(type).add(listener);
  return () => listeners.get(type).delete(listener);
}

export function emit(type, message) {
  for (const listener of listeners.get(type) ?? []) listener(message);
}

const LIVE = new Set(["starting", "running", "waiting", "rotating", "limited", "queued"]);
export const isLive = (agent) => LIVE.has(agent.status);
export const isBad = (agent) => agent.status === "crashed" || agent.status === "interrupted";
export const isStalled = (agent) => isLive(agent) && agent.statusCode === "silent";

/** An agent by id, earlier id or name. */
export function find(key) {
  if (agents.has(key)) return agents.get(key);
  for (const agent of agents.values()) if (agent.name === key) return agent;
  return undefined;
}

/** Activity of the last two minutes, oldest first. */
export function spark(id) {
  const ring = sparks.get(id);
  const now = Math.floor(Date.now() / SPARK_MS);
  const out = new Array(SPARKS).fill(0);
  if (ring) for (const [slot, n] of ring) if (now - slot < SPARKS) out[SPARKS - 1 - (now - slot)] = n;
  return out;
}

function busy(id, n = 1) {
  const slot = Math.floor(Date.now() / SPARK_MS);
  let ring = sparks.get(id);
  if (!ring) sparks.set(id, (ring = new Map()));
  ring.set(slot, (ring.get(slot) ?? 0) + n);
  if (ring.size > SPARKS) for (const old of ring.keys()) if (slot - old >= SPARKS) ring.delete(old);
}

/** What waits for a person, the longest wait first. */
export function attention() {
  const items = store.approvals.map((approval) => ({
    kind: "approval",
    key: approval.id,
    since: approval.requestedAt,
    approval,
  }));
  for (const agent of agents.values()) {
    if (isBad(agent)) items.push({ kind: agent.status, key: agent.id, since: agent.statusSince, agent });
    else if (isStalled(agent)) items.push({ kind: "stalled", key: agent.id, since: agent.statusSince, agent });
  }
  items.sort((a, b) => (a.since < b.since ? -1 : 1));
  const storage = store.health?.storageError;
  if (storage) items.unshift({ kind: "storage", key: "storage", since: store.health.seen, text: storage });
  return items;
}

export async function readApprovals() {
  const { pending, resolved } = await get("/api/approvals");
  store.approvals = pending;
  store.resolved = resolved;
  emit("approvals");
}

async function readHealth() {
  try {
    const health = await get("/api/health");
    health.seen = store.health?.storageError ? store.health.seen : new Date().toISOString();
    store.health = health;
    emit("health");
  } catch {
    // The pill says it already.
  }
}

function replaceAll(records) {
  agents.clear();
  for (const record of records) agents.set(record.id, record);
  for (const id of sparks.keys()) if (!agents.has(id)) sparks.delete(id);
}

function apply(message) {
  const { type, data } = message;
  if (type === "state") replaceAll(data);
  else if (type === "state:delta") {
    for (const id of data.removed) agents.delete(id);
    for (const record of data.changed) agents.set(record.id, record);
  } else if (type === "resync") {
    store.counts.resyncs += 1;
    readApprovals().catch(() => {});
    emit("resync");
  } else if (type === "approval:request" || type === "approval:resolved") readApprovals().catch(() => {});
  if (type === "state" || type === "state:delta") emit("agents");
}

const OUTPUT = '{"type":"agent:output","agentId":"';

/** Output is frequent: only agent and number are read, by position; the log has the rest. */
function output(text) {
  const id = text.slice(OUTPUT.length, text.indexOf('"', OUTPUT.length));
  const from = text.lastIndexOf(',"seq":');
  const seq = Number.parseInt(text.slice(from + 7, from + 27), 10);
  if (!fresh(seq)) return;
  busy(id);
  emit("output", id);
}

/** Notes a number; false for a message that was seen already. */
function fresh(seq) {
  if (!(seq > 0)) return true;
  if (cursor !== null && seq <= cursor) {
    store.counts.repeated += 1;
    return false;
  }
  cursor = seq;
  store.counts.taken += 1;
  return true;
}

function receive(text) {
  heard = Date.now();
  if (text.startsWith(OUTPUT)) return output(text);
  const message = JSON.parse(text);
  if (message.type === "pong") return;
  // The full registry repeats the number of the last message: it is taken whatever its number.
  if (message.type === "state" || message.type === "resync") cursor = message.seq;
  else if (!fresh(message.seq)) return;
  apply(message);
  emit(message.type, message);
  emit("*", message);
}

function status(word, title) {
  store.connected = word === "live";
  emit("status", { word, title });
}

export function connect() {
  const query = cursor === null ? "?delta=1" : `?delta=1&since=${cursor}`;
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  asked = Date.now();
  socket = new WebSocket(`${scheme}://${location.host}${location.pathname}ws${query}`);
  const mine = socket;
  socket.onopen = () => {
    store.counts.connects += 1;
    tries = 0;
    heard = Date.now();
    status("live", "Connected: every change is shown at once");
    readApprovals().catch(() => {});
    readHealth();
    if (everOpen) emit("reconnect");
    everOpen = true;
  };
  socket.onmessage = (event) => receive(event.data);
  socket.onclose = (event) => {
    if (mine !== socket) return;
    // 1013: more was missed than the daemon sends; begin anew.
    if (event.code === 1013) {
      cursor = null;
      emit("resync");
    }
    again();
  };
}

function again() {
  const wait = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
  tries += 1;
  status(tries > 2 ? "offline" : "reconnecting", "The daemon does not answer; retrying automatically");
  setTimeout(connect, wait);
}

/** A daemon that hangs keeps its connections, and takes new ones without a word: that is no answer either. */
function giveUp() {
  socket.onclose = null;
  socket.close();
  tries = RETRY_MS.length;
  again();
}

setInterval(() => {
  const state = socket?.readyState;
  if (state !== WebSocket.OPEN && state !== WebSocket.CONNECTING) return;
  if (state === WebSocket.CONNECTING || asked > heard) {
    if (Date.now() - asked > ANSWER_MS) giveUp();
    return;
  }
  asked = Date.now();
  socket.send('{"type":"ping"}');
}, PING_MS);
setInterval(() => {
  if (store.connected) readHealth();
}, HEALTH_MS);
