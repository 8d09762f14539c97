/** Each call of administration, against a broker, and pushes that are gathered. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, DwellError, Producer, Unavailable, Worker } from "dwell-client";
import { startBroker } from "dwell-client/testing";

let broker;
let dwell;
before(async () => {
  broker = await startBroker();
  dwell = broker.client;
});
after(() => broker.stop());

const onWarning = () => {};

/** Hands messages of a topic to a handler until so many are settled. */
async function consume(topic, handler, settled, options = {}) {
  let count = 0;
  const onEvent = (event) => void (event === "settled" && ++count >= settled && worker.stop());
  const worker = new Worker(dwell, topic, handler, { onWarning, onEvent, ...options });
  await worker.run({ signal: AbortSignal.timeout(30_000) });
  return worker.stats;
}

test("settings of a topic are read as they are written", async () => {
  const settings = {
    partitions: 2, visibilityTimeout: "20s", maxAttempts: 2, ordering: "key", ttl: "1h", onExpiry: "bury",
    backoff: { kind: "ladder", steps: ["1s", "1m"] }, annotations: { Owner_Of: "shop" },
  };
  const created = await dwell.createTopic("copied", settings);
  assert.equal(created.settings.visibilityTimeout, 20_000);
  assert.deepEqual(created.settings.backoff, { kind: "ladder", steps: [1000, 60_000] });
  assert.deepEqual(created.settings.annotations, { Owner_Of: "shop" });
  const copy = await dwell.createTopic("copy", created.settings);
  assert.deepEqual(copy.settings, created.settings);
  const exponential = { kind: "exponential", initial: "1s", max: "1m", factor: 2, jitter: 0 };
  const changed = await dwell.createTopic("copy", { backoff: exponential, maxAttempts: 5 });
  assert.deepEqual(changed.settings.backoff, { ...exponential, initial: 1000, max: 60_000 });
  assert.ok((await dwell.topics().toArray()).includes("copy"));
  assert.equal((await dwell.topic("copy")).totals[0].scheduled, 0);
  await dwell.deleteTopic("copy");
  await assert.rejects(dwell.topic("copy"), { status: 404, type: "not-found" });
});

test("groups are created, paused and purged", async () => {
  await dwell.createTopic("events", { partitions: 2 });
  const group = await dwell.createGroup("events", "audit", { rate: 10, maxInFlight: 4 });
  assert.deepEqual([group.rate, group.maxInFlight, group.state, group.fair], [10, 4, "active", undefined]);
  assert.equal((await dwell.createGroup("events", "audit", { fair: "key" })).fair, "key");
  assert.equal((await dwell.createGroup("events", "audit", { rate: 20 })).fair, "key");
  assert.equal((await dwell.createGroup("events", "audit", { keyMaxInFlight: 5 })).keyMaxInFlight, 5);
  assert.equal((await dwell.createGroup("events", "audit", { rate: 10 })).keyMaxInFlight, 5);
  const unlimited = await dwell.createGroup("events", "audit", { keyMaxInFlight: 0 });
  assert.deepEqual([unlimited.fair, unlimited.keyMaxInFlight], ["key", undefined]);
  for (const [settings, rate, burst] of [
    [{ keyRate: 0.5 }, 0.5, undefined],
    [{ keyBurst: 20 }, 0.5, 20],
    [{ rate: 20 }, 0.5, 20],
    [{ keyBurst: 1 }, 0.5, undefined],
    [{ keyRate: 10, keyBurst: 20 }, 10, 20],
    [{ keyRate: 0 }, undefined, undefined],
    [{ keyRate: 10 }, 10, undefined],
    [{ keyRate: 0 }, undefined, undefined],
  ]) {
    const changed = await dwell.createGroup("events", "audit", settings);
    assert.deepEqual([changed.fair, changed.keyRate, changed.keyBurst], ["key", rate, burst]);
  }
  await assert.rejects(dwell.createGroup("events", "audit", { keyRate: 10, keyBurst: 0 }), { status: 422, type: "invalid" });
  const weights = { "gold_plan-*": 3, "customer-7": 5 };
  const keyLimits = { "gold_plan-*": { maxInFlight: 0, rate: 10, burst: 20 } };
  for (const [settings, weighted, limited] of [
    [{ weights }, weights, undefined],
    [{ keyLimits }, weights, keyLimits],
    [{ weights: {} }, undefined, keyLimits],
    [{ keyLimits: {} }, undefined, undefined],
  ]) {
    const changed = await dwell.createGroup("events", "audit", settings);
    assert.deepEqual([changed.weights, changed.keyLimits], [weighted, limited]);
  }
  for (const wrong of [{ weights: { "gold-*": 0 } }, { keyLimits: { "gold-*": { rate: 10, burst: 0 } } }]) {
    await assert.rejects(dwell.createGroup("events", "audit", wrong), { status: 422, type: "invalid" });
  }
  const pause = await dwell.pauseKey("events", "audit", "a/b ü", { for: "10m" });
  assert.deepEqual([pause.key, pause.pausedUntil instanceof Date], ["a/b ü", true]);
  const until = new Date(pause.pausedUntil.getTime() + 60_000);
  assert.deepEqual(await dwell.pauseKey("events", "audit", "later", { until }), { key: "later", pausedUntil: until });
  const { keys } = await dwell.group("events", "audit");
  assert.deepEqual([keys.pausedCount, keys.paused], [2, [pause, { key: "later", pausedUntil: until }]]);
  for (const key of ["a/b ü", "later"]) assert.deepEqual(await dwell.resumeKey("events", "audit", key), { key });
  const { keys: resumed } = await dwell.group("events", "audit");
  assert.deepEqual([resumed.pausedCount, resumed.paused], [undefined, undefined]);
  for (const end of [{}, { for: "10m", until }]) await assert.rejects(dwell.pauseKey("events", "audit", "later", end), TypeError);
  assert.equal((await dwell.createGroup("events", "audit", { fair: "none" })).fair, undefined);
  await dwell.push("events", "x");
  const paused = await dwell.pause("events", "audit", { for: "10m" });
  assert.equal(paused.state, "paused");
  assert.ok(paused.pausedUntil instanceof Date);
  assert.equal((await dwell.resume("events", "audit")).state, "active");
  assert.deepEqual((await dwell.groups("events")).map(({ group: name }) => name).sort(), ["audit", "default"]);
  assert.deepEqual(await dwell.purge("events", "audit", { all: true, dryRun: true }), { purged: 0, matching: 1 });
  assert.equal((await dwell.purge("events", "audit", { all: true })).purged, 1);
  assert.equal((await dwell.group("events", "audit")).totals.scheduled, 0);
  await assert.rejects(dwell.purge("events", "audit", {}), TypeError);
  await dwell.deleteGroup("events", "audit");
});

