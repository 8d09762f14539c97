/** Client of dwell, a delay broker: push messages with a delay, and handle them when they are due. */

export { Client, PushManyError, type ClientOptions } from "./client.js";
export { DwellError, Unavailable, type Problem } from "./http.js";
export type { Attribute, Control, DeadLetterSource, Duration, Message, NewMessage, PushOptions, PushResult, Reschedule } from "./messages.js";
export { Bury, Delivery, Retry, Worker, type Handler, type Stats, type WorkerEvent, type WorkerOptions } from "./worker.js";
export const version = "0.1.0";
