/** The calls about topics, groups, dead letters, cron jobs and brokers. */

import { sleep, type RequestOptions, type Transport } from "./http.js";
import { List, type ListOptions } from "./list.js";
import type { CallOptions, DeadLetter } from "./messages.js";
import type * as types from "./topics.js";
import { atLeast, fromAnswer, given, part, query, toRequest, withPayload as contents, type Duration } from "./values.js";

/** Ids in one request. */
const IDS = 1000;
/** Between two requests of a move that waits for consumers. */
const MOVE_PAUSE_MS = 1000;

/** Options of a call that makes several requests. */
export interface ProgressOptions<P> extends CallOptions {
  /** Called after each request but the last, with what is done so far. */
  onProgress?: (soFar: P) => void;
}

type Answer = Record<string, unknown>;

/** The calls about topics, groups, dead letters, cron jobs and brokers. Names of topics and groups come first, and options last. */
export class Administration {
  /** @internal */
  constructor(readonly transport: Transport) {}

  // Topics

  /** Creates a topic, or changes the given settings of it, such as `{ maxAttempts: 5 }`. Repeating it changes nothing. */
  async createTopic(topic: string, settings: types.TopicSettings = {}, options?: CallOptions): Promise<types.Topic> {
    return fromAnswer(await this.ask("PUT", topicPath(topic), toRequest(settings), options));
  }

  /** A topic with its settings and counts. */
  async topic(topic: string, options?: CallOptions): Promise<types.TopicDescription> {
    return fromAnswer(await this.ask("GET", topicPath(topic), undefined, options));
  }

  /** The names of all topics, sorted. */
  topics(options: Omit<ListOptions, "pageSize"> = {}): List<string> {
    return this.pagesOf("/v1/topics", "topics", options, (name) => name as string);
  }

  /** Deletes a topic with all its messages. */
  async deleteTopic(topic: string, options?: CallOptions): Promise<void> {
    await this.ask("DELETE", topicPath(topic), undefined, options);
  }

  /**
   * Moves all messages of a topic to another one, such as one with another number of partitions. Resolves once nothing is left, so it waits
   * for consumers that have messages.
   */
  async move(topic: string, to: { to: string; partitions?: number }, options: ProgressOptions<types.Moved> = {}): Promise<types.Moved> {
    const path = `${topicPath(topic)}/move`;
    given("to", to.to);
    const sum = { moved: 0, dead: 0, duplicates: 0 };
    for (;;) {
      const answer = fromAnswer<types.Moved>(await this.ask("POST", path, toRequest(to), options));
      for (const count of ["moved", "dead", "duplicates"] as const) sum[count] += answer[count];
      const soFar = { ...answer, ...sum };
      if (answer.done) return soFar;
      options.onProgress?.(soFar);
      if (!answer.moved && !answer.dead) await sleep(MOVE_PAUSE_MS, options.signal);
    }
  }

  // Groups

  /** The groups of a topic. */
  async groups(topic: string, options?: CallOptions): Promise<types.Group[]> {
    return fromAnswer<{ groups: types.Group[] }>(await this.ask("GET", `${topicPath(topic)}/groups`, undefined, options)).groups;
  }

  /** A group with its counts and members. */
  async group(topic: string, group: string, options?: CallOptions): Promise<types.GroupDescription> {
    return fromAnswer(await this.ask("GET", groupPath(topic, group), undefined, options));
  }

  /** Creates a group, which gets every message that is pushed from then on, or changes the given limits of it. */
  async createGroup(topic: string, group: string, settings: types.GroupSettings = {}, options?: CallOptions): Promise<types.Group> {
    return fromAnswer(await this.ask("PUT", groupPath(topic, group), toRequest(settings), options));
  }

  /** Deletes a group with all its messages. */
  async deleteGroup(topic: string, group: string, options?: CallOptions): Promise<void> {
    await this.ask("DELETE", groupPath(topic, group), undefined, options);
  }

  /** Delivers nothing of a group until it is resumed, or the given time has passed. */
  async pause(topic: string, group: string, options: types.PauseOptions & CallOptions = {}): Promise<types.Group> {
    const { signal, ...pause } = options;
    if (pause.for !== undefined && pause.until !== undefined) throw new TypeError("give for or until, not both");
    return fromAnswer(await this.ask("POST", `${groupPath(topic, group)}/pause`, toRequest(pause), { signal }));
  }

  /** Delivers messages of a group again. */
  async resume(topic: string, group: string, options?: CallOptions): Promise<types.Group> {
    return fromAnswer(await this.ask("POST", `${groupPath(topic, group)}/resume`, undefined, options));
  }

  /** Delivers nothing of a key of a fair group until the given time has passed, or it is resumed. */
  async pauseKey(topic: string, group: string, key: string, options: types.KeyPauseOptions & CallOptions): Promise<types.KeyPause> {
    const { signal, ...pause } = options;
    if (pause.for === undefined && pause.until === undefined) throw new TypeError("the pause of a key has an end: give for or until");
    if (pause.for !== undefined && pause.until !== undefined) throw new TypeError("give for or until, not both");
    return fromAnswer(await this.ask("POST", `${keyPath(topic, group, key)}/pause`, toRequest(pause), { signal }));
  }

