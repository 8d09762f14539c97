/** Client of dwell, a delay broker: push messages with a delay, and handle them when they are due. */

export type { ProgressOptions } from "./administration.js";
export { Client, type ClientOptions, type Pusher } from "./client.js";
export { Bury, Delivery, Retry } from "./delivery.js";
export { DwellError, PushManyError, Unavailable, type FieldError, type Problem } from "./errors.js";
export type { List, ListOptions, Page } from "./list.js";
export type * from "./messages.js";
export { Producer, type ProducerOptions } from "./producer.js";
export type * from "./topics.js";
export type { Duration, Time } from "./values.js";
export { Worker, type Handler, type Stats, type WorkerEvent, type WorkerOptions } from "./worker.js";
export const version = "0.1.0";
