/** The producer: push, cancel, reschedule and get messages. */

import { DwellError, sleep, backoff, Transport, type Problem } from "./http.js";
import { dueFields, encoded, fromAnswer, milliseconds } from "./messages.js";
import type { Control, Duration, Message, NewMessage, PushOptions, PushResult, Reschedule } from "./messages.js";

/** A batch has up to 1,000 messages and 8 MiB. */
const BATCH_MESSAGES = 1000;
const BATCH_BYTES = 7 << 20;
const TRANSIENT = new Set(["full", "unavailable", "outcome-unknown"].map((name) => `urn:dwell:error:${name}`));

type Results = { results: Record<string, unknown>[] };

/** Some messages of a `pushMany` were not accepted. `results` has one result for each message, in order. */
export class PushManyError extends DwellError {
  constructor(status: number, problem: Problem, readonly results: PushResult[]) {
    super(status, problem);
  }
}

export interface ClientOptions {
  /** Default `DWELL_TOKEN_FILE`. Read again when it changes. */
  tokenFile?: string;
  /** CA certificates that verify the broker. Default `DWELL_CA_FILE`, and else those of Node.js. */
  caFile?: string;
  /** For one request. Default 30 s. */
  timeout?: Duration;
  /** For all repeats of a call. Default 60 s. */
  retryFor?: Duration;
}

/**
 * A client of one broker, or of several behind one address.
 *
 * `server` is `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`; default `DWELL_SERVER`, and else `http://127.0.0.1:7373`.
 */
export class Client {
  /** @internal */
  readonly transport: Transport;
  private readonly retryForMs: number;

  constructor(server?: string, options: ClientOptions = {}) {
    const { DWELL_SERVER, DWELL_TOKEN_FILE, DWELL_CA_FILE } = process.env;
    this.retryForMs = milliseconds(options.retryFor ?? "60s");
    this.transport = new Transport(server || DWELL_SERVER || "http://127.0.0.1:7373", options.tokenFile ?? DWELL_TOKEN_FILE,
      options.caFile ?? DWELL_CA_FILE, milliseconds(options.timeout ?? "30s"), this.retryForMs);
  }

  /** Creates a topic, or changes the given settings of it, such as `{ max_attempts: 5 }`. Repeating it changes nothing. */
  createTopic(topic: string, settings: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    return this.transport.call("PUT", `/v1/topics/${part(topic)}`, settings);
  }

  /**
   * Pushes one message. `payload` is bytes, text, or any other value, which is sent as JSON.
   *
   * The message has an id before it is sent, so repeats store it once. Rejects with `DwellError` if the broker refuses it, and
   * with `Unavailable` if the outcome is unknown when `retryFor` is over.
   */
  async push(topic: string, payload: unknown, options: PushOptions = {}): Promise<PushResult> {
    const headers = await trace();
    const body = encoded({ ...options, payload });
    return fromAnswer(await this.transport.call("POST", `/v1/topics/${part(topic)}/messages`, body, { headers }));
  }

  /**
   * Pushes messages in batches and repeats those that the broker could not store.
   *
   * Resolves to a result for each message, in order. Rejects with `PushManyError` if any was not accepted, and with `DwellError`
   * if the broker refused a whole batch; the batches before it are stored.
   */
  async pushMany(topic: string, messages: Iterable<NewMessage>): Promise<PushResult[]> {
    const headers = await trace();
    const path = `/v1/topics/${part(topic)}/messages/batch`;
    const results: PushResult[] = [];
    for (const batch of batches(messages)) {
      for (const result of await this.pushBatch(path, batch, headers)) results.push(result);
    }
    const failed = results.filter((result) => result.error);
    const first = failed[0]?.error as Problem | undefined;
    if (first) {
      const detail = `${failed.length} of ${results.length} messages were not accepted, the first with: ${first.detail}`;
      throw new PushManyError(first.status ?? 0, { ...first, detail }, results);
    }
    return results;
  }

  /** Cancels a message in every group in which it waits. Rejects with `conflict` if a consumer has it. */
  async cancel(topic: string, id: string, options: { key?: string } = {}): Promise<Control> {
    return fromAnswer(await this.transport.call("DELETE", message(topic, id, options)));
  }

  /** Gives a message that waits another due time. */
  async reschedule(topic: string, id: string, options: Reschedule): Promise<Control> {
    const { key, etag } = options;
    const headers: Record<string, string> = etag ? { "If-Match": etag } : {};
    return fromAnswer(await this.transport.call("PATCH", message(topic, id, { key }), dueFields(options), { headers }));
  }

  /** Gets a message with its state in a group, `default` unless given. */
  async get(topic: string, id: string, options: { key?: string; group?: string } = {}): Promise<Message> {
    return fromAnswer(await this.transport.call("GET", message(topic, id, options)), true);
  }

  /** Closes idle connections. */
  close(): void {
    this.transport.close();
  }

  private async pushBatch(path: string, batch: string[], headers: Record<string, string>): Promise<PushResult[]> {
    const results: PushResult[] = [];
    let left = batch.map((_, n) => n);
    const until = performance.now() + this.retryForMs;
    for (let tries = 0; ; tries++) {
      const body = `{"messages":[${left.map((n) => batch[n]).join(",")}]}`;
      const options = { headers, retryForMs: Math.max(0, until - performance.now()) };
      const answer = await this.transport.call<Results>("POST", path, body, options);
      left.forEach((n, at) => (results[n] = fromAnswer(answer.results[at] ?? {})));
      left = left.filter((n) => TRANSIENT.has(String(results[n]?.error?.["type"])));
      const wait = backoff(tries);
      if (!left.length || performance.now() + wait > until) return results;
      await sleep(wait);
    }
  }
}

function* batches(messages: Iterable<NewMessage>): Generator<string[]> {
  let batch: string[] = [];
  let size = 0;
  for (const message of messages) {
    const text = encoded(message);
    const bytes = Buffer.byteLength(text) + 1;
    if (batch.length === BATCH_MESSAGES || (batch.length && size + bytes > BATCH_BYTES)) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(text);
    size += bytes;
  }
  if (batch.length) yield batch;
}

/** A part of a path, percent-encoded. */
export function part(name: string): string {
  return encodeURIComponent(name).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
}

function message(topic: string, id: string, query: Record<string, string | undefined>): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const text = given.map(([name, value]) => `${name}=${part(value ?? "")}`).join("&");
  return `/v1/topics/${part(topic)}/messages/${part(id)}${text && "?" + text}`;
}

type Telemetry = { context: { active(): unknown }; propagation: { inject(context: unknown, carrier: Record<string, string>): void } };
let telemetry: Promise<Telemetry | undefined> | undefined;

/** `traceparent` and `tracestate` of the active span, if OpenTelemetry is installed. */
async function trace(): Promise<Record<string, string>> {
  const name = "@opentelemetry/api";
  telemetry ??= (import(name) as Promise<Telemetry>).catch(() => undefined);
  const api = await telemetry;
  const carrier: Record<string, string> = {};
  api?.propagation.inject(api.context.active(), carrier);
  return Object.fromEntries(Object.entries(carrier).filter(([key]) => key === "traceparent" || key === "tracestate"));
}