  /** Delivers messages of a key again. */
  async resumeKey(topic: string, group: string, key: string, options?: CallOptions): Promise<types.KeyPause> {
    return fromAnswer(await this.ask("POST", `${keyPath(topic, group, key)}/resume`, undefined, options));
  }

  /** Deletes all messages of a group: `purge("orders", "default", { all: true })`. */
  async purge(topic: string, group: string, options: types.PurgeOptions & CallOptions): Promise<types.Purged> {
    const { signal, ...purge } = options;
    if (purge.all !== true) throw new TypeError("a purge deletes all messages of the group: it needs { all: true }");
    return fromAnswer(await this.ask("POST", `${groupPath(topic, group)}/purge`, toRequest(purge), { signal, isOnce: !purge.dryRun }));
  }

  /** Checks that what is stored of a group is consistent. Changes nothing. */
  async verify(topic: string, group: string, options: ProgressOptions<types.Findings> = {}): Promise<types.Findings> {
    return this.look("GET", topic, group, options);
  }

  /** As `verify`, and repairs what it finds, while producers and consumers work. */
  async repair(topic: string, group: string, options: ProgressOptions<types.Findings> = {}): Promise<types.Findings> {
    return this.look("POST", topic, group, options);
  }

  private async look(
    method: string, topic: string, group: string, options: ProgressOptions<types.Findings>,
  ): Promise<types.Findings> {
    const path = `${groupPath(topic, group)}/verify`;
    const sum: types.Findings = { seen: 0, findings: [] };
    let cursor: string | undefined;
    for (;;) {
      const answer = await this.ask(method, path + query({ cursor }), undefined, options);
      const page = fromAnswer<types.Findings & { nextCursor?: string }>(answer);
      sum.seen += page.seen;
      sum.findings.push(...page.findings);
      cursor = page.nextCursor;
      if (cursor === undefined) return sum;
      options.onProgress?.(sum);
    }
  }

  /** Counts the messages that become due, in `spans` (60) times `step` (1 min). */
  async forecast(
    topic: string, group: string, options: { step?: Duration; spans?: number } & CallOptions = {},
  ): Promise<types.Forecast> {
    const { step, spans, signal } = options;
    return fromAnswer(await this.ask("GET", `${groupPath(topic, group)}/forecast${query({ step, spans })}`, undefined, { signal }));
  }

  // Many messages by their due times

  /** Counts the messages that are due in a window: those that `bulk` changes. */
  async bulkCount(topic: string, group: string, { from, to }: types.Window, options?: CallOptions): Promise<number> {
    const answer = await this.ask<{ waiting: number }>("GET", `${groupPath(topic, group)}/bulk${query({ from, to })}`, undefined, options);
    return answer.waiting;
  }

  /** Changes all messages that are due in a window. Resolves once all are changed. */
  async bulk(
    topic: string, group: string, change: types.BulkChange, options: ProgressOptions<types.BulkChanged> = {},
  ): Promise<types.BulkChanged> {
    const path = `${groupPath(topic, group)}/bulk`;
    // A second request would move messages that are still in the window again.
    const isOnce = change.action === "postpone" || change.action === "advance";
    const sum = { changed: 0, passedOver: 0 };
    let cursor: string | undefined;
    for (;;) {
      const answer = await this.ask("POST", path, toRequest({ ...change, cursor }), { signal: options.signal, isOnce });
      const page = fromAnswer<types.BulkChanged & { nextCursor?: string }>(answer);
      sum.changed += page.changed;
      sum.passedOver += page.passedOver;
      cursor = page.nextCursor;
      if (cursor === undefined) return sum;
      options.onProgress?.({ ...sum });
    }
  }

  // Dead letters

  /** The dead letters of a group, partition by partition unless `order` says otherwise. */
  deadLetters(
    topic: string, group: string, options: types.DeadLetterFilter & { order?: "partition" | "oldest" | "newest" } & ListOptions = {},
  ): List<DeadLetter> {
    return this.pagesOf(`${groupPath(topic, group)}/dead-letters`, "dead_letters", options, contents<DeadLetter>);
  }

  /** Makes dead letters ready again: `redrive("orders", "default", { all: true })`. Their attempts start again at 1. */
  async redrive(
    topic: string, group: string, which: types.DeadLetterSelection, options: ProgressOptions<types.Redriven> = {},
  ): Promise<types.Redriven> {
    return this.sweep(topic, group, "redrive", "redriven", which, options);
  }

  /** Deletes dead letters for good. */
  async purgeDeadLetters(
    topic: string, group: string, which: types.DeadLetterSelection, options: ProgressOptions<types.Purged> = {},
  ): Promise<types.Purged> {
    return this.sweep(topic, group, "purge", "purged", which, options);
  }

  // Cron jobs

  /** Creates a cron job, or changes it: `putCron("reports", "nightly", { cron: "0 3 * * *", payload: "report" })`. */
  async putCron(topic: string, name: string, cron: types.NewCron, options?: CallOptions): Promise<types.Cron> {
    return contents(await this.ask("PUT", cronPath(topic, name), toRequest(cron), options));
  }

