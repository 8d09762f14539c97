/** Push 100 messages, cancel half of them, and count those that are left. */

import { Client } from "dwell-client";

const dwell = new Client();
const messages = Array.from({ length: 100 }, (_, n) => ({ payload: { order: n }, id: `close-${n}`, delay: "1h" }));
await dwell.pushMany("unpaid", messages);

const paid = messages.filter((_, n) => n % 2 === 0).map(({ id }) => id);
const outcomes = await dwell.cancelMany("unpaid", paid);
const cancelled = outcomes.filter(({ status }) => status === "fulfilled").length;

let left = 0;
for await (const message of dwell.list("unpaid", { state: "scheduled" })) {
  if (!paid.includes(message.id)) left++;
}
console.log(`cancelled ${cancelled}, ${left} are left`);
dwell.close();
