/** Runs the small programs of `examples`, each against a broker. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startBroker } from "dwell-client/testing";

let broker;
before(async () => (broker = await startBroker()));
after(() => broker.stop());

/** Runs a program until it ends. `onLine` sees each line that it prints. */
async function run(args, onLine = () => {}) {
  const cwd = fileURLToPath(new URL("../examples", import.meta.url));
  // Of a test that a test runs, the reports would go to the outer one.
  const { NODE_TEST_CONTEXT: _, ...env } = { ...process.env, DWELL_SERVER: broker.server };
  const child = spawn(process.execPath, args, { cwd, env, stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part) => {
    text += part;
    onLine(text, child);
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), 60_000);
  const [code, signal] = await new Promise((resolve) => child.once("close", (...ended) => resolve(ended)));
  clearTimeout(timer);
  assert.deepEqual([code, signal], [0, null], text);
  return text;
}

test("1,000 messages are pushed", async () => {
  assert.equal(await run(["push-1000.mjs"]), "pushed 1000 messages\n");
  assert.equal((await broker.client.topic("reminders")).totals[0].scheduled, 1000);
});

test("half of the messages are cancelled", async () => {
  assert.equal(await run(["cancel-half.mjs"]), "cancelled 50, 50 are left\n");
  assert.equal((await broker.client.topic("unpaid")).totals[0].scheduled, 50);
});

test("a worker fails", async () => {
  const lines = (await run(["failing-worker.mjs"])).trim().split("\n").sort();
  assert.deepEqual(lines, [
    "declined is dead after 2 attempts: CardDeclined: the card was declined",
    "paid busy at attempt 2",
    "unknown is dead after 1 attempts: Bury: there is no such order",
  ]);
});

test("a worker stops gracefully", async () => {
  let isStopping = false;
  const text = await run(["graceful-stop.mjs"], (soFar, child) => {
    if (isStopping || (soFar.match(/begun/g) ?? []).length < 4) return;
    isStopping = true;
    child.kill("SIGTERM");
  });
  const begun = text.match(/begun/g).length;
  assert.equal(text.match(/^sent/gm).length, begun);
  assert.match(text, new RegExp(`stopped: ${begun} sent, 0 given back`));
  const [{ ready, inFlight }] = (await broker.client.topic("mails")).totals;
  assert.deepEqual([ready, inFlight], [20 - begun, 0]);
});

test("a test moves the clock", async () => {
  assert.match(await run(["--test", "--test-reporter=tap", "clock.test.mjs"]), /# pass 1\n# fail 0/);
});