  /** A cron job with the time of its next occurrence. */
  async cron(topic: string, name: string, options?: CallOptions): Promise<types.Cron> {
    return contents(await this.ask("GET", cronPath(topic, name), undefined, options));
  }

  /** The cron jobs of a topic, partition by partition. */
  crons(topic: string, options: Omit<ListOptions, "pageSize"> = {}): List<types.Cron> {
    return this.pagesOf(`${topicPath(topic)}/cron`, "cron_jobs", options, contents<types.Cron>);
  }

  /** Pushes nothing until the cron job is resumed. */
  async pauseCron(topic: string, name: string, options?: CallOptions): Promise<types.Cron> {
    return contents(await this.ask("POST", `${cronPath(topic, name)}/pause`, undefined, options));
  }

  /** Continues with the next occurrence. */
  async resumeCron(topic: string, name: string, options?: CallOptions): Promise<types.Cron> {
    return contents(await this.ask("POST", `${cronPath(topic, name)}/resume`, undefined, options));
  }

  /** Deletes a cron job. Messages that it has pushed stay. */
  async deleteCron(topic: string, name: string, options?: CallOptions): Promise<void> {
    await this.ask("DELETE", cronPath(topic, name), undefined, options);
  }

  // Brokers

  /** The brokers that share the store. */
  async brokers(options?: CallOptions): Promise<types.Broker[]> {
    return fromAnswer<{ brokers: types.Broker[] }>(await this.ask("GET", "/v1/brokers", undefined, options)).brokers;
  }

  /** What needs attention, the most urgent first. */
  async attention(options?: CallOptions): Promise<types.Attention> {
    return fromAnswer(await this.ask("GET", "/v1/attention", undefined, options));
  }

  // How calls are made

  /** @internal */
  protected ask<T = Answer>(method: string, path: string, body?: unknown, options: RequestOptions = {}): Promise<T> {
    const { signal, isOnce = false, headers = {} } = options;
    return this.transport.call<T>(method, path, body, { signal, isOnce, headers });
  }

  /** @internal */
  protected pagesOf<T>(path: string, field: string, options: ListOptions, item: (answer: unknown) => T): List<T> {
    const { signal, pageSize, cursor: first, ...filter } = options;
    if (pageSize !== undefined) atLeast("pageSize", 1, pageSize);
    const fields = toRequest({ ...filter, limit: pageSize });
    return new List(async (cursor) => {
      const answer = await this.ask("GET", path + query({ ...fields, cursor }), undefined, { signal });
      const items = (answer[field] as unknown[]).map(item);
      const next = answer["next_cursor"] as string | undefined;
      return next === undefined ? { items } : { items, nextCursor: next };
    }, first);
  }

  /** Changes dead letters until none is left that matches. */
  private async sweep<R>(
    topic: string, group: string, verb: string, done: string, which: types.DeadLetterSelection, options: ProgressOptions<R>,
  ): Promise<R> {
    const path = `${groupPath(topic, group)}/dead-letters/${verb}`;
    const isDryRun = "dryRun" in which && which.dryRun === true;
    let [count, matching] = [0, 0];
    const sum = (): R => ({ [done]: count, ...(isDryRun ? { matching } : {}) }) as R;
    const add = async (selection: object): Promise<string | undefined> => {
      const answer = fromAnswer<Answer>(await this.ask("POST", path, toRequest(selection), options));
      count += Number(answer[done]);
      matching += Number(answer["matching"] ?? 0);
      return answer["nextCursor"] as string | undefined;
    };
    if ("ids" in which) {
      const ids = which.ids.map((id) => given("id", id));
      for (let start = 0; start < ids.length; start += IDS) await add({ ids: ids.slice(start, start + IDS) });
      return sum();
    }
    if (!(["all", "reason", "olderThan", "youngerThan", "text"] as const).some((field) => which[field] !== undefined)) {
      throw new TypeError("say which dead letters: { ids }, a filter, or { all: true }");
    }
    const limit = which.limit === undefined ? Infinity : atLeast("limit", 1, which.limit);
    let cursor: string | undefined;
    for (;;) {
      const left = limit - count - matching;
      cursor = await add({ ...which, cursor, limit: left === Infinity ? undefined : left });
      if (cursor === undefined || count + matching >= limit) return sum();
      options.onProgress?.(sum());
    }
  }
}

function topicPath(topic: string): string {
  return `/v1/topics/${part(given("topic", topic))}`;
}

function groupPath(topic: string, group: string): string {
  return `${topicPath(topic)}/groups/${part(given("group", group))}`;
}

function keyPath(topic: string, group: string, key: string): string {
  if (key === "." || key === "..") throw new TypeError(`the key "${key}" is a step of a path: pause the group`);
  return `${groupPath(topic, group)}/keys/${part(given("key", key))}`;
}

function cronPath(topic: string, name: string): string {
  return `${topicPath(topic)}/cron/${part(given("name", name))}`;
}
