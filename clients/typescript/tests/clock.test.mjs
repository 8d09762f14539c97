/** Months of messages in milliseconds, on a broker whose time the tests move. */

import assert from "node:assert/strict";
import { once, EventEmitter } from "node:events";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Retry, Worker } from "dwell-client";
import { startBroker } from "dwell-client/testing";

let broker;
before(async () => (broker = await startBroker()));
after(() => broker.stop());

/** A worker that handles messages until the test is over. */
function consume(t, topic, handler = () => {}) {
  const handled = [];
  const events = new EventEmitter();
  const worker = new Worker(broker.client, topic, async (d) => {
    try {
      await handler(d);
    } finally {
      handled.push([d.id, d.attempt]);
      events.emit("handled");
    }
  });
  const run = worker.run();
  t.after(async () => {
    worker.stop();
    await run;
  });
  const next = async () => {
    while (!handled.length) await once(events, "handled", { signal: AbortSignal.timeout(30_000) });
    return handled.shift();
  };
  return { worker, next };
}

function report(name, began) {
  console.log(`typescript ${name}: ${Math.round(performance.now() - began)} ms`);
}

test("a reminder of 30 days", async (t) => {
  const began = performance.now();
  await broker.client.push("reminders", "renew", { id: "renew", delay: "30d" });
  assert.deepEqual((await broker.advance("29d")).due, []);
  const { due } = await broker.advance("1d");
  assert.deepEqual(due, [{ topic: "reminders", group: "default", messages: 1 }]);
  assert.deepEqual(await consume(t, "reminders").next(), ["renew", 1]);
  report(t.name, began);
});

test("a ladder of retries over three hours", async (t) => {
  const began = performance.now();
  await broker.client.createTopic("payments", { backoff: { kind: "ladder", steps: ["30m", "1h", "90m"] } });
  const { worker, next } = consume(t, "payments", (d) => {
    if (d.attempt < 4) throw new Retry("no answer of the bank");
  });
  await broker.client.push("payments", "pay", { id: "pay" });
  for (const [n, step] of ["30m", "1h", "90m", "0s"].entries()) {
    assert.deepEqual(await next(), ["pay", n + 1]);
    // The worker's decision is with the broker a few milliseconds after the handler has ended.
    for (const until = performance.now() + 30_000; performance.now() < until; await sleep(1)) {
      if (worker.stats.acked + worker.stats.nacked > n) break;
    }
    await broker.advance(step);
  }
  report(t.name, began);
});

test("a cron job of next March", async (t) => {
  const began = performance.now();
  await broker.client.putCron("reports", "spring", { cron: "0 9 1 3 *", timeZone: "Europe/Berlin", payload: "report" });
  const march = new Date(Date.UTC((await broker.now()).getUTCFullYear() + 1, 2, 1, 8));
  const { next } = consume(t, "reports");
  const { now, fired } = await broker.advanceTo(march);
  assert.equal(fired[0].name, "spring");
  assert.ok(now >= march);
  assert.equal((await next())[1], 1);
  report(t.name, began);
});
