/** A worker whose handler fails: one message succeeds later, one never, and one runs out of attempts. */

import { Bury, Client, Retry, Worker } from "dwell-client";

class CardDeclined extends Error {}

const dwell = new Client();
await dwell.createTopic("payments", { maxAttempts: 2, backoff: { kind: "ladder", steps: ["100ms"] } });
for (const id of ["busy", "unknown", "declined"]) await dwell.push("payments", { id }, { id });

function pay({ id, attempt }) {
  if (id === "busy" && attempt === 1) throw new Retry("the bank is busy", { after: "200ms" });
  if (id === "unknown") throw new Bury("there is no such order");
  if (id === "declined") throw new CardDeclined("the card was declined");
  console.log(`paid ${id} at attempt ${attempt}`);
}

let settled = 0;
const onEvent = (event) => void (event === "settled" && ++settled === 5 && worker.stop());
// Without `onWarning`, each failure of a handler is a line of the log.
const worker = new Worker(dwell, "payments", pay, { onEvent, onWarning: () => {} });
await worker.run();

for await (const dead of dwell.deadLetters("payments", "default")) {
  const { class: name = "Bury", message } = dead.lastError;
  console.log(`${dead.id} is dead after ${dead.attempts} attempts: ${name}: ${message}`);
}
dwell.close();
