/** A worker that stops gracefully: at SIGTERM it takes no more messages, and ends once those that it handles are done. */

import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker } from "dwell-client";

const dwell = new Client();
await dwell.pushMany("mails", Array.from({ length: 20 }, (_, n) => ({ payload: { n }, id: `mail-${n}` })));

async function send(delivery, { signal }) {
  console.log(`begun ${delivery.id}`);
  // Once `drain` has passed, the signal ends the work. The message is then delivered to another worker.
  await sleep(500, undefined, { signal });
  console.log(`sent ${delivery.id}`);
}

const worker = new Worker(dwell, "mails", send, { concurrency: 4, drain: "10s" });
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => worker.stop());
await worker.run();

const { acked, released, nacked } = worker.stats;
console.log(`stopped: ${acked} sent, ${released + nacked} given back`);
dwell.close();
