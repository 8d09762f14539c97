/** A test of a reminder in 30 days, on a broker whose time it moves: node --test examples/clock.test.mjs */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "dwell-client";
import { startBroker } from "dwell-client/testing";

test("a customer is reminded after 30 days", async (t) => {
  const broker = await startBroker();
  t.after(() => broker.stop());
  await broker.client.push("reminders", { customer: 7 }, { delay: "30d" });

  assert.deepEqual((await broker.advance("29d")).due, []);
  assert.deepEqual((await broker.advance("1d")).due, [{ topic: "reminders", group: "default", messages: 1 }]);

  const reminded = await new Promise((resolve) => {
    const worker = new Worker(broker.client, "reminders", (delivery) => resolve(delivery.json().customer));
    void worker.run();
    t.after(() => worker.stop());
  });
  assert.equal(reminded, 7);
});
