/** What is pushed and what the broker answers. */

import { randomBytes } from "node:crypto";

/** Text such as `30s` or `1h30m`, or a number of milliseconds. */
export type Duration = string | number;

/** Options of a push. Give at most one of `delay` and `dueAt`. */
export interface PushOptions {
  /** Makes the push repeatable. Default: a new ULID. */
  id?: string;
  /** Decides the partition; without a key the id does. */
  key?: string;
  delay?: Duration;
  dueAt?: Date | string;
  /** What happens if `dueAt` is in the past. Default `now`. */
  past?: "now" | "reject";
  ttl?: Duration;
  /** 0 to 9. */
  priority?: number;
  /** 0 is without a limit. Default: the topic's. */
  maxAttempts?: number;
  /** Makes another push of it to the partition within `dedupFor` a duplicate. */
  dedupKey?: string;
  dedupFor?: Duration;
  conflict?: "keep" | "reject" | "replace" | "debounce";
  contentType?: string;
  meta?: Record<string, string>;
}

/** A message to push. `payload` is bytes, text, or any other value, which is sent as JSON. */
export interface NewMessage extends PushOptions {
  payload: unknown;
}

/** Where a message is. */
export interface PushResult {
  id: string;
  status: "stored" | "journaled" | "buffered" | "duplicate" | "replaced" | "debounced" | "error";
  partition?: number;
  dueAt?: Date;
  differs?: boolean;
  /** For a duplicate by its dedup key: the id of the first message, if that is another one. */
  duplicateOf?: string;
  replicas?: number;
  topicCreated?: boolean;
  error?: Record<string, unknown>;
}

/** A new due time. With an `etag` only if the message still has it. */
export interface Reschedule {
  key?: string;
  delay?: Duration;
  dueAt?: Date | string;
  past?: "now" | "reject";
  etag?: string;
}

/** The outcome of a cancel or a reschedule. */
export interface Control {
  id: string;
  status: "cancelled" | "rescheduled" | "partly";
  partition: number;
  groups: { group: string; status: string }[];
  dueAt?: Date;
  buffered?: boolean;
}

/** An attribute with which an SQS client sent a message, as the broker writes it. */
export interface Attribute {
  /** `String`, `Number` or `Binary`, perhaps with a dot and a label of the client. */
  type: string;
  value?: string;
  /** The value if the type is `Binary`. */
  value_base64?: string;
}

/** Where a message was a dead letter before it was forwarded. */
export interface DeadLetterSource {
  topic: string;
  group: string;
  id: string;
  reason: "max_attempts" | "buried";
  attempts: number;
  died_at: string;
  last_error?: string;
  /** Topics that have forwarded the message, from 1. */
  hops: number;
}

/** A message and its state in a group. */
export interface Message {
  id: string;
  state: "scheduled" | "ready" | "blocked" | "backoff" | "in_flight" | "dead";
  partition: number;
  attempts: number;
  payload: Buffer;
  meta: Record<string, string>;
  dedupKey?: string;
  deadLetterSource?: DeadLetterSource;
  key?: string;
  etag?: string;
  dueAt?: Date;
  nextAt?: Date;
  pushedAt?: Date;
  expiresAt?: Date;
  diedAt?: Date;
  contentType?: string;
  priority?: number;
  maxAttempts?: number;
  owner?: string;
  reason?: string;
  lastError?: string;
  history?: { attempt: number; at: string; reason: string }[];
  unreadable?: string;
  /** Those with which an SQS client sent it. */
  attributes?: Record<string, Attribute>;
  traceparent?: string;
  tracestate?: string;
}

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A new ULID: sortable by time, unique. */
export function ulid(): string {
  let number = (BigInt(Date.now()) << 80n) | BigInt("0x" + randomBytes(10).toString("hex"));
  let text = "";
  for (let n = 0; n < 26; n++, number >>= 5n) text = ALPHABET.charAt(Number(number & 31n)) + text;
  return text;
}

/** A duration in milliseconds. Throws `TypeError` if the text is not a duration. */
export function milliseconds(duration: Duration): number {
  if (typeof duration === "number") return duration;
  if (!/^(\d+(\.\d+)?(ms|[smhd]))+$/.test(duration)) throw new TypeError(`"${duration}" is not a duration such as 30s, 1h30m or 250ms`);
  let sum = 0;
  for (const [, number, unit] of duration.matchAll(/(\d+(?:\.\d+)?)(ms|[smhd])/g)) sum += Number(number) * (UNITS[unit ?? ""] ?? 0);
  return Math.round(sum);
}

/** The field of a request for a duration: text is passed on as it is. */
export function durationField(name: string, duration: Duration | undefined): Record<string, unknown> {
  if (duration === undefined) return {};
  return typeof duration === "string" ? { [name]: duration } : { [`${name}_ms`]: Math.ceil(duration) };
}

/** The fields of a request for a due time. */
export function dueFields({ delay, dueAt, past }: { delay?: Duration; dueAt?: Date | string; past?: string }): Record<string, unknown> {
  return {
    ...durationField("delay", delay),
    ...(dueAt === undefined ? {} : { due_at: dueAt instanceof Date ? dueAt.toISOString() : dueAt }),
    ...(past === undefined ? {} : { past }),
  };
}

/** A message as JSON. */
export function encoded(message: NewMessage): string {
  const { payload, id, key, priority, maxAttempts, conflict, contentType, meta, ttl, dedupKey, dedupFor } = message;
  const content =
    payload instanceof Uint8Array ? { payload_base64: Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString("base64") }
    : typeof payload === "string" ? { payload }
    : { payload_json: payload ?? null };
  const fields = { id: id ?? ulid(), key, priority, max_attempts: maxAttempts, conflict, content_type: contentType, meta, dedup_key: dedupKey };
  return JSON.stringify({ ...content, ...fields, ...dueFields(message), ...durationField("ttl", ttl), ...durationField("dedup_for", dedupFor) });
}

/** An object of an answer: names in camel case, times as `Date`, the payload as bytes. */
export function fromAnswer<T>(answer: Record<string, unknown>, withPayload = false): T {
  const result: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(answer)) {
    const isTime = typeof value === "string" && (name.endsWith("_at") || name === "deadline");
    result[name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())] = isTime ? new Date(value) : value;
  }
  if (withPayload) {
    delete result["payloadBase64"];
    const text = answer["payload"];
    result["payload"] = typeof text === "string" ? Buffer.from(text) : Buffer.from((answer["payload_base64"] as string | undefined) ?? "", "base64");
  }
  return result as T;
}
