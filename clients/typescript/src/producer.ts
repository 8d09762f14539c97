/** The producer: gathers the pushes of many callers into batches, and answers each of them. */

import { BATCH_BYTES, BATCH_MESSAGES, isTransient, sendBatch } from "./batch.js";
import type { Client, Pusher } from "./client.js";
import { encoded, idOf } from "./encoding.js";
import { DwellError, Unavailable } from "./errors.js";
import { backoff } from "./http.js";
import type { CallOptions, PushOptions, PushResult } from "./messages.js";
import { onAbort } from "./signals.js";
import { trace, traceReady } from "./trace.js";
import { atLeast, given, milliseconds, type Duration } from "./values.js";

/** While a batch of a topic is under way, the next one gathers up to this long, in milliseconds. */
const GATHER_MS = 20;
/** Errors of a whole batch that may be about some of its messages only. */
const DIVIDED = new Set([400, 413, 422]);

export interface ProducerOptions {
  /** How long the first message of a batch waits for others. Default 0: messages gather while a batch is under way. */
  linger?: Duration;
  /** Messages of a batch at most, up to 1,000. Default 1,000. */
  batchMessages?: number;
  /** Messages that wait or are under way, at most: a push waits while there are so many. Default 10,000. */
  bufferMessages?: number;
  /** Their bytes, at most. Default 32 MiB. */
  bufferBytes?: number;
  /** Batches that are under way at the same time, at most. Default 4. */
  batchesInFlight?: number;
}

/** A message from its push to its answer. */
interface Entry {
  text: string;
  bytes: number;
  pushedAt: number;
  /** When it is given up: `retryFor` after it was first sent. */
  until: number;
  tries: number;
  /** It has its answer, or its caller aborted it. */
  isOver: boolean;
  resolve(result: PushResult): void;
  reject(error: unknown): void;
}

/** The messages of a topic that wait. */
interface Lane {
  topic: string;
  waiting: Entry[];
  underWay: number;
  timer: NodeJS.Timeout | undefined;
}

/** Room for messages. Those that wait for it enter in order. */
class Room {
  private readonly waiting: { bytes: number; enter(): void }[] = [];
  private messages = 0;
  private bytes = 0;

  constructor(private readonly mostMessages: number, private readonly mostBytes: number) {}

  async enter(bytes: number, signal: AbortSignal | undefined): Promise<void> {
    if (!this.waiting.length && this.has(bytes)) return this.take(bytes);
    await new Promise<void>((resolve, reject) => {
      const abort = (): void => {
        this.waiting.splice(this.waiting.indexOf(waiter), 1);
        reject(signal?.reason as Error);
        this.admit();
      };
      const enter = (): void => {
        forget();
        resolve();
      };
      const waiter = { bytes, enter };
      this.waiting.push(waiter);
      const forget = onAbort(signal, abort);
    });
  }

  leave(bytes: number): void {
    this.messages--;
    this.bytes -= bytes;
    this.admit();
  }

  private admit(): void {
    for (let first = this.waiting[0]; first && this.has(first.bytes); first = this.waiting[0]) {
      this.waiting.shift();
      this.take(first.bytes);
      first.enter();
    }
  }

  private has(bytes: number): boolean {
    return this.messages === 0 || (this.messages < this.mostMessages && this.bytes + bytes <= this.mostBytes);
  }

  private take(bytes: number): void {
    this.messages++;
    this.bytes += bytes;
  }
}

/**
 * Pushes messages as a client does, and gathers those of many callers into batches: `producer.push("orders", { order: 4711 })`.
 *
 * Each push has its own answer. A push waits while the buffer is full. If the broker refuses a batch because of one message, the others
 * are sent again, and only the caller of that message gets the error. Messages that could not be stored are sent again with the same
 * ids, for as long as `retryFor` of the client. A message that its caller aborts before it is sent is not sent.
 */
export class Producer implements Pusher {
  private readonly lingerMs: number;
  private readonly batchMessages: number;
  private readonly batchesInFlight: number;
  private readonly room: Room;
  private readonly lanes = new Map<string, Lane>();
  private readonly pushes = new Set<Promise<PushResult>>();
  private batches = 0;
  private flushes = 0;
  private isClosed = false;

