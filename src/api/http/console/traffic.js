// @ts-check
// The traffic of this broker in the last 30 minutes, as the broker keeps it.

import { call, query } from "./api.js";

/**
 * @typedef {object} Counts
 * @property {number} pushed
 * @property {number} delivered
 * @property {number} [lateness_p50_ms]
 * @property {number} [lateness_p99_ms]
 * @property {number} [backlog]
 */

/** @typedef {Counts & {at: string, topics: (Counts & {topic: string})[]}} Sample */

/** How far samples reach back. */
const REACH = 180;

/** What a topic is in a sample that does not name it. @type {Counts} */
const QUIET = { pushed: 0, delivered: 0, backlog: 0 };

class Traffic {
  constructor() {
    /** @type {Sample[]} */
    this.samples = [];
    this.stepMs = 10_000;
    this.member = "";
    /** The last sample before somebody looked. @type {string | undefined} */
    this.unwatched = undefined;
  }

  /**
   * Reads what is new since the last time.
   * @param {import("./api.js").Request} [request]
   */
  async read(request) {
    const ask = (/** @type {string | undefined} */ after) => call("GET", `/v1/traffic${query({ after })}`, request);
    let found = await ask(this.samples.at(-1)?.at);
    if (found.member !== this.member) {
      // A broker that was started anew, or another one.
      if (this.samples.length) found = await ask(undefined);
      this.samples = [];
    }
    if (found.member !== this.member) this.unwatched = found.samples.at(-1)?.at;
    this.member = found.member;
    this.stepMs = found.step_ms;
    this.samples = [...this.samples, ...found.samples].slice(-REACH);
  }

  /** How long the samples that may be there are together, in milliseconds. */
  get reach() {
    return REACH * this.stepMs;
  }

  /**
   * What each sample has, of all topics or of one.
   * @param {string} [topic]
   * @returns {(Counts & {at: string})[]}
   */
  of(topic) {
    if (topic === undefined) return this.samples;
    return this.samples.map(({ at, topics }) => ({ ...(topics.find((each) => each.topic === topic) ?? QUIET), at }));
  }

  /**
   * Messages that are due, as of the last sample. While nobody looks, the broker does not count topics without traffic: a sample
   * from then may have an old number.
   */
  get backlog() {
    const last = this.samples.at(-1);
    return last?.at === this.unwatched ? undefined : last?.backlog;
  }

  /** The samples of the last minute. @param {string} [topic] */
  minute(topic) {
    return this.of(topic).slice(-Math.max(Math.round(60_000 / this.stepMs), 1));
  }

  /**
   * How many a second in the last minute; nothing before the first sample.
   * @param {"pushed" | "delivered"} what
   * @param {string} [topic]
   */
  rate(what, topic) {
    const last = this.minute(topic);
    if (last.length === 0) return undefined;
    return (last.reduce((sum, each) => sum + each[what], 0) / (last.length * this.stepMs)) * 1_000;
  }

  /** The greatest p99 of the last minute, in milliseconds. @param {string} [topic] */
  lateness(topic) {
    const late = this.minute(topic).flatMap((each) => each.lateness_p99_ms ?? []);
    return late.length ? Math.max(...late) : undefined;
  }
}

/** Kept while the console is open: what was read is not read again. */
export const traffic = new Traffic();
