/** Which decisions of a worker travel together. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "dwell-client";
import { Worker } from "../dist/worker.js";

/** A worker with these deliveries, whose handlers run. */
function working(t, ...ids) {
  const client = new Client("http://127.0.0.1:1");
  t.after(() => client.close());
  const worker = new Worker(client, "orders", () => new Promise(() => {}));
  for (const id of ids) worker.begin({ id, receipt: id, payload: "", lateness_ms: 0 }, performance.now());
  return worker;
}

const decide = (worker, id, verb) => worker.decide(worker.slots.get(id), verb, {});

/** The verb and the receipts of the next request. */
function sent(worker) {
  const batch = worker.gathered();
  return [...new Set(batch.map((slot) => slot.decision.verb)), ...batch.map((slot) => slot.delivery.receipt)];
}

test("a decision waits for no other", (t) => {
  const worker = working(t, "a", "b");
  assert.deepEqual(sent(worker), []);
  decide(worker, "a", "ack");
  assert.deepEqual(sent(worker), ["ack", "a"]);
});

test("a request has one verb, and what was decided first", (t) => {
  const worker = working(t, "a", "b", "c", "d");
  decide(worker, "c", "release");
  decide(worker, "b", "ack");
  decide(worker, "a", "release");
  assert.deepEqual(sent(worker), ["release", "c", "a"]);
});

test("a request has at most a hundred decisions", (t) => {
  const ids = Array.from({ length: 150 }, (_, n) => `m${n}`);
  const worker = working(t, ...ids);
  for (const id of ids) decide(worker, id, "ack");
  assert.deepEqual(sent(worker), ["ack", ...ids.slice(0, 100)]);
});
