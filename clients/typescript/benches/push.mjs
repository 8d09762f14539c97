/**
 * How many messages 32 callers push: one at a time, through a producer, and as batches of 100. DWELL_BIN names the broker.
 *
 * The three take turns, so that what else the machine does falls on all of them.
 */

import { Client, Producer } from "dwell-client";
import { startBroker } from "dwell-client/testing";

const CALLERS = 32;
const ROUNDS = 5;
const ROUND_MS = 1000;

const broker = await startBroker();
const dwell = new Client(broker.server);
const producer = new Producer(dwell);
const payload = { order: 4711 };
const options = { delay: "1h" };
const batch = Array.from({ length: 100 }, () => ({ payload, ...options }));

const ways = {
  single: { push: () => dwell.push("single", payload, options), messages: 1, pushed: 0, ms: 0 },
  producer: { push: () => producer.push("producer", payload, options), messages: 1, pushed: 0, ms: 0 },
  batches: { push: () => dwell.pushMany("batches", batch), messages: batch.length, pushed: 0, ms: 0 },
};

async function round(way, length) {
  const began = performance.now();
  const call = async () => {
    while (performance.now() < began + length) {
      await way.push();
      way.pushed += way.messages;
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, call));
  way.ms += performance.now() - began;
}

// The first round warms up.
for (const way of Object.values(ways)) await round(way, 300);
for (const way of Object.values(ways)) [way.pushed, way.ms] = [0, 0];
for (let n = 0; n < ROUNDS; n++) for (const way of Object.values(ways)) await round(way, ROUND_MS);

const rate = ({ pushed, ms }) => pushed / ms;
for (const [name, way] of Object.entries(ways)) {
  const times = (rate(way) / rate(ways.single)).toFixed(1);
  console.log(`${name}: ${Math.round(rate(way) * 1000)} messages a second, ${times} times single pushes`);
}
await producer.close();
dwell.close();
await broker.stop();
