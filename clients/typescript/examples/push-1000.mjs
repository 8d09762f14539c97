/** Push 1,000 messages, from many callers at the same time. */

import { Client, Producer } from "dwell-client";

const dwell = new Client();
// Gathers the pushes of all callers into batches.
const producer = new Producer(dwell);

async function remind(customer) {
  const { id } = await producer.push("reminders", { customer }, { id: `remind-${customer}`, delay: "1d" });
  return id;
}

const ids = await Promise.all(Array.from({ length: 1000 }, (_, customer) => remind(customer)));
console.log(`pushed ${new Set(ids).size} messages`);
await producer.close();
dwell.close();
