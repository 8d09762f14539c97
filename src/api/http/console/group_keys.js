// @ts-check
// The keys of a fair group: which are busy, what they wait for, and which are paused.

import { call, path } from "./api.js";
import { command } from "./command.js";
import { ask } from "./dialog.js";
import { element } from "./dom.js";
import { NOTHING, counted, number, relative } from "./format.js";
import { button, foreign, table, time } from "./parts.js";
import { MAY_CHANGE } from "./place.js";

/** What the next message of a key waits for. @type {Record<string, string>} */
const WAITS = { key_paused: "the end of its pause", key_at_max_in_flight: "a delivery of it to end", key_rate_limited: "its rate" };

/**
 * The keys of a fair group that have the most messages due or in flight, and those that are paused.
 * @param {string} topic
 * @param {any} description Of the group.
 * @param {() => void} changed Is called when a key was paused or resumed.
 */
export function keyTable(topic, { group, keys }, changed) {
  const { busiest, complete, count, paused = [], paused_count = 0 } = keys;
  const isPaused = new Set(paused.map((/** @type {any} */ each) => each.key));
  /** @param {string | undefined} key */
  const toPause = (key) => (key === undefined || isPaused.has(key) ? "" :
    button("Pause…", () => void pauseKey(topic, group, key).then(changed), { class: "small", "data-key": `pause-key-${key}`, "aria-label": `Pause ${key}…` }));
  /** @param {string} key */
  const toResume = (key) => button("Resume", () => void resumeKey(topic, group, key).then(changed), { class: "small", "data-key": `resume-key-${key}`, "aria-label": `Resume ${key}` });
  /** @param {any} cell */
  const may = (cell) => (MAY_CHANGE ? [cell] : []);
  const action = MAY_CHANGE ? ["Actions"] : [];
  const heads = ["Key", "Ready", "In flight", "Waits for", "Until", ...action].map((head, at) => ({ head, number: at === 1 || at === 2 }));
  const rows = busiest.map((/** @type {any} */ each) => ({ key: `key ${each.key ?? ""}`, cells: [
    each.key === undefined ? element("span", { class: "quiet" }, "messages without a key") : foreign(each.key, 60), number(each.ready), number(each.in_flight),
    each.reason ? WAITS[each.reason] ?? each.reason.replaceAll("_", " ") : element("span", { class: "quiet" }, NOTHING), time(each.until), ...may(toPause(each.key))] }));
  const pauses = paused.map((/** @type {any} */ each) => ({ key: `paused ${each.key}`, cells: [foreign(each.key, 60), time(each.paused_until), ...may(toResume(each.key))] }));
  const pausedHeads = ["Key", "Paused until", ...action].map((head) => ({ head, number: false }));
  const shown = paused_count > paused.length ? `; these ${number(paused.length)} are free first` : "";
  const all = `${counted(count, "key")} ${count === 1 ? "has" : "have"} messages due or in flight`;
  return [
    rows.length ? table(`Keys of ${group}`, heads, rows, { hidden: true }) : null,
    element("p", { class: "quiet" }, count > busiest.length ? `${all}; these are the ${number(busiest.length)} with the most.` : `${all}.`),
    complete ? null : element("p", { class: "quiet" }, "Partitions are missing in it: nobody consumes from them, or their owner did not answer."),
    pauses.length ? table(`Paused keys of ${group}`, pausedHeads, pauses, { hidden: true }) : null,
    pauses.length ? element("p", { class: "quiet" }, `${counted(paused_count, "key")} paused${shown}.`) : null,
  ];
}

/**
 * @param {string} topic
 * @param {string} group
 * @param {string} key
 */
function pauseKey(topic, group, key) {
  return ask({
    title: `Pause ${key}`,
    body: element("p", {}, "No message of this key is delivered until the pause ends or it is resumed. Other keys do not wait."),
    fields: [{ name: "for", label: "For", hint: "10m, 2h, 1d", value: "10m", required: true }],
    confirm: "Pause",
    line: (values) => command("group pause", [topic, group], { key, ...values }),
    run: async (values) => {
      const now = await call("POST", path`/v1/topics/${topic}/groups/${group}/keys/${key}/pause`, { json: values });
      return [foreign(key, 60), ` is paused for ${relative(new Date(now.paused_until)).replace(/^in /, "")}.`];
    },
  });
}

/**
 * @param {string} topic
 * @param {string} group
 * @param {string} key
 */
function resumeKey(topic, group, key) {
  return ask({
    title: `Resume ${key}`,
    body: element("p", {}, "Messages of this key are delivered again."),
    confirm: "Resume",
    line: () => command("group resume", [topic, group], { key }),
    run: async () => {
      await call("POST", path`/v1/topics/${topic}/groups/${group}/keys/${key}/resume`);
      return [foreign(key, 60), " is resumed."];
    },
  });
}
