/** The worker: reserves messages that are due, runs a handler for each, and settles it. */

import type { Client } from "./client.js";
import { Bury, Delivery, reasonOf, Retry } from "./delivery.js";
import { DwellError } from "./errors.js";
import { backoff, Interrupt, Interrupted, REPEATED, type Transport } from "./http.js";
import { onAbort } from "./signals.js";
import { atLeast, durationField, given, milliseconds, part, type Duration } from "./values.js";

/** Decisions of one request. */
const GATHERED = 100;
/** Deliveries of one request. */
const RECEIPTS = 1000;
const SUCCESS = new Set(["acked", "nacked", "buried", "released", "extended", "pending"]);
/** Refusals that a new token, scope or topic ends. */
const PATIENT = new Set([...REPEATED, 0, 401, 403, 404, 500]);

/** Handles a message. `signal` is aborted once another consumer may have it, and when a worker that stops no longer waits. */
export type Handler = (delivery: Delivery, context: { signal: AbortSignal }) => unknown;

/** Counters since the start, and the state now. `lastPoll` is in milliseconds since 1970, and `lateness` is that of the last delivery. */
export interface Stats {
  delivered: number;
  acked: number;
  nacked: number;
  buried: number;
  /** Given back unhandled, when the worker stopped. */
  released: number;
  extended: number;
  stale: number;
  lost: number;
  pollFailures: number;
  settleFailures: number;
  inFlight: number;
  lateness: number;
  lastPoll: number;
}

export type WorkerEvent = Exclude<keyof Stats, "inFlight" | "lateness" | "lastPoll"> | "settled";

export interface WorkerOptions {
  /** Default `default`. */
  group?: string;
  /** Handlers that run at the same time. Default 8. */
  concurrency?: number;
  /** How long the broker waits for an extension or a settlement. Default: the visibility timeout of the topic. */
  visibility?: Duration;
  /** For how long the deadline of a delivery is extended. Default 1 h. */
  maxRuntime?: Duration;
  /** How long `stop` waits for handlers. Default 25 s. */
  drain?: Duration;
  /** Length of a poll, up to 60 s. Default 30 s. */
  wait?: Duration;
  /** Whether the broker gets the class and the stack of an error, beside its message. Default true. */
  errorDetails?: boolean;
  /** Called with each event, for metrics. */
  onEvent?: (event: WorkerEvent, delivery?: Delivery) => void;
  /** Called with each failure, for the log. Default: `console.warn`. */
  onWarning?: (text: string, error?: unknown) => void;
}

interface Decision {
  verb: "ack" | "nack" | "release";
  fields: Record<string, unknown>;
}

interface Slot {
  delivery: Delivery;
  lost: AbortController;
  /** The visibility timeout that an extension gives it. */
  visibleMs: number;
  deadline: number;
  extendAt: number;
  extendUntil: number;
  decision?: Decision;
  decidedAt: number;
  notBefore: number;
  tries: number;
  /** Its settlement has a separate request, since the broker refused it together with others. */
  isAlone: boolean;
  /** Its extension has a separate request, since the broker refused it together with others. */
  isExtendedAlone: boolean;
}

interface Verdict {
  status: string;
  reason?: string;
}

interface Reserved {
  deliveries: unknown[];
  /** The one that the broker used. */
  visibility_timeout_ms: number;
}

