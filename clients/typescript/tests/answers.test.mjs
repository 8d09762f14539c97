/** How answers are read. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromAnswer } from "../dist/values.js";

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
