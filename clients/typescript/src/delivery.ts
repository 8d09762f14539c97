/** A message that a worker hands to its handler, and what the handler may throw. */

import type { Attribute, Contents, DeadLetterSource, ErrorDetails } from "./messages.js";
import { withPayload, type Duration } from "./values.js";

/** Bytes of a stack, and characters of a message, that are sent. */
const STACK_BYTES = 4096;
const MESSAGE = 1000;

/**
 * Thrown by a handler: deliver the message again, after `after` or the backoff of its topic.
 *
 * With `pauseKey` all messages of its key wait as long, and no attempt of theirs is counted, as for a 429 with `Retry-After` of a
 * customer's endpoint. Only in a fair group: in another one the broker refuses it, and delivers the message again after its visibility
 * timeout.
 */
export class Retry extends Error {
  override name = "Retry";
  readonly after: Duration | undefined;
  readonly pauseKey: boolean;
  constructor(reason = "", options: { after?: Duration; pauseKey?: boolean; cause?: unknown } = {}) {
    super(reason, "cause" in options ? { cause: options.cause } : undefined);
    this.after = options.after;
    this.pauseKey = options.pauseKey ?? false;
  }
}

/** Thrown by a handler: the message can never succeed; make it a dead letter. */
export class Bury extends Error {
  override name = "Bury";
}

/** A message that was handed to this worker. `signal` is aborted once another consumer may have it. */
export class Delivery implements Contents {
  readonly id!: string;
  readonly receipt!: string;
  /** Number of the attempt, from 1. */
  readonly attempt!: number;
  readonly partition!: number;
  readonly dueAt!: Date;
  readonly deadline!: Date;
  /** From the time at which it was due to the hand-over, in milliseconds: `lateness_ms` of the HTTP API. */
  readonly lateness!: number;
  readonly payload!: Buffer;
  readonly meta!: Record<string, string>;
  declare readonly key?: string;
  declare readonly dedupKey?: string;
  declare readonly deadLetterSource?: DeadLetterSource;
  /** Those with which an SQS client sent it. */
  declare readonly attributes?: Record<string, Attribute>;
  declare readonly attachment?: Buffer;
  declare readonly pushedAt?: Date;
  declare readonly contentType?: string;
  declare readonly priority?: number;
  declare readonly traceparent?: string;
  declare readonly tracestate?: string;
  readonly signal!: AbortSignal;

  /** @internal */
  constructor(answer: unknown, signal: AbortSignal, extend: (visibility: Duration) => Promise<boolean>) {
    Object.assign(this, withPayload<object>(answer));
    Object.defineProperties(this, { signal: { value: signal }, extend: { value: extend } });
  }

  /** The payload. */
  get bytes(): Buffer {
    return this.payload;
  }

  /** The payload as text. */
  get text(): string {
    return this.payload.toString();
  }

  /** The payload, read as JSON. */
  json<T = unknown>(): T {
    return JSON.parse(this.text) as T;
  }

  /**
   * Moves the deadline to `visibility` from now. Resolves to whether the delivery still belongs to this worker. Rejects with a
   * `DwellError` if the broker refuses this time, such as one beyond a limit: the deadline is then as before, and the worker goes on to
   * extend it by its visibility timeout.
   */
  declare extend: (visibility: Duration) => Promise<boolean>;
}

/** How a handler failed, as it is sent: with class and stack of an error if they are wanted, and else as text. */
export function reasonOf(thrown: unknown, withDetails: boolean): string | ErrorDetails | undefined {
  const isDecision = thrown instanceof Retry || thrown instanceof Bury;
  const error = isDecision && thrown.cause instanceof Error ? thrown.cause : thrown;
  if (!(error instanceof Error)) return cut(String(error)) || undefined;
  const message = cut((isDecision && thrown.message) || error.message);
  if (error instanceof Retry || error instanceof Bury) return message || undefined;
  const name = className(error);
  if (!withDetails) return message || name;
  const stack = stackOf(error);
  return { class: name, message, ...(stack ? { stack } : {}) };
}

/** The name of an error. A class that has not set one has that of `Error`. */
function className(error: Error): string {
  return error.name === "Error" && error.constructor.name ? error.constructor.name : error.name;
}

/** Where an error arose: the innermost frames come first, and those of its causes follow. */
function stackOf(error: Error): string {
  const seen = new Set<unknown>();
  const stacks: string[] = [];
  for (let at: unknown = error; at instanceof Error && !seen.has(at); at = at.cause) {
    const frames = at.stack?.split("\n").filter((line) => /^\s+at /.test(line)) ?? [];
    stacks.push([...(at === error ? [] : [`Caused by ${className(at)}: ${at.message}`]), ...frames].join("\n"));
    seen.add(at);
  }
  const bytes = Buffer.from(stacks.join("\n"));
  // As a part of a stream, it ends before a character that is cut.
  return new TextDecoder().decode(bytes.subarray(0, STACK_BYTES), { stream: true });
}

function cut(message: string): string {
  return message.length > MESSAGE ? message.slice(0, MESSAGE) : message;
}
