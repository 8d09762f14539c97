/** The worker: reserves messages that are due, runs a handler for each, and settles it. */

import { part, type Client } from "./client.js";
import { backoff, DwellError, Interrupt, Interrupted, REPEATED, type Transport } from "./http.js";
import { durationField, fromAnswer, milliseconds, type Attribute, type DeadLetterSource, type Duration } from "./messages.js";

/** Decisions are gathered for this long, in milliseconds, or until there are this many. */
const GATHER_MS = 5;
const GATHERED = 100;
/** Longest reason that is sent; the broker cuts longer ones. */
const REASON = 1000;
const SUCCESS = new Set(["acked", "nacked", "buried", "extended", "pending"]);
/** Refusals that a new token, scope or topic ends. */
const PATIENT = new Set([...REPEATED, 0, 401, 403, 404, 500]);

/** Thrown by a handler: deliver the message again, after `after` or the backoff of its topic. */
export class Retry extends Error {
  readonly after: Duration | undefined;
  constructor(reason = "", options: { after?: Duration } = {}) {
    super(reason);
    this.after = options.after;
  }
}

/** Thrown by a handler: the message can never succeed; make it a dead letter. */
export class Bury extends Error {}

/** A message that was handed to this worker. `signal` is aborted once another consumer may have it. */
export class Delivery {
  readonly id!: string;
  readonly receipt!: string;
  readonly attempt!: number;
  readonly partition!: number;
  readonly dueAt!: Date;
  readonly deadline!: Date;
  readonly lateness!: number;
  readonly payload!: Buffer;
  readonly meta!: Record<string, string>;
  readonly key?: string;
  readonly dedupKey?: string;
  readonly deadLetterSource?: DeadLetterSource;
  /** Those with which an SQS client sent it. */
  readonly attributes?: Record<string, Attribute>;
  readonly pushedAt?: Date;
  readonly contentType?: string;
  readonly priority?: number;
  readonly traceparent?: string;
  readonly tracestate?: string;
  readonly signal!: AbortSignal;

  /** @internal */
  constructor(answer: Record<string, unknown>, signal: AbortSignal, extend: (visibility: Duration) => Promise<boolean>) {
    const { latenessMs, ...fields } = fromAnswer<Record<string, unknown>>(answer, true);
    Object.assign(this, fields, { lateness: latenessMs });
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
  json<T = any>(): T {
    return JSON.parse(this.text) as T;
  }

  /** Moves the deadline to `visibility` from now. Resolves to whether the delivery still belongs to this worker. */
  declare extend: (visibility: Duration) => Promise<boolean>;
}

export type Handler = (delivery: Delivery, context: { signal: AbortSignal }) => unknown;

/** Counters since the start, and the state now. `lastPoll` is in milliseconds since 1970, `latenessMs` of the last delivery. */
export interface Stats {
  delivered: number;
  acked: number;
  nacked: number;
  buried: number;
  extended: number;
  stale: number;
  lost: number;
  pollFailures: number;
  settleFailures: number;
  inFlight: number;
  latenessMs: number;
  lastPoll: number;
}

export type WorkerEvent = Exclude<keyof Stats, "inFlight" | "latenessMs" | "lastPoll"> | "settled";

export interface WorkerOptions {
  /** Default `default`. */
  group?: string;
  /** Handlers that run at the same time. Default 8. */
  concurrency?: number;
  /** How long the broker waits for an extension or a settlement. Default 30 s. */
  visibility?: Duration;
  /** For how long the deadline of a delivery is extended. Default 1 h. */
  maxRuntime?: Duration;
  /** How long `stop` waits for handlers. Default 25 s. */
  drain?: Duration;
  /** Length of a poll, up to 60 s. Default 30 s. */
  wait?: Duration;
  /** Called with each event, for metrics. */
  onEvent?: (event: WorkerEvent, delivery?: Delivery) => void;
  /** Called with each failure, for the log. Default: `console.warn`. */
  onWarning?: (text: string, error?: unknown) => void;
}

interface Decision {
  verb: "ack" | "nack";
  fields: Record<string, unknown>;
}

interface Slot {
  delivery: Delivery;
  lost: AbortController;
  deadline: number;
  extendAt: number;
  extendUntil: number;
  decision?: Decision;
  decidedAt: number;
  notBefore: number;
  tries: number;
}

interface Verdict {
  status: string;
  reason?: string;
}

/** Wakes those that wait for a change. */
class Bell {
  private waiting = new Set<() => void>();

