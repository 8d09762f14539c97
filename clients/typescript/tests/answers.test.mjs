/** How requests are written, and answers read. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromAnswer, toRequest } from "../dist/values.js";

test("what takes turns in a group may be absent or new", () => {
  for (const fair of [{}, { fair: "key" }, { fair: "tenant" }]) {
    const group = { group: "audit", state: "active", ...fair };
    assert.deepEqual(fromAnswer(group), group);
  }
});

test("the limits of a key may be absent", () => {
  const group = { group: "audit", state: "active", fair: "key" };
  assert.deepEqual(fromAnswer(group), group);
  assert.deepEqual(fromAnswer({ ...group, key_max_in_flight: 5 }), { ...group, keyMaxInFlight: 5 });
  assert.deepEqual(fromAnswer({ ...group, key_rate: 0.5 }), { ...group, keyRate: 0.5 });
  assert.deepEqual(fromAnswer({ ...group, key_rate: 10, key_burst: 20 }), { ...group, keyRate: 10, keyBurst: 20 });
});

test("the names of keys with a weight or limits stay as they are", () => {
  const group = { group: "audit", state: "active", fair: "key" };
  const weights = { "gold_plan-*": 3, max: 5, goldPlan: 2, a_ms: 1 };
  const limits = { "gold_plan-*": { max_in_flight: 0 }, max: { rate: 0.5 }, goldPlan: { rate: 10, burst: 20 }, meta: { max_in_flight: 5 } };
  const keyLimits = { "gold_plan-*": { maxInFlight: 0 }, max: { rate: 0.5 }, goldPlan: { rate: 10, burst: 20 }, meta: { maxInFlight: 5 } };
  assert.deepEqual(fromAnswer({ ...group, weights, key_limits: limits }), { ...group, weights, keyLimits });
  assert.deepEqual(toRequest({ fair: "key", weights, keyLimits }), { fair: "key", weights, key_limits: limits });
  assert.deepEqual(toRequest({ weights: {}, keyLimits: {} }), { weights: {}, key_limits: {} });
});
