/** Ids of messages that are pushed without one. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ulid } from "../dist/values.js";

test("ids are unique and count up in runs", () => {
  const ids = Array.from({ length: 40_000 }, ulid);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ids) assert.match(id, /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
  const runs = new Set(ids.map((id) => id.slice(0, 23))).size;
  assert.ok(runs >= ids.length / 250 && runs <= ids.length / 10, `${runs} runs`);
});

test("a run of ids ends with its time", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 2_000_000_000_000 });
  const first = ulid();
  t.mock.timers.setTime(2_000_000_000_004);
  const second = ulid();
  assert.equal(second.slice(0, 23), first.slice(0, 23));
  assert.ok(second > first);
  for (const now of [2_000_000_000_005, 1_999_999_999_000]) {
    t.mock.timers.setTime(now);
    assert.notEqual(ulid().slice(0, 23), first.slice(0, 23));
  }
});
