/** Plays against real brokers that are killed, restarted, and cut off from Redis: nothing is lost. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, Worker } from "dwell-client";
import { lab } from "./lab.mjs";

const MESSAGES = Number(process.env.MESSAGES || 2000);
const PUSHERS = 4;
/** Messages are due within this time, in milliseconds: about 1,000 a second. */
const SPREAD = Math.max(1000, MESSAGES);
const onWarning = () => {};

async function begin(story, messages = 0) {
  const { server, token_file: tokenFile, ca_file: caFile } = await lab("/story", { name: story, messages });
  return new Client(server, { tokenFile, caFile, timeout: "10s" });
}

function within(ms, promise) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms, "late")));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function story(name, faults) {
  const client = await begin(name, MESSAGES);
  await client.createTopic("orders", { partitions: 4 });
  const [pushed, handled, late, early] = [new Set(), new Map(), [], []];
  let complete;
  const isDone = new Promise((resolve) => (complete = resolve));
  const step = Math.max(1, Math.floor(MESSAGES / 100));
  const workers = [];
  const options = { concurrency: 32, visibility: "3s", wait: "5s", onWarning };
  const handle = async (delivery) => {
    if (Date.now() < delivery.dueAt.getTime()) early.push(delivery.id);
    const isNew = !handled.has(delivery.id);
    handled.set(delivery.id, (handled.get(delivery.id) ?? 0) + 1);
    if (delivery.attempt === 1) late.push(delivery.lateness);
    const count = handled.size;
    if (isNew && count % step === 0) await lab("/mark", { name: "handled", by: step });
    if (isNew && !faults && count % Math.floor(MESSAGES / 4) === 0) void workers.at(-1).stop();
    if (count === MESSAGES) complete();
  };
  let isOver = false;
  // Where the brokers have no faults, the worker is replaced while messages are in flight.
  const work = async () => {
    while (!isOver && handled.size < MESSAGES) {
      workers.push(new Worker(client, "orders", handle, options));
      await workers.at(-1).run();
    }
  };
  const push = async (pusher) => {
    for (let first = pusher; first < MESSAGES; first += PUSHERS * 50) {
      const batch = [];
      for (let n = first; n < Math.min(first + PUSHERS * 50, MESSAGES); n += PUSHERS) batch.push({ payload: { n }, id: `m-${n}`, delay: (n * 7919) % SPREAD });
      for (const { id } of await client.pushMany("orders", batch)) pushed.add(id);
    }
  };
  const began = performance.now();
  const run = work();
  const patience = (120 + MESSAGES / 50) * 1000;
  await within(patience, Promise.all([...Array(PUSHERS).keys()].map(push)));
  await within(patience, isDone);
  const took = (performance.now() - began) / 1000;
  isOver = true;
  await workers.at(-1).stop();
  await run;
  const ended = await lab("/story/end");
  client.close();
  const lost = MESSAGES - handled.size;
  const again = [...handled.values()].reduce((sum, n) => sum + n, 0) - handled.size;
  const stale = workers.reduce((sum, worker) => sum + worker.stats.stale, 0);
  late.sort((a, b) => a - b);
  console.log(`typescript ${name}: ${MESSAGES} messages in ${took.toFixed(1)} s, ${ended.faults} faults, ${lost} lost, ${early.length} early, ` +
    `${again} again, ${stale} stale, p99 of lateness ${late[Math.floor((late.length * 99) / 100)] ?? 0} ms`);
  assert.deepEqual(ended.failures, []);
  assert.equal(ended.faults, faults);
  assert.equal(pushed.size, MESSAGES);
  assert.equal(lost, 0);
  assert.deepEqual(early, []);
  if (!faults) assert.deepEqual([again, stale], [0, 0]);
}

test("nothing is lost without faults", () => story("calm", 0));
test("nothing is lost when the broker is killed", () => story("kills", 4));
test("nothing is lost when the broker is restarted", () => story("restarts", 4));
test("nothing is lost when Redis is killed", () => story("outages", 4));
test("nothing is lost when one of two brokers is killed", () => story("brokers", 4));

test("messages are pushed, changed and found", async () => {
  const client = await begin("calm");
  try {
    const key = "order-4713";
    const options = { id: "close-4713", key, delay: "30m", meta: { shop: "7" } };
    const pushed = await client.push("orders", { order: 4713 }, options);
    assert.deepEqual([pushed.id, pushed.status, pushed.topicCreated], ["close-4713", "stored", true]);
    const again = await client.push("orders", { order: 4713 }, options);
    assert.deepEqual([again.status, again.dueAt], ["duplicate", pushed.dueAt]);
    const message = await client.get("orders", "close-4713", { key });
    assert.deepEqual([message.state, JSON.parse(message.payload), message.meta], ["scheduled", { order: 4713 }, { shop: "7" }]);
    const moved = await client.reschedule("orders", "close-4713", { key, delay: "90m", etag: message.etag });
    assert.equal(moved.status, "rescheduled");
    assert.ok(Math.abs(moved.dueAt - pushed.dueAt - 3_600_000) < 30_000);
    const other = client.reschedule("orders", "close-4713", { key, delay: "1m", etag: message.etag });
    await assert.rejects(other, { type: "precondition-failed" });
    assert.equal((await client.cancel("orders", "close-4713", { key })).status, "cancelled");
    await assert.rejects(client.get("orders", "close-4713", { key }), { status: 404, type: "not-found" });
    await assert.rejects(client.push("orders", "x", { priority: 10 }), (error) => error.problem.errors[0].pointer === "/priority");
  } finally {
    await lab("/story/end");
    client.close();
  }
});

test("payloads arrive as they were pushed", () => payloads("restarts"));
test("payloads arrive over TLS", () => payloads("tls"));

async function payloads(story) {
  const client = await begin(story);
  const pushed = { bytes: Buffer.from([0, 255]), text: "käse", json: [1, null, { ä: "🧀" }], null: null, empty: "" };
  const seen = {};
  let complete;
  const isDone = new Promise((resolve) => (complete = resolve));
  const worker = new Worker(client, "orders", (d) => {
    seen[d.id] = d.id === "bytes" ? d.bytes : d.contentType === "application/json" ? d.json() : d.text;
    if (Object.keys(seen).length === Object.keys(pushed).length) complete();
  }, { onWarning });
  try {
    for (const [id, payload] of Object.entries(pushed)) await client.push("orders", payload, { id });
    const run = worker.run();
    await within(30_000, isDone);
    await worker.stop();
    await run;
  } finally {
    await lab("/story/end");
    client.close();
  }
  assert.deepEqual(seen, pushed);
}