  ring(): void {
    for (const wake of [...this.waiting]) wake();
  }

  wait(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        this.waiting.delete(wake);
        resolve();
      };
      const timer = ms === undefined || ms === Infinity ? undefined : setTimeout(wake, Math.max(0, Math.ceil(ms)));
      this.waiting.add(wake);
    });
  }

  async until(condition: () => boolean, ms: number): Promise<void> {
    const end = performance.now() + ms;
    while (!condition() && performance.now() < end) await this.wait(end - performance.now());
  }
}

/**
 * Handles messages of a group, up to `concurrency` at a time.
 *
 * A handler that returns acknowledges its message. An exception delivers it again after the backoff of the topic, `Retry` after
 * the given time, and `Bury` makes it a dead letter. While a handler runs, the worker extends the deadline of its delivery.
 */
export class Worker {
  private readonly path: string;
  private readonly concurrency: number;
  private readonly visibility: Duration;
  private readonly visibleMs: number;
  private readonly wait: Duration;
  private readonly counters: Stats = {
    delivered: 0, acked: 0, nacked: 0, buried: 0, extended: 0, stale: 0, lost: 0, pollFailures: 0, settleFailures: 0, inFlight: 0,
    latenessMs: 0, lastPoll: 0,
  };
  private readonly slots = new Map<string, Slot>();
  private readonly bell = new Bell();
  private readonly interrupt = new Interrupt();
  private drainUntil = Infinity;
  private isStopping = false;
  private isOver = false;
  private failure: unknown;
  private running: Promise<void> | undefined;

  constructor(private readonly client: Client, topic: string, private readonly options: WorkerOptions, private readonly handler: Handler) {
    this.path = `/v1/topics/${part(topic)}/groups/${part(options.group ?? "default")}`;
    this.concurrency = options.concurrency ?? 8;
    this.visibility = options.visibility ?? "30s";
    this.visibleMs = milliseconds(this.visibility);
    this.wait = options.wait ?? "30s";
  }

  /** A copy of the counters, for health checks and metrics. */
  get stats(): Stats {
    return { ...this.counters, inFlight: this.slots.size };
  }

  /** Works until `stop`. Rejects with an error that cannot pass. */
  run(): Promise<void> {
    this.running ??= this.work();
    return this.running;
  }

  /** Reserves nothing more, and waits up to `drain` for handlers. Resolves when `run` does. A second call may shorten the wait. */
  async stop(options: { drain?: Duration } = {}): Promise<void> {
    const drain = milliseconds(options.drain ?? this.options.drain ?? "25s");
    this.drainUntil = Math.min(this.drainUntil, performance.now() + drain);
    this.isStopping = true;
    this.interrupt.set();
    this.bell.ring();
    await this.running?.catch(() => undefined);
  }

  private async work(): Promise<void> {
    const poll = this.pollLoop();
    const helpers = [this.settleLoop(), this.extendLoop()];
    await poll;
    while (this.slots.size && performance.now() < this.drainUntil) await this.bell.wait(this.drainUntil - performance.now());
    for (const slot of this.slots.values()) {
      if (slot.decision || slot.lost.signal.aborted) continue;
      slot.lost.abort(new Error("the worker stopped"));
      this.decide(slot, "nack", { reason: "the worker stopped before the handler had finished", delay_ms: 0 });
    }
    // Decisions are sent, or given up at their deadline.
    const isSettled = (): boolean => ![...this.slots.values()].some((slot) => slot.decision);
    await this.bell.until(isSettled, Math.max(5000, this.visibleMs));
    this.isOver = true;
    this.bell.ring();
    await Promise.all(helpers);
    if (this.failure) throw this.failure;
  }

  private event(name: WorkerEvent, delivery?: Delivery): void {
    if (name !== "settled") this.counters[name]++;
    try {
      this.options.onEvent?.(name, delivery);
    } catch (error) {
      this.warn("onEvent failed", error);
    }
  }

  private warn(text: string, error?: unknown): void {
    const warn = this.options.onWarning ?? ((line: string, cause?: unknown) => console.warn(`dwell: ${line}`, cause ?? ""));
    warn(text, error);
  }

  // Reserve

  private async pollLoop(): Promise<void> {
    // A broker hands out the messages of its own partitions, so polls that change between brokers would move them around.
    const transport = this.client.transport.sibling();
    await this.poll(transport);
    transport.close();
  }