test("many messages are listed, changed and explained", async () => {
  const messages = Array.from({ length: 25 }, (_, n) => ({ payload: { n }, id: `m-${n}`, delay: `${n + 1}h` }));
  await dwell.pushMany("many", messages);
  const listed = await dwell.list("many", { order: "due", pageSize: 10 }).toArray();
  assert.deepEqual(listed.map(({ id }) => id), messages.map(({ id }) => id));
  assert.deepEqual(JSON.parse(listed[3].payload), { n: 3 });
  const [first, missing] = await dwell.getMany("many", ["m-0", { id: "none", key: "k" }]);
  assert.equal(first.value.state, "scheduled");
  assert.equal(missing.reason.type, "not-found");
  const cancelled = await dwell.cancelMany("many", listed.slice(0, 10));
  assert.ok(cancelled.every(({ value }) => value.status === "cancelled"));
  const [moved] = await dwell.rescheduleMany("many", ["m-20"], { delay: "100h" });
  assert.equal(moved.value.status, "rescheduled");
  const explained = await dwell.explain("many", "m-20");
  assert.equal(explained.groups[0].reason, "scheduled");
  assert.ok(explained.groups[0].until instanceof Date);
  const from = await broker.now();
  const window = { from, to: new Date(from.getTime() + 50 * 3_600_000) };
  assert.equal(await dwell.bulkCount("many", "default", window), 14);
  assert.deepEqual(await dwell.bulk("many", "default", { ...window, action: "cancel" }), { changed: 14, passedOver: 0 });
  const forecast = await dwell.forecast("many", "default", { step: "1h", spans: 3 });
  assert.deepEqual([forecast.step, forecast.spans.length, forecast.later], [3_600_000, 3, 1]);
  assert.deepEqual((await dwell.verify("many", "default")).findings, []);
  assert.deepEqual((await dwell.repair("many", "default")).findings, []);
  const { moved: count, done } = await dwell.move("many", { to: "many-4", partitions: 4 });
  assert.deepEqual([count, done], [1, true]);
});

test("dead letters say how a handler failed, and are redriven", async () => {
  class NoSuchOrder extends Error {}
  await dwell.createTopic("failing", { maxAttempts: 1 });
  await dwell.pushMany("failing", [{ payload: "x", id: "a" }, { payload: "x", id: "b" }, { payload: "x", id: "c" }]);
  const fail = ({ id }) => {
    throw new NoSuchOrder(`no order ${id}`, { cause: new Error("the database has none") });
  };
  assert.equal((await consume("failing", fail, 3)).buried, 3);
  const dead = await dwell.deadLetters("failing", "default", { order: "newest", pageSize: 2 }).toArray();
  assert.deepEqual(dead.map(({ id }) => id).sort(), ["a", "b", "c"]);
  const { lastError } = await dwell.get("failing", "a");
  assert.deepEqual([lastError.class, lastError.message], ["NoSuchOrder", "no order a"]);
  assert.match(lastError.stack, /at fail .*administration\.test\.mjs/);
  assert.match(lastError.stack, /Caused by Error: the database has none/);
  assert.deepEqual(await dwell.redrive("failing", "default", { ids: ["a"] }), { redriven: 1 });
  assert.deepEqual(await dwell.redrive("failing", "default", { all: true, dryRun: true }), { redriven: 0, matching: 2 });
  assert.deepEqual(await dwell.purgeDeadLetters("failing", "default", { text: "no order b", limit: 5 }), { purged: 1 });
  await assert.rejects(dwell.redrive("failing", "default", {}), TypeError);
});

