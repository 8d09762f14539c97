/** Plays the vectors of clients/conformance. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Bury, Client, PushManyError, Retry, Unavailable, Worker } from "dwell-client";
import { lab } from "./lab.mjs";

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const camelKeys = (object) => Object.fromEntries(Object.entries(object).map(([name, value]) => [camel(name), value]));

/** A result as in the answers of the broker, with names in camel case. */
function plain(value) {
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  const { payload, ...fields } = value;
  const result = Object.fromEntries(Object.entries(fields).map(([name, item]) => [name, plain(item)]));
  if (Buffer.isBuffer(payload)) Object.assign(result, { payloadBase64: payload.toString("base64"), payloadText: payload.toString() });
  if ("lateness" in fields) result.latenessMs = fields.lateness;
  return result;
}

/** Fails if something expected is not there; `<x>` is any value. */
function contains(expected, actual) {
  if (Array.isArray(expected)) {
    assert.equal(actual?.length, expected.length);
    expected.forEach((item, n) => contains(item, actual[n]));
  } else if (expected && typeof expected === "object") {
    for (const [name, value] of Object.entries(expected)) contains(value, actual?.[camel(name)] ?? actual?.[name]);
  } else if (!String(expected).startsWith("<")) {
    assert.equal(actual, expected);
  }
}

function message(fields) {
  const { payload_json, payload_base64, ...rest } = fields;
  if (payload_json !== undefined) rest.payload = payload_json;
  if (payload_base64 !== undefined) rest.payload = Buffer.from(payload_base64, "base64");
  return camelKeys(rest);
}

function raised(expected, error) {
  const kind = error instanceof PushManyError ? "push_many" : error instanceof Unavailable ? "unavailable" : "refused";
  const { status, type, detail, requestId, repeated, problem, results } = error;
  contains(expected, { kind, status, type, detail, requestId, repeated, groups: problem?.groups, results: plain(results) });
}

function call(client, { call, args: { topic, ...args } }) {
  if (call === "push_many") return client.pushMany(topic, (args.messages ?? Array(args.repeat).fill({ payload: args.payload })).map(message));
  if (call === "create_topic") return client.createTopic(topic, args.settings);
  if (call === "push") {
    const { payload, ...options } = message(args);
    return client.push(topic, payload, options);
  }
  const { id, ...options } = camelKeys(args);
  return client[call](topic, id, options);
}

async function produce(client, steps) {
  for (const step of steps) {
    const outcome = await call(client, step).then((result) => ({ result }), (error) => ({ error }));
    if (step.raises) {
      assert.ok(outcome.error, "nothing was thrown");
      raised(step.raises, outcome.error);
      continue;
    }
    if (outcome.error) throw outcome.error;
    if (step.returns) contains(step.returns, plain(outcome.result));
    if (step.returns_count) assert.equal(outcome.result.length, step.returns_count);
  }
}

async function work(client, vector) {
  const wrong = [];
  const { topic, max_runtime, ...options } = vector.worker;
  const onWarning = () => {};
  const events = {};
  const onEvent = (name) => (events[name] = (events[name] ?? 0) + 1);
  const worker = new Worker(client, topic, { ...options, ...(max_runtime ? { maxRuntime: max_runtime } : {}), onWarning, onEvent }, async (delivery, { signal }) => {
    await lab("/mark", { name: "begun" });
    const script = vector.handlers[delivery.id] ?? {};
    if (script.delivery) {
      try {
        contains(script.delivery, plain({ ...delivery }));
      } catch (error) {
        wrong.push(error);
      }
    }
    if (script.when && !(await lab("/wait", { when: script.when })).is_met) wrong.push(`${delivery.id} waited for ${JSON.stringify(script.when)}`);
    if (script.extend && (await delivery.extend(script.extend)) !== script.is_ours) wrong.push(`extend of ${delivery.id}`);
    const then = script.then ?? "return";
    if (then === "lost" && !signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
    await lab("/mark", { name: then === "lost" ? "lost" : "handled" });
    if (then.raise) throw new Error(then.raise.repeat(then.times ?? 1));
    if (then.retry) throw new Retry(then.reason, { after: then.retry });
    if (then.bury) throw new Bury(then.bury);
  });
  const run = worker.run().then(() => undefined, (error) => error);
  if (vector.stop) {
    if (!(await lab("/wait", { when: vector.stop.when })).is_met) wrong.push(`there was never ${JSON.stringify(vector.stop.when)}`);
    await lab("/mark", { name: "stopping" });
    void worker.stop();
  }
  const error = await run;
  assert.deepEqual(wrong, []);
  contains(vector.stats, worker.stats);
  const { inFlight, latenessMs, lastPoll, ...counters } = worker.stats;
  delete events.settled;
  assert.deepEqual(Object.fromEntries(Object.entries(counters).filter(([, count]) => count)), events);
  if (vector.raises) raised(vector.raises, error);
  else assert.equal(error, undefined);
}

for (const { file, name } of await lab("/vectors")) {
  test(name, async () => {
    const { server, token_file, vector } = await lab("/vector", { file, name });
    const tokenFile = "token" in vector ? token_file : undefined;
    const client = new Client(server, { tokenFile, retryFor: vector.client?.retry_for ?? "30s", timeout: "10s" });
    let failures = [];
    try {
      await (vector.worker ? work(client, vector) : produce(client, vector.calls));
    } finally {
      ({ failures } = await lab("/vector/end"));
      client.close();
    }
    assert.deepEqual(failures, []);
  });
}