  private async poll(transport: Transport): Promise<void> {
    let failures = 0;
    while (!this.isStopping) {
      // Settlements may be under way for as many as there are handlers.
      const running = [...this.slots.values()].filter((slot) => !slot.decision).length;
      const free = Math.min(this.concurrency - running, 2 * this.concurrency - this.slots.size, 1000);
      if (free <= 0) {
        await this.bell.wait();
        continue;
      }
      const body = { max: free, ...durationField("wait", this.wait), ...durationField("visibility_timeout", this.visibility) };
      const timeoutMs = milliseconds(this.wait) + 10_000;
      try {
        const options = { timeoutMs, retryForMs: 0, interrupt: this.interrupt };
        const answer = await transport.call<{ deliveries: Record<string, unknown>[] }>("POST", `${this.path}/reserve`, body, options);
        failures = 0;
        this.counters.lastPoll = Date.now();
        const now = performance.now();
        for (const delivery of answer.deliveries) this.begin(delivery, now);
        this.bell.ring();
      } catch (error) {
        if (error instanceof Interrupted) return;
        this.event("pollFailures");
        this.warn("reserve failed", error);
        if (!(error instanceof DwellError) || !PATIENT.has(error.status)) {
          this.failure = error;
          void this.stop();
          return;
        }
        await this.bell.until(() => this.isStopping, Math.max(error.retryAfterMs, backoff(failures++, 100)));
      }
    }
  }

  private begin(answer: Record<string, unknown>, now: number): void {
    const lost = new AbortController();
    const extend = (visibility: Duration): Promise<boolean> => this.extend([slot], visibility);
    const delivery = new Delivery(answer, lost.signal, extend);
    const maxRuntime = milliseconds(this.options.maxRuntime ?? "1h");
    const slot: Slot = {
      delivery, lost, deadline: now + this.visibleMs, extendAt: now + this.visibleMs / 3, extendUntil: now + maxRuntime,
      decidedAt: 0, notBefore: 0, tries: 0,
    };
    this.slots.set(delivery.receipt, slot);
    this.counters.latenessMs = delivery.lateness;
    this.event("delivered", delivery);
    if (this.isStopping) this.decide(slot, "nack", { delay_ms: 0 });
    else void this.handle(slot);
  }

  // Handle

  private async handle(slot: Slot): Promise<void> {
    try {
      await this.handler(slot.delivery, { signal: slot.lost.signal });
      this.end(slot, "ack", {});
    } catch (error) {
      const reason = error instanceof Error ? error.message || (error instanceof Retry || error instanceof Bury ? "" : error.name) : String(error);
      if (error instanceof Bury) this.end(slot, "nack", { bury: true, reason });
      else if (error instanceof Retry) this.end(slot, "nack", { reason, ...durationField("delay", error.after) });
      else {
        if (!slot.lost.signal.aborted) this.warn(`handler of ${slot.delivery.id} failed`, error);
        this.end(slot, "nack", { reason });
      }
    }
  }

  private end(slot: Slot, verb: Decision["verb"], fields: Record<string, unknown>): void {
    if (slot.decision) return;
    if (slot.lost.signal.aborted) this.release(slot);
    else this.decide(slot, verb, fields);
  }

  private release(slot: Slot): void {
    this.slots.delete(slot.delivery.receipt);
    this.bell.ring();
  }

  // Settle

  private decide(slot: Slot, verb: Decision["verb"], fields: Record<string, unknown>): void {
    const { reason, ...rest } = fields;
    slot.decision = { verb, fields: typeof reason === "string" && reason ? { ...rest, reason: reason.slice(0, REASON) } : rest };
    slot.decidedAt = performance.now();
    this.bell.ring();
  }

  private async settleLoop(): Promise<void> {
    while (!this.isOver) {
      const batch = this.gathered();
      if (!batch.length) {
        const times = [...this.slots.values()].filter((s) => s.decision).map((s) => Math.max(s.decidedAt + GATHER_MS, s.notBefore));
        await this.bell.wait(Math.min(...times) - performance.now());
        continue;
      }
      const verb = batch[0]?.decision?.verb ?? "ack";
      const receipts = batch.map((s) => (verb === "ack" ? s.delivery.receipt : { receipt: s.delivery.receipt, ...s.decision?.fields }));
      let verdicts: Verdict[];
      try {
        verdicts = await this.verdicts(verb, { receipts });
      } catch (error) {
        this.warn(`${verb} of ${batch.length} deliveries failed`, error);
        verdicts = batch.map(() => ({ status: "failed" }));
      }
      batch.forEach((slot, n) => this.settled(slot, verb, verdicts[n] ?? { status: "failed" }));
    }
  }