test("cron jobs are created, listed and paused", async () => {
  const nightly = { cron: "0 3 * * *", timeZone: "Europe/Berlin", payload: { report: 1 }, ttl: "1h" };
  const created = await dwell.putCron("reports", "nightly", nightly);
  assert.deepEqual([created.state, created.ttl, JSON.parse(created.payload)], ["active", 3_600_000, { report: 1 }]);
  await dwell.putCron("reports", "often", { every: "15m", payload: "x" });
  assert.deepEqual((await dwell.crons("reports").toArray()).map(({ name }) => name).sort(), ["nightly", "often"]);
  assert.equal((await dwell.pauseCron("reports", "often")).paused, true);
  assert.ok((await dwell.resumeCron("reports", "often")).nextAt instanceof Date);
  await dwell.deleteCron("reports", "often");
  await assert.rejects(dwell.cron("reports", "often"), { type: "not-found" });
  assert.equal((await dwell.brokers())[0].here, true);
  assert.ok(Array.isArray((await dwell.attention()).attention));
});

test("a message that is wrong is refused alone", async () => {
  const producer = new Producer(dwell);
  const pushes = Array.from({ length: 50 }, (_, n) => producer.push("gathered", "x", { id: `g-${n}`, priority: n % 10 === 7 ? 99 : 1 }));
  pushes.push(producer.push("gathered", "x".repeat(2 << 20), { id: "large" }));
  const outcomes = await Promise.allSettled(pushes);
  const refused = outcomes.map(({ reason }, n) => (reason ? n : -1)).filter((n) => n >= 0);
  assert.deepEqual(refused, [7, 17, 27, 37, 47, 50]);
  const { reason } = outcomes[7];
  assert.ok(reason instanceof DwellError);
  assert.deepEqual([reason.status, reason.problem.errors[0].pointer], [422, "/priority"]);
  assert.deepEqual(outcomes[50].reason.problem.errors.map(({ pointer, code }) => [pointer, code]), [["/payload", "too_large"]]);
  assert.equal((await dwell.topic("gathered")).totals[0].ready, 45);
  await producer.close();
});

test("a call ends with the reason of its signal", async () => {
  const client = new Client("http://127.0.0.1:9", { retryFor: "1m" });
  const reason = new Error("the user left");
  const caller = new AbortController();
  const { signal } = caller;
  const calls = [client.push("orders", "x", { signal }), client.topics({ signal }).toArray(), client.cancelMany("orders", ["a"], { signal })];
  setTimeout(() => caller.abort(reason), 50);
  for (const { reason: thrown } of await Promise.allSettled(calls)) assert.equal(thrown, reason);
  await assert.rejects(client.get("orders", "a", { signal: AbortSignal.abort(reason) }), reason);
});

test("one signal is for many calls", async () => {
  const warnings = [];
  process.on("warning", (warning) => warnings.push(warning.message));
  const caller = new AbortController();
  const producer = new Producer(dwell);
  const { signal } = caller;
  const pushes = Array.from({ length: 100 }, (_, n) => (n % 2 ? producer : dwell).push("signals", "x", { signal }));
  await producer.flush({ signal });
  await Promise.all(pushes);
  caller.abort();
  await new Promise(setImmediate);
  assert.deepEqual(warnings, []);
  await assert.rejects(producer.flush({ signal }), { name: "AbortError" });
  await producer.close();
});

test("a broker that is not there has its address and the cause in the error", async () => {
  const client = new Client("http://127.0.0.1:9", { retryFor: "200ms" });
  await assert.rejects(client.push("orders", "x"), (error) => {
    assert.ok(error instanceof Unavailable);
    assert.match(error.message, /^http:\/\/127\.0\.0\.1:9 is unavailable after \d+ tries: .*ECONNREFUSED/);
    assert.equal(error.cause.code, "ECONNREFUSED");
    return true;
  });
});

test("a worker takes the visibility timeout of its topic", async () => {
  await dwell.createTopic("slow", { visibilityTimeout: "600ms" });
  await dwell.push("slow", "x");
  const stats = await consume("slow", () => new Promise((resolve) => setTimeout(resolve, 1000)), 1);
  assert.deepEqual([stats.acked, stats.lost], [1, 0]);
  assert.ok(stats.extended >= 2);
});

test("wrong arguments are refused before a request", async () => {
  const client = new Client("http://127.0.0.1:9");
  for (const delay of ["-1s", -1, "30", NaN, ""]) await assert.rejects(client.push("orders", "x", { delay }), /delay/);
  assert.throws(() => new Worker(client, "orders", { concurrency: 8 }, () => {}), /handler: expected a function, before the options/);
  for (const concurrency of [0, -1, 1.5, NaN]) assert.throws(() => new Worker(client, "orders", () => {}, { concurrency }), /concurrency/);
  assert.throws(() => client.list(""), TypeError);
  assert.throws(() => new Producer(client, { linger: "-1ms" }), RangeError);
});
