/** How the tests make the calls of a vector, and compare their results and errors with it. */

import assert from "node:assert/strict";
import { PushManyError, Unavailable } from "dwell-client";

/** A name of the HTTP API as one of this client. A duration is a number of milliseconds, without a word for it in its name. */
const camel = (name) => name.replace(/_ms$/, "").replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

/** Objects whose names are the user's. */
const OF_THE_USER = new Set(["annotations", "attributes", "meta", "weights"]);

/** Arguments of a vector as those of this client. */
export function camelKeys(value) {
  if (Array.isArray(value)) return value.map(camelKeys);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [camel(name), ofField(name, item)]));
}

function ofField(name, item) {
  if (name !== "key_limits") return OF_THE_USER.has(name) ? item : camelKeys(item);
  return Object.fromEntries(Object.entries(item).map(([pattern, limit]) => [pattern, camelKeys(limit)]));
}

/** A result with times as text, and payloads as base64 and as text. */
export function plain(value) {
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Error) return { error: value };
  if (value === null || typeof value !== "object") return value;
  const { payload, ...fields } = value;
  const result = Object.fromEntries(Object.entries(fields).map(([name, item]) => [name, plain(item)]));
  if (Buffer.isBuffer(payload)) Object.assign(result, { payloadBase64: payload.toString("base64"), payloadText: payload.toString() });
  return result;
}

/** Fails if something expected is not there; `<x>` is any value. */
export function contains(expected, actual, server) {
  if (Array.isArray(expected)) {
    assert.equal(actual?.length, expected.length);
    expected.forEach((item, n) => contains(item, actual[n], server));
  } else if (expected && typeof expected === "object") {
    if (expected.error?.kind) return raised(expected.error, actual.error, server);
    for (const [name, value] of Object.entries(expected)) contains(value, actual?.[camel(name)] ?? actual?.[name], server);
  } else if (!/^<\w+( \w+)?>$/.test(expected)) {
    assert.equal(actual, expected);
  }
}

function kindOf(error) {
  if (error instanceof PushManyError) return "push_many";
  if (error instanceof Unavailable) return "unavailable";
  if (error instanceof TypeError || error instanceof RangeError) return "argument";
  if (error.name === "AbortError") return "cancelled";
  return error.message === "the producer is closed" ? "closed" : "refused";
}

/** Compares an error with the one that a vector expects. */
export function raised(expected, error, server) {
  assert.ok(error, "nothing was thrown");
  const { text_has: texts = [], has_cause: hasCause, ...fields } = expected;
  const { status, type, detail, requestId, repeated, problem, results } = error;
  const { groups, missing } = problem ?? {};
  contains(fields, { kind: kindOf(error), status, type, detail, requestId, repeated, groups, missing, results: plain(results) });
  for (const text of texts) assert.ok(error.message.includes(text === "<server>" ? server : text), error.message);
  if (hasCause) assert.ok(error.cause instanceof Error, `no cause: ${error.cause}`);
}

/** A message of a vector. `payload` with `times` is that text so many times. */
export function message({ payload_json: json, payload_base64: base64, times, ...fields }) {
  const result = camelKeys(fields);
  if (json !== undefined) result.payload = json;
  else if (base64 !== undefined) result.payload = Buffer.from(base64, "base64");
  else if (times !== undefined) result.payload = fields.payload.repeat(times);
  return result;
}

/** The entries of a list: the first ones, or all. */
async function entries(list, take) {
  const found = [];
  for await (const entry of list) {
    found.push(entry);
    if (found.length === take) break;
  }
  return found;
}

const outcomes = (settled) => settled.map(({ value, reason }) => reason ?? value);

/** Page sizes have a name that says so. */
const paged = ({ limit, ...options }) => (limit === undefined ? options : { ...options, pageSize: limit });

const CALLS = {
  push: (client, { topic, ...args }) => {
    const { payload, ...options } = message(args);
    return client.push(topic, payload, options);
  },
  push_many: (client, { topic, messages, repeat, ...args }) =>
    client.pushMany(topic, messages ? messages.map(message) : Array.from({ length: repeat }, () => message(args))),
  get_many: async (client, { topic, messages, ...options }) => outcomes(await client.getMany(topic, messages, options)),
  cancel_many: async (client, { topic, messages }) => outcomes(await client.cancelMany(topic, messages)),
  reschedule_many: async (client, { topic, messages, ...due }) => outcomes(await client.rescheduleMany(topic, messages, camelKeys(due))),
  list: (client, { topic, ...options }, take) => entries(client.list(topic, camelKeys(paged(options))), take),
  create_topic: (client, { topic, settings }) => client.createTopic(topic, camelKeys(settings)),
  topic: (client, { topic }) => client.topic(topic),
  topics: (client, _, take) => entries(client.topics(), take),
  delete_topic: (client, { topic }) => client.deleteTopic(topic),
  move: (client, { topic, ...to }) => client.move(topic, to),
  groups: (client, { topic }) => client.groups(topic),
  create_group: (client, { topic, group, settings }) => client.createGroup(topic, group, camelKeys(settings)),
  dead_letters: (client, { topic, group, ...options }, take) =>
    entries(client.deadLetters(topic, group, camelKeys(paged(options))), take),
  bulk_count: async (client, { topic, group, ...window }) => ({ waiting: await client.bulkCount(topic, group, window) }),
  crons: (client, { topic }, take) => entries(client.crons(topic), take),
  put_cron: (client, { topic, name, settings }) => client.putCron(topic, name, message(settings)),
  brokers: (client) => client.brokers(),
  attention: (client) => client.attention(),
};
const OF_A_GROUP = "group delete_group pause resume purge redrive purge_dead_letters bulk forecast verify repair";
for (const call of OF_A_GROUP.split(" ")) {
  CALLS[call] = (client, { topic, group, ...options }) => client[camel(call)](topic, group, camelKeys(options));
}
for (const call of ["pause_key", "resume_key"]) {
  CALLS[call] = (client, { topic, group, key, ...options }) => client[camel(call)](topic, group, key, camelKeys(options));
}
for (const call of ["get", "cancel", "reschedule", "explain"]) {
  CALLS[call] = (client, { topic, id, ...options }) => client[call](topic, id, camelKeys(options));
}
for (const call of ["cron", "pause_cron", "resume_cron", "delete_cron"]) {
  CALLS[call] = (client, { topic, name }) => client[camel(call)](topic, name);
}

/** Makes a call of a vector. */
export async function call(client, { call: name, args, take }) {
  return CALLS[name](client, args, take);
}
