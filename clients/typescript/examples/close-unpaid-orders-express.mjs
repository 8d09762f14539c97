/** Close unpaid orders, with Express. */

import { Client, DwellError, Worker } from "dwell-client";
import express from "express";

const delay = process.env.PAY_WITHIN ?? "30m";
const dwell = new Client();
const orders = new Map(); // stands for the database

const worker = new Worker(dwell, "orders", (delivery) => {
  const { order } = delivery.json();
  if (orders.get(order) === "unpaid") {
    orders.set(order, "closed");
    console.log("closed order", order);
  }
}, { concurrency: 8 });

const app = express();
app.post("/orders/:order", async (request, response) => {
  const order = Number(request.params.order);
  orders.set(order, "unpaid");
  await dwell.push("orders", { order }, { id: `close-${order}`, key: `order-${order}`, delay });
  response.status(201).json({ state: "unpaid" });
});
app.post("/orders/:order/pay", async (request, response) => {
  const order = Number(request.params.order);
  if (orders.get(order) !== "unpaid") return response.status(409).json({ state: orders.get(order) ?? "unknown" });
  orders.set(order, "paid");
  console.log("paid order", order);
  try {
    await dwell.cancel("orders", `close-${order}`, { key: `order-${order}` });
  } catch (error) {
    // The message is being delivered: the handler finds that the order is paid.
    if (!(error instanceof DwellError && ["conflict", "not-found"].includes(error.type))) throw error;
  }
  return response.json({ state: "paid" });
});

const work = worker.run();
const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, async () => {
    server.close();
    await worker.stop();
    dwell.close();
  });
}
await work;