/** The status of each receipt of a request that failed as a whole. */
function statusOf(error: unknown): "unreachable" | "unknown" | "refused" {
  if (!(error instanceof DwellError)) return "unreachable";
  // The topic, the group or the only receipt does not exist: one that is unknown among others has a verdict. A 404 without a type is not
  // of a broker.
  if (error.status === 404 && error.type !== "") return "unknown";
  return PATIENT.has(error.status) ? "unreachable" : "refused";
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
  private readonly waitMs: number;
  private readonly drainMs: number;
  private readonly maxRuntimeMs: number;
  private readonly visibility: { visibility_timeout_ms?: number };
  /** The visibility timeout of the latest deliveries. */
  private visibleMs = 30_000;
  private readonly counters: Stats = {
    delivered: 0, acked: 0, nacked: 0, buried: 0, released: 0, extended: 0, stale: 0, lost: 0, pollFailures: 0, settleFailures: 0,
    inFlight: 0, lateness: 0, lastPoll: 0,
  };
  private readonly slots = new Map<string, Slot>();
  private readonly bell = new Bell();
  private readonly interrupt = new Interrupt();
  private drainUntil = Infinity;
  private isStopping = false;
  private isOver = false;
  private failure: unknown;
  private running: Promise<void> | undefined;

  constructor(
    private readonly client: Client, topic: string, private readonly handler: Handler, private readonly options: WorkerOptions = {},
  ) {
    const { group = "default", concurrency = 8, visibility } = options;
    if (typeof handler !== "function") throw new TypeError("handler: expected a function, before the options");
    this.path = `/v1/topics/${part(given("topic", topic))}/groups/${part(given("group", group))}`;
    this.concurrency = atLeast("concurrency", 1, concurrency);
    this.visibility = visibility === undefined ? {} : { visibility_timeout_ms: milliseconds(visibility, "visibility") };
    this.waitMs = milliseconds(options.wait ?? "30s", "wait");
    this.drainMs = milliseconds(options.drain ?? "25s", "drain");
    this.maxRuntimeMs = milliseconds(options.maxRuntime ?? "1h", "maxRuntime");
  }

  /** A copy of the counters, for health checks and metrics. */
  get stats(): Stats {
    return { ...this.counters, inFlight: this.slots.size };
  }

  /** Works until `stop`, or until the signal is aborted, which stops it in the same way. Rejects with an error that cannot pass. */
  run({ signal }: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    const stop = (): void => void this.stop();
    if (signal?.aborted) stop();
    const forget = onAbort(signal, stop);
    this.running ??= this.work();
    return this.running.finally(forget);
  }

  /**
   * Reserves nothing more, gives deliveries back that no handler has begun, and waits up to `drain` for handlers. Resolves when `run`
   * does. A second call may shorten the wait.
   */
  async stop(options: { drain?: Duration } = {}): Promise<void> {
    const drain = options.drain === undefined ? this.drainMs : milliseconds(options.drain, "drain");
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
      const free = Math.min(this.concurrency - running, 2 * this.concurrency - this.slots.size, RECEIPTS);
      if (free <= 0) {
        await this.bell.wait();
        continue;
      }
      const body = { max: free, wait_ms: this.waitMs, ...this.visibility };
      try {
        const options = { timeoutMs: this.waitMs + 10_000, retryForMs: 0, interrupt: this.interrupt };
        const answer = await transport.call<Reserved>("POST", `${this.path}/reserve`, body, options);
        failures = 0;
        this.counters.lastPoll = Date.now();
        this.visibleMs = answer.visibility_timeout_ms;
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
        await this.bell.until(() => this.isStopping, Math.max(error.retryAfter, backoff(failures++, 100)));
      }
    }
  }

  private begin(answer: unknown, now: number): void {
    const lost = new AbortController();
    const extend = async (visibility: Duration): Promise<boolean> => {
      const refusal = await this.extend([slot], milliseconds(visibility, "visibility"));
      if (refusal && !lost.signal.aborted) throw refusal;
      return !lost.signal.aborted;
    };
    const delivery = new Delivery(answer, lost.signal, extend);
    const { visibleMs } = this;
    const slot: Slot = {
      delivery, lost, visibleMs, deadline: now + visibleMs, extendAt: now + visibleMs / 3, extendUntil: now + this.maxRuntimeMs,
      decidedAt: 0, notBefore: 0, tries: 0, isAlone: false, isExtendedAlone: false,
    };
    this.slots.set(delivery.receipt, slot);
    this.counters.lateness = delivery.lateness;
    this.event("delivered", delivery);
    if (this.isStopping) this.decide(slot, "release", {});
    else void this.handle(slot);
  }

  // Handle

  private async handle(slot: Slot): Promise<void> {
    // Not as a method: the worker is no business of a handler.
    const { handler } = this;
    try {
      await handler(slot.delivery, { signal: slot.lost.signal });
      this.end(slot, "ack", {});
    } catch (error) {
      const reason = reasonOf(error, this.options.errorDetails ?? true);
      const fields = reason === undefined ? {} : { reason };
      if (error instanceof Bury) this.end(slot, "nack", { bury: true, ...fields });
      else if (error instanceof Retry) this.end(slot, "nack", { ...fields, ...this.fieldsOf(error) });
      else {
        if (!slot.lost.signal.aborted) this.warn(`handler of ${slot.delivery.id} failed`, error);
        this.end(slot, "nack", fields);
      }
    }
  }

  private fieldsOf(retry: Retry): Record<string, unknown> {
    const pause = retry.pauseKey ? { pause_key: true } : {};
    try {
      return { ...durationField("delay", retry.after, "after"), ...pause };
    } catch (error) {
      // The backoff of the topic decides.
      this.warn("a handler threw a Retry with a wrong delay", error);
      return pause;
    }
  }

  private end(slot: Slot, verb: Decision["verb"], fields: Record<string, unknown>): void {
    if (slot.decision) return;
    if (slot.lost.signal.aborted) this.forget(slot);
    else this.decide(slot, verb, fields);
  }

  private forget(slot: Slot): void {
    this.slots.delete(slot.delivery.receipt);
    this.bell.ring();
  }

  // Settle

  private decide(slot: Slot, verb: Decision["verb"], fields: Record<string, unknown>): void {
    slot.decision = { verb, fields };
    slot.decidedAt = performance.now();
    this.bell.ring();
  }

  /** Sends decisions until the worker is over. One request is under way at a time, and decisions gather meanwhile. */
  private async settleLoop(): Promise<void> {
    while (!this.isOver) {
      const batch = this.gathered();
      if (!batch.length) {
        const times = [...this.slots.values()].filter((slot) => slot.decision).map((slot) => slot.notBefore);
        await this.bell.wait(Math.min(...times) - performance.now());
        continue;
      }
      const verb = batch[0]?.decision?.verb ?? "ack";
      const receipts = batch.map((s) => (verb !== "nack" ? s.delivery.receipt : { receipt: s.delivery.receipt, ...s.decision?.fields }));
      let verdicts: Verdict[];
      try {
        verdicts = await this.verdicts(verb, { receipts });
      } catch (error) {
        this.warn(`${verb} of ${batch.length} deliveries failed`, error);
        const status = statusOf(error);
        if (status === "refused" && batch.length > 1) {
          for (const slot of batch) slot.isAlone = true;
          continue;
        }
        verdicts = batch.map(() => ({ status }));
      }
      batch.forEach((slot, n) => this.settled(slot, verb, verdicts[n] ?? { status: "unreachable" }));
    }
  }

  /** The decisions to send now: one verb, those that were made first. */
  private gathered(): Slot[] {
    const now = performance.now();
    const ready = [...this.slots.values()].filter((slot) => slot.decision && slot.notBefore <= now);
    ready.sort((a, b) => a.decidedAt - b.decidedAt);
    if (ready[0]?.isAlone) return ready.slice(0, 1);
    return ready.filter((slot) => slot.decision?.verb === ready[0]?.decision?.verb && !slot.isAlone).slice(0, GATHERED);
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
      this.event(verb === "ack" ? "acked" : verb === "release" ? "released" : isBuried ? "buried" : "nacked", delivery);
    } else if (status === "unreachable" || status === "refused") {
      this.event("settleFailures", delivery);
      if (status !== "refused" && performance.now() < slot.deadline) {
        slot.notBefore = performance.now() + backoff(slot.tries++);
        return;
      }
      const why = status === "refused" ? "refused" : "not answered before the deadline";
      this.warn(`${verb} of ${delivery.id} was ${why}: it may be delivered again`);
    } else {
      this.event("stale", delivery);
      this.warn(`${verb} of ${delivery.id} came too late: ${reason ?? status}`);
    }
    this.event("settled", delivery);
    this.forget(slot);
  }

  // Extend

  private async extendLoop(): Promise<void> {
    while (!this.isOver) {
      const now = performance.now();
      const running = [...this.slots.values()].filter((slot) => !slot.decision && !slot.lost.signal.aborted);
      for (const slot of running) if (now >= slot.deadline) this.lose(slot);
      const due = running.filter((slot) => slot.extendAt <= now && now < Math.min(slot.deadline, slot.extendUntil));
      if (due.length) {
        const first = due[0] as Slot;
        const together = due.filter((slot) => slot.visibleMs === first.visibleMs && !slot.isExtendedAlone).slice(0, RECEIPTS);
        const slots = first.isExtendedAlone ? [first] : together;
        if (await this.extend(slots, first.visibleMs)) this.endExtending(slots);
      } else {
        const times = running.filter((slot) => now < slot.deadline)
          .map((slot) => (now < slot.extendAt && slot.extendAt < slot.extendUntil ? slot.extendAt : slot.deadline));
        await this.bell.wait(Math.min(...times) - now);
      }
    }
  }

  /** Extends deliveries in one call. Resolves to the error if the broker would refuse the same request again. */
  private async extend(slots: Slot[], visibleMs: number): Promise<unknown> {
    const asked = performance.now();
    const body = { receipts: slots.map((slot) => slot.delivery.receipt), visibility_timeout_ms: visibleMs };
    let verdicts: Verdict[] = [];
    let others: ReturnType<typeof statusOf> = "unreachable";
    let refusal: unknown;
    try {
      verdicts = await this.verdicts("extend", body);
    } catch (error) {
      this.warn(`extend of ${slots.length} deliveries failed`, error);
      others = statusOf(error);
      if (others === "refused") refusal = error;
    }
    slots.forEach((slot, n) => {
      const status = verdicts[n]?.status ?? others;
      // A handler may have asked for a wrong time, so the worker keeps its own.
      if (status === "refused") return;
      if (SUCCESS.has(status)) {
        [slot.deadline, slot.extendAt, slot.isExtendedAlone] = [asked + visibleMs, asked + visibleMs / 3, false];
        this.event("extended", slot.delivery);
      } else if (status === "unreachable") {
        slot.extendAt = performance.now() + Math.min(1000, slot.visibleMs / 10);
      } else if (!slot.decision) {
        this.lose(slot);
      }
    });
    this.bell.ring();
    return refusal;
  }

  /** Extends a delivery no more. If the broker refused several together, one may be wrong: each has another request. */
  private endExtending(slots: Slot[]): void {
    for (const slot of slots) {
      if (slots.length > 1) {
        slot.isExtendedAlone = true;
        continue;
      }
      slot.extendUntil = -Infinity;
      this.warn(`extend of ${slot.delivery.id} was refused: the delivery is lost at its deadline`);
    }
  }

  private lose(slot: Slot): void {
    if (slot.lost.signal.aborted) return;
    this.warn(`delivery of ${slot.delivery.id} is lost: another consumer may have it`);
    this.event("lost", slot.delivery);
    slot.lost.abort(new Error("the delivery is lost"));
  }
}