  /** The decisions to send now: one verb, once enough are gathered, or nothing more can be waited for. */
  private gathered(): Slot[] {
    const now = performance.now();
    const all = [...this.slots.values()];
    const ready = all.filter((slot) => slot.decision && slot.notBefore <= now);
    const isComplete = ready.length >= GATHERED || all.every((slot) => slot.decision);
    if (!ready.length || (!isComplete && Math.min(...ready.map((slot) => slot.decidedAt)) + GATHER_MS > now)) return [];
    return ready.filter((slot) => slot.decision?.verb === ready[0]?.decision?.verb).slice(0, GATHERED);
  }

  private async verdicts(verb: string, body: unknown): Promise<Verdict[]> {
    const options = { timeoutMs: Math.max(1000, this.visibleMs / 3), retryForMs: 0 };
    const answer = await this.client.transport.call<{ results: Verdict[] }>("POST", `${this.path}/${verb}`, body, options);
    return answer.results;
  }

  private settled(slot: Slot, verb: Decision["verb"], { status, reason }: Verdict): void {
    const { delivery, decision } = slot;
    if (SUCCESS.has(status)) {
      // The nack of the last attempt is answered with "buried".
      const isBuried = status === "buried" || decision?.fields["bury"] === true;
      this.event(verb === "ack" ? "acked" : isBuried ? "buried" : "nacked", delivery);
    } else if (status === "unreachable" || status === "failed") {
      this.event("settleFailures", delivery);
      if (performance.now() < slot.deadline) {
        slot.notBefore = performance.now() + backoff(slot.tries++);
        return;
      }
      this.warn(`${verb} of ${delivery.id} was not answered before the deadline: it may be delivered again`);
    } else {
      this.event("stale", delivery);
      this.warn(`${verb} of ${delivery.id} came too late: ${reason ?? status}`);
    }
    this.event("settled", delivery);
    this.release(slot);
  }

  // Extend

  private async extendLoop(): Promise<void> {
    while (!this.isOver) {
      const now = performance.now();
      const running = [...this.slots.values()].filter((slot) => !slot.decision && !slot.lost.signal.aborted);
      for (const slot of running) if (now >= slot.deadline) this.lose(slot);
      const due = running.filter((slot) => slot.extendAt <= now && now < Math.min(slot.deadline, slot.extendUntil));
      if (due.length) {
        for (let start = 0; start < due.length; start += 1000) await this.extend(due.slice(start, start + 1000), this.visibility);
      } else {
        const times = running.filter((slot) => now < slot.deadline)
          .map((slot) => (now < slot.extendAt && slot.extendAt < slot.extendUntil ? slot.extendAt : slot.deadline));
        await this.bell.wait(Math.min(...times) - now);
      }
    }
  }

  /** Extends deliveries in one call. Resolves to whether all of them still belong to this worker. */
  private async extend(slots: Slot[], visibility: Duration): Promise<boolean> {
    const asked = performance.now();
    const body = { receipts: slots.map((slot) => slot.delivery.receipt), ...durationField("visibility_timeout", visibility) };
    let verdicts: Verdict[] = [];
    try {
      verdicts = await this.verdicts("extend", body);
    } catch (error) {
      this.warn(`extend of ${slots.length} deliveries failed`, error);
    }
    const visible = milliseconds(visibility);
    slots.forEach((slot, n) => {
      const status = verdicts[n]?.status ?? "unreachable";
      if (SUCCESS.has(status)) {
        [slot.deadline, slot.extendAt] = [asked + visible, asked + visible / 3];
        this.event("extended", slot.delivery);
      } else if (status === "unreachable") {
        slot.extendAt = performance.now() + Math.min(1000, this.visibleMs / 10);
      } else if (!slot.decision) {
        this.lose(slot);
      }
    });
    this.bell.ring();
    return !slots.some((slot) => slot.lost.signal.aborted);
  }

  private lose(slot: Slot): void {
    if (slot.lost.signal.aborted) return;
    this.warn(`delivery of ${slot.delivery.id} is lost: another consumer may have it`);
    this.event("lost", slot.delivery);
    slot.lost.abort(new Error("the delivery is lost"));
  }
}
