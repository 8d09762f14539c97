// The generated client pushes, reserves, acks and cancels; throws when an answer is another than expected.

import assert from "node:assert/strict";
import { ackMessages, cancelMessage, extendMessages, pushMessage, reserveMessages } from "./dwell/index.js";
import { client } from "./dwell/client.gen.js";
import type { SettlementProblem } from "./dwell/types.gen.js";

const topic = "contract-typescript";
client.setConfig({ baseUrl: process.env.CONTRACT_URL, auth: () => process.env.CONTRACT_TOKEN });

const pushed = await pushMessage({
  path: { topic },
  body: { payload: "close order 4711", key: "customer-7" },
});
assert.equal(pushed.response?.status, 201, JSON.stringify(pushed.error));

const reserved = await reserveMessages({ path: { topic, group: "default" }, body: { max: 1, wait: "5s" } });
const delivery = reserved.data?.deliveries[0];
assert.deepEqual([delivery?.id, delivery?.payload], [pushed.data?.id, "close order 4711"]);

const acked = await ackMessages({ path: { topic, group: "default" }, body: { receipts: [delivery!.receipt] } });
assert.equal(acked.data?.results[0]?.status, "acked");
const over = await extendMessages({
  path: { topic, group: "default" },
  body: { receipts: [delivery!.receipt], visibility_timeout: "1m" },
});
assert.equal(over.response?.status, 409);
assert.equal((over.error as SettlementProblem).reason, "already_settled");

const later = await pushMessage({ path: { topic }, body: { payload: "", id: "later", delay: "1h" } });
assert.equal(later.response?.status, 201);
const cancelled = await cancelMessage({ path: { topic, id: "later" } });
assert.equal(cancelled.data?.status, "cancelled");
const absent = await cancelMessage({ path: { topic: "absent", id: "later" } });
assert.equal(absent.error?.type, "urn:dwell:error:not-found");
console.log("typescript: pushed, reserved, acked, cancelled");
