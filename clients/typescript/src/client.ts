/** The client of a broker: push, cancel, reschedule, get and list messages. */

import { Administration } from "./administration.js";
import { batches, isTransient, sendBatch } from "./batch.js";
import { dueBody, encoded, idOf } from "./encoding.js";
import { PushManyError, Unavailable } from "./errors.js";
import { backoff, sleep, Transport } from "./http.js";
import type { List, ListOptions } from "./list.js";
import type {
  CallOptions, Control, Explained, ListedMessage, Message, MessageRef, MessageState, NewDue, NewMessage, PushOptions, PushResult,
  RescheduleOptions,
} from "./messages.js";
import { trace, traceReady } from "./trace.js";
import { fromAnswer, given, milliseconds, part, query, withPayload, type Duration, type Time } from "./values.js";

/** Requests of `cancelMany` and the like that are under way at the same time. */
const AT_ONCE = 16;

/** Something that pushes messages: a `Client`, or a `Producer`, which gathers them. */
export interface Pusher {
  push(topic: string, payload: unknown, options?: PushOptions): Promise<PushResult>;
}

export interface ClientOptions {
  /** Default `DWELL_TOKEN_FILE`. Read again when it changes. */
  tokenFile?: string;
  /** CA certificates that verify the broker. Default `DWELL_CA_FILE`, and else those of Node.js. */
  caFile?: string;
  /** For one request. Default 30 s. */
  timeout?: Duration;
  /** For how long a call is repeated. Default 5 s. */
  retryFor?: Duration;
}

/**
 * A client of one broker, or of several behind one address.
 *
 * `server` is `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`; default `DWELL_SERVER`, and else `http://127.0.0.1:7373`.
 *
 * Each call rejects with `DwellError` if the broker refuses it, with `Unavailable` if there is no final answer within `retryFor`, with
 * `TypeError` or `RangeError` if an argument is wrong, and with the reason of its `signal` once that is aborted.
 */
export class Client extends Administration implements Pusher {
  constructor(server?: string, options: ClientOptions = {}) {
    const { DWELL_SERVER, DWELL_TOKEN_FILE, DWELL_CA_FILE } = process.env;
    super(new Transport({
      server: server || DWELL_SERVER || "http://127.0.0.1:7373",
      tokenFile: options.tokenFile ?? DWELL_TOKEN_FILE,
      caFile: options.caFile ?? DWELL_CA_FILE,
      timeoutMs: milliseconds(options.timeout ?? "30s", "timeout"),
      retryForMs: milliseconds(options.retryFor ?? "5s", "retryFor"),
    }));
  }

  /**
   * Pushes one message. `payload` is bytes, text, or any other value, which is sent as JSON.
   *
   * The message has an id before it is sent, so repeats store it once.
   */
  async push(topic: string, payload: unknown, options: PushOptions = {}): Promise<PushResult> {
    const { signal, ...fields } = options;
    const body = encoded({ ...fields, payload }, idOf(fields));
    const path = `/v1/topics/${part(given("topic", topic))}/messages`;
    await traceReady();
    return fromAnswer(await this.ask("POST", path, body, { headers: trace(), signal }));
  }

  /**
   * Pushes messages in batches and repeats those that the broker could not store.
   *
   * Resolves to a result for each message, in order. Rejects with `PushManyError` if any was not accepted, and with `DwellError`
   * if the broker refused a whole batch; the batches before it are stored.
   */
  async pushMany(topic: string, messages: Iterable<NewMessage>, options: CallOptions = {}): Promise<PushResult[]> {
    given("topic", topic);
    await traceReady();
    const headers = trace();
    const results: PushResult[] = [];
    // All are encoded first, so that a wrong one refuses all.
    for (const batch of batches(Array.from(messages, (message) => encoded(message, idOf(message))))) {
      for (const result of await this.pushBatch(topic, batch, headers, options.signal)) results.push(result);
    }
    const failed = results.filter((result) => result.error);
    const first = failed[0]?.error;
    if (first) {
      const detail = `${failed.length} of ${results.length} messages were not accepted, the first with: ${first.detail}`;
      throw new PushManyError(first.status ?? 0, { ...first, detail }, results);
    }
    return results;
  }

  /** Gets a message with its state in a group, `default` unless given. */
  async get(topic: string, id: string, options: { key?: string; group?: string } & CallOptions = {}): Promise<Message> {
    const { key, group, signal } = options;
    return withPayload(await this.ask("GET", messagePath(topic, id, { key, group }), undefined, { signal }));
  }

  /** Cancels a message in every group in which it waits. Rejects with `conflict` if a consumer has it. */
  async cancel(topic: string, id: string, options: { key?: string } & CallOptions = {}): Promise<Control> {
    const { key, signal } = options;
    return fromAnswer(await this.ask("DELETE", messagePath(topic, id, { key }), undefined, { signal }));
  }

