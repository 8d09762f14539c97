/** A push carries the context of the active span of OpenTelemetry. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider } from "@opentelemetry/sdk-trace-base";
import { Client, Worker } from "dwell-client";
import { lab } from "./lab.mjs";

test("pushes carry the active span", async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  const { server } = await lab("/story", { name: "calm", messages: 0 });
  const client = new Client(server);
  const span = new BasicTracerProvider().getTracer("test").startSpan("checkout");
  const seen = {};
  let worker;
  const isDone = new Promise((resolve) => {
    worker = new Worker(client, "orders", (d) => {
      seen[d.id] = d.traceparent;
      if (Object.keys(seen).length === 3) resolve();
    });
  });
  const run = worker.run();
  try {
    await context.with(trace.setSpan(context.active(), span), async () => {
      await client.push("orders", "x", { id: "one" });
      await client.pushMany("orders", [{ payload: "x", id: "many" }]);
    });
    await client.push("orders", "x", { id: "none" });
    await isDone;
  } finally {
    await worker.stop();
    await run;
    client.close();
    await lab("/story/end");
  }
  const { traceId, spanId } = span.spanContext();
  const expected = `00-${traceId}-${spanId}-01`;
  assert.deepEqual(seen, { one: expected, many: expected, none: undefined });
});
