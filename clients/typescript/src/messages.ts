/** Messages: what is pushed, and what the broker answers. */

import type { Problem } from "./errors.js";
import type { Duration, Time } from "./values.js";

/** Options of every call. */
export interface CallOptions {
  /** Ends the call, which then rejects with the reason of the signal. A request that was sent may still have succeeded. */
  signal?: AbortSignal | undefined;
}

/** Fields of a push beside its payload. Give at most one of `delay` and `dueAt`. */
export interface PushFields {
  /** Makes the push repeatable. Default: a new ULID. */
  id?: string;
  /** Decides the partition; without a key the id does. */
  key?: string;
  delay?: Duration;
  dueAt?: Time;
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
  /** The due time moves by up to this, by a value that the id decides. */
  spread?: Duration;
  conflict?: "keep" | "reject" | "replace" | "debounce" | "after";
  /** With `debounce`: how long after its first push the message may be due at the latest. */
  debounceMax?: Duration;
  contentType?: string;
  meta?: Record<string, string>;
  /** Data of a gateway that travels beside the payload. */
  attachment?: Uint8Array;
}

export interface PushOptions extends PushFields, CallOptions {}

/** A message to push. `payload` is bytes, text, or any other value, which is sent as JSON. */
export interface NewMessage extends PushFields {
  payload: unknown;
}

/** Where a message is. */
export interface PushResult {
  id: string;
  status: "stored" | "journaled" | "buffered" | "duplicate" | "replaced" | "debounced" | "error";
  partition?: number;
  dueAt?: Date;
  /** Of a duplicate: the other message has another payload or due time. */
  differs?: boolean;
  /** Of a duplicate by its dedup key: the id of the first message, if that is another one. */
  duplicateOf?: string;
  replicas?: number;
  topicCreated?: boolean;
  error?: Problem;
}

/** An id, alone or with the key that the message was pushed with. */
export type MessageRef = string | { id: string; key?: string };

/** A new due time: exactly one of `delay` and `dueAt`. With an `etag` only if the message still has it. */
export interface NewDue {
  delay?: Duration;
  dueAt?: Time;
  /** What happens if `dueAt` is in the past. Default `reject`. */
  past?: "now" | "reject";
  etag?: string;
}

export interface RescheduleOptions extends NewDue, CallOptions {
  key?: string;
}

/** The outcome of a cancel or a reschedule. */
export interface Control {
  id: string;
  status: "cancelled" | "rescheduled" | "partly";
  partition: number;
  groups: { group: string; status: "cancelled" | "rescheduled" | "in_flight" | "dead" | "absent" }[];
  dueAt?: Date;
  buffered?: boolean;
}

/** An attribute with which an SQS client sent a message. */
export interface Attribute {
  /** `String`, `Number` or `Binary`, perhaps with a dot and a label of the client. */
  type: string;
  value?: string;
  /** The value in base64 if the type is `Binary`. */
  valueBase64?: string;
}

/** Why a delivery failed. `class` and `stack` are there if the worker sent them. */
export interface ErrorDetails {
  class?: string;
  message: string;
  stack?: string;
}

/** Where a message was a dead letter before it was forwarded. */
export interface DeadLetterSource {
  topic: string;
  group: string;
  id: string;
  reason: "max_attempts" | "buried";
  attempts: number;
  diedAt: Date;
  lastError?: ErrorDetails;
  /** Topics that have forwarded the message, from 1. */
  hops: number;
}

/** What a message was pushed with. */
export interface Contents {
  /** Empty if the stored message cannot be read. */
  payload: Buffer;
  /** Absent if the stored message cannot be read. */
  meta: Record<string, string>;
  key?: string;
  dedupKey?: string;
  contentType?: string;
  priority?: number;
  pushedAt?: Date;
  attachment?: Buffer;
  deadLetterSource?: DeadLetterSource;
  /** Those with which an SQS client sent it. */
  attributes?: Record<string, Attribute>;
  traceparent?: string;
  tracestate?: string;
}

export type MessageState = "scheduled" | "ready" | "blocked" | "backoff" | "in_flight" | "dead";
export type DeathReason = "max_attempts" | "buried" | "unreadable" | "expired";

/** An attempt that failed. */
export interface FailedAttempt {
  attempt: number;
  at: Date;
  reason?: string;
}

/** A message of a list. */
export interface ListedMessage extends Contents {
  id: string;
  state: MessageState;
  partition: number;
  attempts: number;
  dueAt?: Date;
  /** When it is tried next; only while it is scheduled, ready or in backoff. */
  nextAt?: Date;
  expiresAt?: Date;
  diedAt?: Date;
  history?: FailedAttempt[];
  /** Why the stored message cannot be read. */
  unreadable?: string;
}

/** A message and its state in a group. */
export interface Message extends ListedMessage {
  /** Names its due time and its attempts, for a reschedule. */
  etag?: string;
  maxAttempts?: number;
  /** The broker that owns its partition, while it is blocked, in backoff or in flight. */
  owner?: string;
  /** When the message that follows it is due: it is delivered once this one has ended. */
  successorDueAt?: Date;
  /** Why it is dead. */
  reason?: DeathReason;
  /** Of a dead letter: how its last delivery failed. */
  lastError?: ErrorDetails;
}

/** A message that used up its attempts, was buried, or expired. */
export interface DeadLetter extends Contents {
  id: string;
  partition: number;
  attempts: number;
  reason: DeathReason;
  diedAt: Date;
  dueAt?: Date;
  lastError?: ErrorDetails;
  history?: FailedAttempt[];
  /** `hop_limit`: eight topics have forwarded it, so it stays here. */
  unforwarded?: string;
  /** Why the stored message cannot be read. */
  unreadable?: string;
}

/** Why a message is not delivered yet. */
export interface Explained {
  id: string;
  partition: number;
  /** Whether it is on the disk of the broker that answered. */
  buffered: boolean;
  groups: GroupReason[];
}

/** The reason of one group. */
export interface GroupReason {
  group: string;
  /** A stable name, such as `scheduled` or `no_consumer`. */
  reason: string;
  /** The same in a sentence. */
  detail: string;
  until?: Date;
  /** The message that it is behind, the first of its key. */
  blocker?: string;
  owner?: string;
  lastError?: ErrorDetails;
}
