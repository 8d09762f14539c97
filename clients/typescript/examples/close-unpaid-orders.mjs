/** Close unpaid orders: a customer has some time to pay, and then the shop closes the order. */

import { Client, DwellError, Worker } from "dwell-client";

const delay = process.env.PAY_WITHIN ?? "30m";
const dwell = new Client();
const orders = new Map(); // stands for the database

async function checkout(order) {
  orders.set(order, "unpaid");
  // The id and the key are made of the order, so a repeated checkout pushes nothing new.
  await dwell.push("orders", { order }, { id: `close-${order}`, key: `order-${order}`, delay });
}

async function pay(order) {
  if (orders.get(order) !== "unpaid") return false;
  orders.set(order, "paid");
  console.log("paid order", order);
  try {
    await dwell.cancel("orders", `close-${order}`, { key: `order-${order}` });
  } catch (error) {
    // The message is being delivered: the handler finds that the order is paid.
    if (!(error instanceof DwellError && ["conflict", "not-found"].includes(error.type))) throw error;
  }
  return true;
}

const worker = new Worker(dwell, "orders", (delivery) => {
  const { order } = delivery.json();
  // UPDATE orders SET state = 'closed' WHERE id = order AND state = 'unpaid'
  if (orders.get(order) === "unpaid") {
    orders.set(order, "closed");
    console.log("closed order", order);
  }
}, { concurrency: 8 });
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => worker.stop());

const work = worker.run();
for (const order of [4711, 4712]) await checkout(order);
await pay(4711);
await work;
dwell.close();
