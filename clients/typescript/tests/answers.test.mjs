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
