/** Durations, times, names and ids, and how objects of this library are written in requests and read from answers. */

import { randomBytes } from "node:crypto";

/** Text such as `30s`, `1h30m` or `PT30M`, or a number of milliseconds. */
export type Duration = string | number;

/** A `Date`, a text as in RFC 3339, or milliseconds since 1970. */
export type Time = Date | string | number;

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const ISO = /^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/;

// A run of ids ends after so many, and after this time, so that a slow producer spreads its messages.
const RUN_IDS = 250;
const RUN_MS = 5;
const run = { begun: 0, prefix: "", used: RUN_IDS };

/**
 * A new ULID: sortable by time, unique. They count up for a while: those share all but the last three characters, so the broker keeps
 * messages that are pushed together in one partition.
 */
export function ulid(): string {
  const now = Date.now();
  if (run.used === RUN_IDS || now < run.begun || now >= run.begun + RUN_MS) {
    const random = Array.from(randomBytes(13), (byte) => ALPHABET.charAt(byte & 31)).join("");
    Object.assign(run, { begun: now, prefix: digits(now, 10) + random, used: 0 });
  }
  return run.prefix + digits(run.used++, 3);
}

/** A number in so many of the characters of a ULID. */
function digits(number: number, count: number): string {
  let text = "";
  for (let n = 0; n < count; n++, number = Math.floor(number / 32)) text = ALPHABET.charAt(number % 32) + text;
  return text;
}

/** A duration in whole milliseconds, rounded up. Throws `TypeError` or `RangeError` if it is none. */
export function milliseconds(duration: Duration, what = "duration"): number {
  checkDuration(duration, what);
  if (typeof duration === "number") return Math.ceil(duration);
  const iso = ISO.exec(duration);
  if (iso && /\d/.test(duration)) {
    const spans = [UNITS["w"], UNITS["d"], UNITS["h"], UNITS["m"], UNITS["s"]];
    return Math.ceil(spans.reduce<number>((sum, span, n) => sum + Number(iso[n + 1] ?? 0) * (span ?? 0), 0));
  }
  if (!/^(\d+(\.\d+)?(ms|[smhdw]) ?)+$/.test(duration)) {
    throw new TypeError(`${what}: "${duration}" is not a duration such as 30s, 1h30m, 250ms or PT30M`);
  }
  let sum = 0;
  for (const [, number, unit] of duration.matchAll(/(\d+(?:\.\d+)?)(ms|[smhdw])/g)) sum += Number(number) * (UNITS[unit ?? ""] ?? 0);
  return Math.ceil(sum);
}

/** Refuses what the broker would refuse: a duration that is negative, or has no unit. */
function checkDuration(duration: unknown, what: string): void {
  if (typeof duration === "number") {
    if (!Number.isFinite(duration)) throw new TypeError(`${what}: ${duration} is not a number of milliseconds`);
    if (duration < 0) throw new RangeError(`${what}: ${duration} is negative`);
  } else if (typeof duration !== "string") {
    throw new TypeError(`${what}: expected text such as "30s", or a number of milliseconds`);
  } else if (duration.trim().startsWith("-")) {
    throw new RangeError(`${what}: "${duration}" is negative`);
  } else if (!duration.trim() || !Number.isNaN(Number(duration))) {
    throw new TypeError(`${what}: "${duration}" has no unit; write "30s", or a number for milliseconds`);
  }
}

/** A text that has to be there: the name of a topic, group or cron job, an id, or a key. */
export function given(what: string, text: unknown): string {
  if (typeof text !== "string") throw new TypeError(`${what}: expected text`);
  if (!text) throw new TypeError(`${what} is empty`);
  return text;
}

/** A whole number that has to be at least `least`. */
export function atLeast(what: string, least: number, number: number): number {
  if (!Number.isInteger(number)) throw new TypeError(`${what}: ${number} is not a whole number`);
  if (number < least) throw new RangeError(`${what}: ${number} is less than ${least}`);
  return number;
}

/** A part of a path, or a value in a query, percent-encoded. */
export function part(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
}