  constructor(private readonly client: Client, options: ProducerOptions = {}) {
    this.lingerMs = milliseconds(options.linger ?? 0, "linger");
    this.batchMessages = Math.min(BATCH_MESSAGES, atLeast("batchMessages", 1, options.batchMessages ?? BATCH_MESSAGES));
    this.batchesInFlight = atLeast("batchesInFlight", 1, options.batchesInFlight ?? 4);
    const { bufferMessages = 10_000, bufferBytes = 32 << 20 } = options;
    this.room = new Room(atLeast("bufferMessages", 1, bufferMessages), atLeast("bufferBytes", 1, bufferBytes));
  }

  /** Pushes one message. Resolves and rejects as `push` of a client does. */
  async push(topic: string, payload: unknown, options: PushOptions = {}): Promise<PushResult> {
    const { signal, ...fields } = options;
    given("topic", topic);
    if (this.isClosed) throw new Error("the producer is closed");
    signal?.throwIfAborted();
    // The active span is that of the caller, and not that of another message of the batch.
    const text = encoded({ ...fields, payload }, idOf(fields), trace());
    const push = this.deliver(topic, text, signal);
    this.pushes.add(push);
    return push.finally(() => this.pushes.delete(push));
  }

  /** Resolves once all that was pushed before has its answer. A signal ends the wait, and not the pushes. */
  async flush({ signal }: CallOptions = {}): Promise<void> {
    this.flushes++;
    this.sendAll();
    const answered = Promise.allSettled([...this.pushes]);
    void answered.then(() => this.flushes--);
    await new Promise<void>((resolve, reject) => {
      const abort = (): void => reject(signal?.reason as Error);
      if (signal?.aborted) abort();
      const forget = onAbort(signal, abort);
      void answered.then(() => (forget(), resolve()));
    });
  }

  /** Flushes, and refuses later pushes. The client stays open. */
  async close(options?: CallOptions): Promise<void> {
    this.isClosed = true;
    await this.flush(options);
  }

