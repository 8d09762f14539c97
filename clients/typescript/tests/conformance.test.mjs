/** Plays the vectors of clients/conformance. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Bury, Client, Producer, Retry, Worker } from "dwell-client";
import { call, camelKeys, contains, message, plain, raised } from "./calls.mjs";
import { lab } from "./lab.mjs";

const outcomeOf = (promise) => promise.then((result) => ({ result }), (error) => ({ error }));

function compare({ raises, returns, returns_count: count }, { result, error }, server) {
  if (raises) return raised(raises, error, server);
  if (error) throw error;
  if (returns) contains(returns, plain(result), server);
  if (count) assert.equal(result.length, count);
}

async function produce(client, calls, server) {
  for (const step of calls) compare(step, await outcomeOf(call(client, step)), server);
}

async function gather(client, { producer: options, steps }, server) {
  const { batch, buffer, buffer_bytes: bufferBytes, at_once: batchesInFlight, linger } = options;
  const given = { batchMessages: batch, bufferMessages: buffer, bufferBytes, batchesInFlight, linger };
  const producer = new Producer(client, Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)));
  const pushes = {};
  for (const step of steps) {
    if (step.push) {
      const { topic, ...fields } = step.push;
      const { payload, ...rest } = message(fields);
      const caller = new AbortController();
      pushes[step.as] = { caller, outcome: outcomeOf(producer.push(topic, payload, { ...rest, signal: caller.signal })) };
      await lab("/mark", { name: "pushed" });
    } else if (step.cancel) {
      pushes[step.cancel].caller.abort();
      await lab("/mark", { name: "cancelled" });
    } else if (step.wait) assert.ok((await lab("/wait", { when: step.wait })).is_met, JSON.stringify(step.wait));
    else if (step.flush) await producer.flush();
    else if (step.close) await producer.close();
    else compare(step, await pushes[step.answer].outcome, server);
  }
  await producer.close();
}

/** Fails with a stack that is so many calls deep. */
function panic(text, depth = 0) {
  if (depth > 0) return panic(text, depth - 1);
  throw new Error(text);
}

async function work(client, vector) {
  const wrong = [];
  const { topic, ...options } = vector.worker;
  const onWarning = () => {};
  const events = {};
  const onEvent = (name) => (events[name] = (events[name] ?? 0) + 1);
  const handle = async (delivery, { signal }) => {
    await lab("/mark", { name: "begun" });
    const script = vector.handlers[delivery.id] ?? {};
    if (script.delivery) {
      try {
        contains(script.delivery, plain({ ...delivery }));
      } catch (error) {
        wrong.push(error);
      }
    }
    if (script.when && !(await lab("/wait", { when: script.when })).is_met) wrong.push(`${delivery.id} waited for ${JSON.stringify(script.when)}`);
    if (script.extend) {
      const { result, error } = await outcomeOf(delivery.extend(script.extend));
      if (!script.raises && (error || result !== script.is_ours)) wrong.push(`extend of ${delivery.id}: ${error ?? result}`);
      try {
        if (script.raises) raised(script.raises, error);
      } catch (failure) {
        wrong.push(failure);
      }
    }
    const then = script.then ?? "return";
    if (then === "lost" && !signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
    await lab("/mark", { name: then === "lost" ? "lost" : "handled" });
    if (then.raise) throw new Error(then.raise.repeat(then.times ?? 1));
    if (then.panic) panic(then.panic, then.depth);
    if (then.retry) throw new Retry(then.reason, { after: then.retry, pauseKey: then.pause_key });
    if (then.bury) throw new Bury(then.bury);
  };
  const create = async () => new Worker(client, topic, handle, { ...camelKeys(options), onWarning, onEvent });
  const { result: worker, error: refused } = await outcomeOf(create());
  if (refused) return raised(vector.raises, refused);
  const run = worker.run().then(() => undefined, (error) => error);
  if (vector.stop) {
    if (!(await lab("/wait", { when: vector.stop.when })).is_met) wrong.push(`there was never ${JSON.stringify(vector.stop.when)}`);
    await lab("/mark", { name: "stopping" });
    void worker.stop();
  }
  const error = await run;
  assert.deepEqual(wrong, []);
  contains(vector.stats, worker.stats);
  const { inFlight, lateness, lastPoll, ...counters } = worker.stats;
  delete events.settled;
  assert.deepEqual(Object.fromEntries(Object.entries(counters).filter(([, count]) => count)), events);
  if (vector.raises) raised(vector.raises, error);
  else assert.equal(error, undefined);
}

for (const { file, name } of await lab("/vectors")) {
  test(name, async () => {
    const { server, token_file, vector } = await lab("/vector", { file, name });
    const retryFor = vector.client?.retry_for ?? "30s";
    const token = "token" in vector ? { tokenFile: token_file } : {};
    const options = { timeout: "10s", ...token, ...(retryFor === "default" ? {} : { retryFor }) };
    const client = new Client(server, options);
    let failures = [];
    try {
      if (vector.worker) await work(client, vector);
      else if (vector.producer) await gather(client, vector, server);
      else await produce(client, vector.calls, server);
    } finally {
      ({ failures } = await lab("/vector/end"));
      client.close();
    }
    assert.deepEqual(failures, []);
  });
}