  /** Gives a message that waits another due time: `reschedule("orders", "close-4713", { delay: "90m" })`. */
  async reschedule(topic: string, id: string, options: RescheduleOptions): Promise<Control> {
    const { key, etag, signal, ...due } = options;
    const headers: Record<string, string> = etag ? { "If-Match": etag } : {};
    return fromAnswer(await this.ask("PATCH", messagePath(topic, id, { key }), dueBody(due), { headers, signal }));
  }

  /** Gets messages. Resolves to an outcome for each, in order, as `Promise.allSettled` does. */
  async getMany(
    topic: string, messages: Iterable<MessageRef>, options: { group?: string } & CallOptions = {},
  ): Promise<PromiseSettledResult<Message>[]> {
    const path = (ref: Ref): string => messagePath(topic, ref.id, { key: ref.key, group: options.group });
    return each(refs(messages, path), options.signal, ({ id, ...ref }) => this.get(topic, id, { ...ref, ...options }));
  }

  /** Cancels messages. Resolves to an outcome for each, in order, as `Promise.allSettled` does. */
  async cancelMany(topic: string, messages: Iterable<MessageRef>, options: CallOptions = {}): Promise<PromiseSettledResult<Control>[]> {
    const path = (ref: Ref): string => messagePath(topic, ref.id, { key: ref.key });
    return each(refs(messages, path), options.signal, ({ id, ...ref }) => this.cancel(topic, id, { ...ref, ...options }));
  }

  /** Gives all these messages the same due time. Resolves to an outcome for each, in order, as `Promise.allSettled` does. */
  async rescheduleMany(
    topic: string, messages: Iterable<MessageRef>, options: Omit<NewDue, "etag"> & CallOptions,
  ): Promise<PromiseSettledResult<Control>[]> {
    dueBody(options);
    const path = (ref: Ref): string => messagePath(topic, ref.id, { key: ref.key });
    return each(refs(messages, path), options.signal, ({ id, ...ref }) => this.reschedule(topic, id, { ...ref, ...options }));
  }

  /** Lists messages of a group, `default` unless given: all that no consumer has and that are not dead, or those of a `state`. */
  list(
    topic: string,
    options: { state?: MessageState; group?: string; from?: Time; to?: Time; order?: "partition" | "due" } & ListOptions = {},
  ): List<ListedMessage> {
    return this.pagesOf(`/v1/topics/${part(given("topic", topic))}/messages`, "messages", options, withPayload<ListedMessage>);
  }

  /** Explains why a message is not delivered yet, with a reason for each group. */
  async explain(topic: string, id: string, options: { key?: string } & CallOptions = {}): Promise<Explained> {
    const { key, signal } = options;
    return fromAnswer(await this.ask("GET", messagePath(topic, id, { key }, "/explain"), undefined, { signal }));
  }

  /** Closes idle connections. */
  close(): void {
    this.transport.close();
  }

  private async pushBatch(
    topic: string, batch: string[], headers: Record<string, string>, signal: AbortSignal | undefined,
  ): Promise<PushResult[]> {
    const results: PushResult[] = [];
    let left = batch.map((text, n) => ({ text, n }));
    const until = performance.now() + this.transport.retryForMs;
    for (let tries = 0; ; tries++) {
      const options = { headers, retryForMs: Math.max(0, until - performance.now()), signal };
      const answers = await sendBatch(this.transport, topic, left.map(({ text }) => text), options);
      left = left.filter(({ n }, at) => {
        const answer = answers[at];
        if (answer) results[n] = answer;
        return answer && isTransient(answer);
      });
      const wait = Math.min(backoff(tries), until - performance.now());
      if (!left.length || wait <= 0) return results;
      await sleep(wait, signal);
    }
  }
}

type Ref = { id: string; key?: string };

/** The ids and keys of messages, all of which are checked. */
function refs(messages: Iterable<MessageRef>, check: (ref: Ref) => unknown): Ref[] {
  const all = Array.from(messages, (message) => (typeof message === "string" ? { id: message } : message));
  all.forEach(check);
  return all;
}

/** Makes a call for each item, some at the same time. Once the broker is unavailable, those that have not begun are not made. */
async function each<I, R>(all: I[], signal: AbortSignal | undefined, call: (item: I) => Promise<R>): Promise<PromiseSettledResult<R>[]> {
  const outcomes: PromiseSettledResult<R>[] = [];
  let next = 0;
  let unavailable: unknown;
  const work = async (): Promise<void> => {
    while (next < all.length) {
      signal?.throwIfAborted();
      const n = next++;
      try {
        if (unavailable) throw unavailable;
        outcomes[n] = { status: "fulfilled", value: await call(all[n] as I) };
      } catch (reason) {
        signal?.throwIfAborted();
        if (reason instanceof Unavailable) unavailable = reason;
        outcomes[n] = { status: "rejected", reason };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, all.length) }, work));
  return outcomes;
}

type Fields = { key?: string | undefined; group?: string | undefined };

function messagePath(topic: string, id: string, { key, group }: Fields, rest = ""): string {
  if (key !== undefined) given("key", key);
  if (group !== undefined) given("group", group);
  return `/v1/topics/${part(given("topic", topic))}/messages/${part(given("id", id))}${rest}${query({ key, group })}`;
}