  /** Closes the producer at the end of an `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async deliver(topic: string, text: string, signal: AbortSignal | undefined): Promise<PushResult> {
    const bytes = Buffer.byteLength(text) + 1;
    await this.room.enter(bytes, signal);
    try {
      return await this.wait(topic, text, bytes, signal);
    } finally {
      this.room.leave(bytes);
    }
  }

  /** Lets a message wait for a batch, and then for its answer. */
  private wait(topic: string, text: string, bytes: number, signal: AbortSignal | undefined): Promise<PushResult> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        entry.isOver = true;
        forget();
      };
      const entry: Entry = {
        text, bytes, pushedAt: performance.now(), until: Infinity, tries: 0, isOver: false,
        resolve: (result) => (end(), resolve(result)),
        reject: (error) => (end(), reject(error as Error)),
      };
      const forget = onAbort(signal, () => entry.reject(signal?.reason));
      if (signal?.aborted) return entry.reject(signal.reason);
      this.add(topic, [entry]);
    });
  }

  // Batches

  private add(topic: string, entries: Entry[]): void {
    const lane = this.lanes.get(topic) ?? { topic, waiting: [], underWay: 0, timer: undefined };
    this.lanes.set(topic, lane);
    lane.waiting.push(...entries);
    this.sendOf(lane);
  }

  private sendAll(): void {
    for (const lane of [...this.lanes.values()]) this.sendOf(lane);
  }

  /** Sends what waits if it is time to, and else comes back then. */
  private sendOf(lane: Lane): void {
    while (lane.waiting.length && this.batches < this.batchesInFlight) {
      const wait = this.flushes || lane.waiting.length >= this.batchMessages ? 0 : this.gathersFor(lane);
      if (wait > 0) {
        lane.timer ??= setTimeout(() => {
          lane.timer = undefined;
          this.sendOf(lane);
        }, wait);
        return;
      }
      this.send(lane);
    }
  }

  /** How long a batch that is not full still gathers, in milliseconds. */
  private gathersFor({ waiting, underWay }: Lane): number {
    const age = performance.now() - (waiting[0]?.pushedAt ?? 0);
    return Math.ceil(Math.max(this.lingerMs, underWay ? GATHER_MS : 0) - age);
  }

  private send(lane: Lane): void {
    const batch = this.take(lane);
    // The lanes take turns: this one goes to the end.
    this.lanes.delete(lane.topic);
    if (batch.length || lane.underWay || lane.waiting.length) this.lanes.set(lane.topic, lane);
    if (!batch.length) return;
    this.batches++;
    lane.underWay++;
    void this.exchange(lane.topic, batch).then(() => {
      this.batches--;
      lane.underWay--;
      // Callers that have their answers push again in this turn of the event loop, and these messages go together.
      setImmediate(() => this.sendAfter(lane));
    });
  }

  private sendAfter(lane: Lane): void {
    clearTimeout(lane.timer);
    lane.timer = undefined;
    if (lane.waiting.length && !lane.underWay && this.batches < this.batchesInFlight) this.send(lane);
    if (!lane.waiting.length && !lane.underWay) this.lanes.delete(lane.topic);
    this.sendAll();
  }

  private take(lane: Lane): Entry[] {
    const batch: Entry[] = [];
    let [taken, bytes] = [0, 0];
    for (const entry of lane.waiting) {
      if (batch.length === this.batchMessages || (batch.length && bytes + entry.bytes > BATCH_BYTES)) break;
      taken++;
      if (entry.isOver) continue;
      batch.push(entry);
      bytes += entry.bytes;
    }
    lane.waiting.splice(0, taken);
    return batch;
  }

  // Answers

  /** Sends a batch, and answers its callers. */
  private async exchange(topic: string, batch: Entry[]): Promise<void> {
    const { transport } = this.client;
    const now = performance.now();
    for (const entry of batch) entry.until = Math.min(entry.until, now + transport.retryForMs);
    const retryForMs = Math.max(0, Math.min(...batch.map((entry) => entry.until)) - now);
    try {
      await traceReady();
      const results = await sendBatch(transport, topic, batch.map((entry) => entry.text), { retryForMs });
      this.answer(topic, batch, results);
    } catch (error) {
      if (error instanceof Unavailable) this.again(topic, batch.map((entry) => [entry, error]));
      else await this.refused(topic, batch, error);
    }
  }

  private answer(topic: string, batch: Entry[], results: PushResult[]): void {
    const transient: [Entry, DwellError][] = [];
    batch.forEach((entry, n) => {
      const result = results[n] ?? { id: "", status: "error", error: { detail: "the answer has no result for this message" } };
      if (!result.error) return entry.resolve(result);
      const error = new DwellError(result.error.status ?? 0, { id: result.id, ...result.error });
      if (isTransient(result)) transient.push([entry, error]);
      else entry.reject(error);
    });
    this.again(topic, transient);
  }

  /** Sends messages again later, or gives them up. */
  private again(topic: string, failed: [Entry, DwellError][]): void {
    const now = performance.now();
    const waits = failed.map(([entry, error]) => Math.max(error.retryAfter, backoff(entry.tries++)));
    const wait = Math.min(...waits, Math.max(0, ...failed.map(([entry]) => entry.until - now)));
    const left: Entry[] = [];
    for (const [entry, error] of failed) {
      if (now + wait <= entry.until && now < entry.until) left.push(entry);
      else entry.reject(error instanceof Unavailable ? error : this.client.transport.unavailable(error, entry.tries));
    }
    if (left.length) setTimeout(() => this.add(topic, left), wait);
  }

  /** The broker refused the whole batch. If that is because of some messages, the others are sent again. */
  private async refused(topic: string, batch: Entry[], error: unknown): Promise<void> {
    if (!(error instanceof DwellError) || !DIVIDED.has(error.status) || batch.length === 1) {
      for (const entry of batch) entry.reject(batch.length === 1 && error instanceof DwellError ? ofOne(error, 0) : error);
      return;
    }
    const pointers = (error.problem.errors ?? []).map(({ pointer }) => /^\/messages\/(\d+)/.exec(pointer ?? "")?.[1]);
    const named = new Set(pointers.flatMap((n) => (n === undefined ? [] : Number(n))));
    for (const n of named) batch[n]?.reject(ofOne(error, n));
    const rest = batch.filter((entry, n) => !named.has(n) && !entry.isOver);
    // Without a name it is searched for in the two halves.
    const middle = named.size ? rest.length : Math.ceil(rest.length / 2);
    for (const part of [rest.slice(0, middle), rest.slice(middle)]) if (part.length) await this.exchange(topic, part);
  }
}

/** The refusal of a batch as the refusal of one of its messages. */
function ofOne(error: DwellError, n: number): DwellError {
  const prefix = `/messages/${n}`;
  const errors = (error.problem.errors ?? []).filter(({ pointer }) => pointer === prefix || pointer?.startsWith(prefix + "/"))
    .map((field) => ({ ...field, pointer: field.pointer?.slice(prefix.length) ?? "" }));
  if (!errors.length) return error;
  const detail = errors.map(({ pointer, detail: text }) => (pointer ? `\`${pointer.slice(1)}\`: ${text}` : text)).join("; ");
  const { moreErrors: _, ...problem } = error.problem;
  return new DwellError(error.status, { ...problem, detail, errors });
}