/** The query of a path; empty without fields. */
export function query(fields: object): string {
  const text = Object.entries(toRequest(fields)).map(([name, value]) => `${name}=${part(String(value))}`).join("&");
  return text && "?" + text;
}

// Requests

const DURATIONS = new Set([
  "advance", "by", "deadMaxAge", "debounceMax", "dedupFor", "dedupWindow", "delay", "every", "for", "initial", "max", "olderThan", "spread", "step", "ttl",
  "visibilityTimeout", "youngerThan",
]);
/** Objects whose names are the user's, as they are called in requests and answers. */
const OF_THE_USER = new Set(["annotations", "attributes", "key_limits", "meta", "weights"]);

/** The fields of a request. Those that are `undefined` are left out. */
export function toRequest(fields: object): Record<string, unknown> {
  const request: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
    if (value === undefined) continue;
    const field = name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase());
    if (name === "payload") Object.assign(request, payloadField(value));
    else if (DURATIONS.has(name)) Object.assign(request, durationField(field, value as Duration, name));
    else if (name === "steps") Object.assign(request, stepsField(value as Duration[]));
    else if (value instanceof Date) request[field] = value.toISOString();
    else if (value instanceof Uint8Array) request[field] = base64(value);
    else if (field === "key_limits" && isObject(value)) request[field] = limitsOf(value);
    else if (isObject(value) && !OF_THE_USER.has(field)) request[field] = toRequest(value);
    else request[field] = value;
  }
  return request;
}

/** Limits by the user's names: only the fields of each limit are renamed. */
function limitsOf(limits: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(limits).map(([name, limit]) => [name, isObject(limit) ? toRequest(limit) : limit]));
}

/** The field of a request for a duration: text is passed on as it is. */
export function durationField(field: string, duration: Duration | undefined, what = field): Record<string, unknown> {
  if (duration === undefined) return {};
  checkDuration(duration, what);
  return typeof duration === "string" ? { [field]: duration } : { [`${field}_ms`]: Math.ceil(duration) };
}

function stepsField(steps: Duration[]): Record<string, unknown> {
  const isText = steps.every((step) => typeof step === "string");
  const inMilliseconds = steps.map((step) => milliseconds(step, "steps"));
  return isText ? { steps } : { steps_ms: inMilliseconds };
}

/** The field for a payload: bytes, text, or any other value as JSON. */
export function payloadField(payload: unknown): Record<string, unknown> {
  if (payload instanceof Uint8Array) return { payload_base64: base64(payload) };
  return typeof payload === "string" ? { payload } : { payload_json: payload ?? null };
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// Answers

const TIMES = new Set(["at", "deadline", "from", "now", "paused_until", "test_clock", "until"]);

/**
 * An answer in the terms of this library: names in camel case, times as `Date`, payloads as bytes, and durations as numbers of
 * milliseconds, whose names do without `_ms`.
 */
export function fromAnswer<T>(answer: unknown): T {
  if (Array.isArray(answer)) return answer.map((item) => fromAnswer<unknown>(item)) as T;
  if (!isObject(answer)) return answer as T;
  const result: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(answer)) {
    if (field === "payload" && typeof value === "string") result["payload"] = Buffer.from(value);
    else if (field === "payload_base64") result["payload"] = Buffer.from(String(value), "base64");
    else if (field === "attachment") result["attachment"] = Buffer.from(String(value), "base64");
    else result[camel(field)] = fieldOfAnswer(field, value);
  }
  return result as T;
}

function fieldOfAnswer(field: string, value: unknown): unknown {
  if (typeof value === "string") return field.endsWith("_at") || TIMES.has(field) ? new Date(value) : value;
  // Its times are of the day.
  if (field === "window" && isObject(value)) return Object.fromEntries(Object.entries(value).map(([name, item]) => [camel(name), item]));
  if (!OF_THE_USER.has(field) || !isObject(value)) return fromAnswer(value);
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, fromAnswer<unknown>(item)]));
}

function camel(field: string): string {
  return field.replace(/_ms$/, "").replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

/** A message of an answer, which has a payload also if what is stored cannot be read. */
export function withPayload<T>(answer: unknown): T {
  return { payload: Buffer.alloc(0), ...fromAnswer<object>(answer) } as T;
}
