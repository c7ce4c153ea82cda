export { Client } from "./client.js";
export { Closed, Stream } from "./stream.js";
export { Refused, type Query } from "./transport.js";
export type * from "./types.js";
