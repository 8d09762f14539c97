// @ts-check
// Creates, changes and deletes topics, groups and cron jobs.

import { Problem, call, path } from "./api.js";
import { command } from "./command.js";
import { ask } from "./dialog.js";
import { element } from "./dom.js";
import { objectOf } from "./objects.js";
import { to } from "./place.js";
import { windowOf } from "./window.js";

/** @typedef {import("./dialog.js").Field} Field */
/** @typedef {import("./dialog.js").Values} Values */

const NAME = { pattern: "[A-Za-z0-9._\\-]{1,100}", title: "1 to 100 of A-Z a-z 0-9 . _ -" };

/** A duration as the API takes it. @param {number | undefined} ms */
const spelled = (ms) => (ms === undefined ? undefined : ms === 0 ? "0s" : `${ms}ms`);

/** Settings that can be changed later, as fields. @param {any} [settings] Those that there are. @returns {Field[]} */
function settingFields(settings = {}) {
  const number = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint, /** @type {number} */ max) =>
    /** @type {Field} */ ({ name, label, hint, type: "number", value: settings[name] === undefined ? undefined : String(settings[name]), more: { min: 0, max, step: 1 } });
  const time = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint) =>
    /** @type {Field} */ ({ name, label, hint, value: spelled(settings[`${name}_ms`]) });
  return [
    time("visibility_timeout", "Visibility timeout", "For how long a consumer has a delivery: 30s, 5m"),
    number("max_attempts", "Max attempts", "0: without a limit", 1_000),
    time("ttl", "Time to live", "From the due time; 0s: indefinitely"),
    { name: "on_expiry", label: "A message that expires", value: settings.on_expiry, type: [["drop", "is dropped"], ["bury", "becomes a dead letter"]] },
    time("dedup_window", "Dedup window", "For how long an acked id stays a duplicate; 0s: not at all"),
    time("dead_max_age", "Keep dead letters for", "0s: indefinitely"),
  ];
}

/** What the API takes of these values. @param {Values} values */
function settingsOf({ topic: _, ...values }) {
  const numbers = ["partitions", "max_attempts"].filter((name) => values[name] !== undefined).map((name) => [name, Number(values[name])]);
  return { ...values, ...Object.fromEntries(numbers) };
}

/** The same as flags. @param {Values} values */
const flags = (values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name.replaceAll("_", "-"), value]));

export function createTopic() {
  return ask({
    title: "Create topic",
    body: element("p", {}, "The number of partitions and the ordering cannot be changed later."),
    fields: [{ name: "topic", label: "Name", required: true, more: NAME },
      { name: "partitions", label: "Partitions", type: "number", value: "8", more: { min: 1, max: 1_024, step: 1 } },
      { name: "ordering", label: "Ordering", type: [["none", "none"], ["key", "the messages of a key one after the other"]] }, ...settingFields()],
    confirm: "Create topic",
    line: ({ topic = "", ...values }) => command("topic create", [topic], flags(values)),
    run: async (values) => {
      await call("PUT", path`/v1/topics/${values.topic}`, { json: settingsOf(values) });
      return [`${values.topic} is created.`];
    },
    next: ({ topic }) => to(["topics", topic]),
  });
}

/**
 * @param {string} topic
 * @param {any} settings
 */
export function changeTopic(topic, settings) {
  return ask({
    title: `Change ${topic}`,
    body: element("p", {}, "All brokers take the new settings over within seconds."),
    fields: settingFields(settings),
    confirm: "Change settings",
    line: (values) => command("topic update", [topic], flags(values)),
    run: async (values) => {
      await call("PUT", path`/v1/topics/${topic}`, { json: settingsOf(values) });
      return [`The settings of ${topic} are changed.`];
    },
  });
}

/** A field in which a name has to be typed. @param {string} what @param {string} name @returns {Field} */
const typed = (what, name) => ({ name: "typed", label: `Type the name of the ${what}, ${name}, to confirm`, required: true });

/** @param {string} name @param {Values} values */
function confirmed(name, values) {
  if (values.typed !== name) throw new Problem("Nothing is deleted", `"${values.typed}" is not ${name}.`);
}

/** @param {string} topic */
export function deleteTopic(topic) {
  return ask({
    title: `Delete ${topic}`,
    body: element("p", {}, "The topic is deleted for good, with all its groups, messages, dead letters and cron jobs."),
    fields: [typed("topic", topic)],
    confirm: "Delete for good",
    danger: true,
    line: () => command("topic delete", [topic], { yes: true }),
    run: async (values) => {
      confirmed(topic, values);
      await call("DELETE", path`/v1/topics/${topic}`);
      return [`${topic} is deleted.`];
    },
    next: () => to([]),
  });
}

/** @param {string} topic @param {string[]} groups Those that there are. */
export function createGroup(topic, groups) {
  const limits = (/** @type {Values} */ { rate, max_in_flight, copy_of, window, fair, key_max_in_flight, key_rate, key_burst, key_limits, weights }) =>
    ({ copy_of, rate: rate ? Number(rate) : undefined, max_in_flight: max_in_flight ? Number(max_in_flight) : undefined, window: window ? windowOf(window) : undefined, fair: fair || undefined,
      key_max_in_flight: key_max_in_flight ? Number(key_max_in_flight) : undefined, key_rate: key_rate ? Number(key_rate) : undefined, key_burst: key_burst ? Number(key_burst) : undefined,
      key_limits: key_limits ? objectOf(key_limits) : undefined, weights: weights ? objectOf(weights) : undefined });
  return ask({
    title: `Create a group of ${topic}`,
    body: element("p", {}, "A new group gets every message that is pushed from now on."),
    fields: [{ name: "group", label: "Name", required: true, more: NAME },
      { name: "copy_of", label: "Begins with", type: [["", "nothing"], ...groups.map((group) => /** @type {[string, string]} */ ([group, `a copy of ${group}`]))] },
      { name: "rate", label: "Rate", type: "number", hint: "Messages a second; empty: no limit" },
      { name: "max_in_flight", label: "Max in flight", type: "number", hint: "Deliveries; empty: no limit" },
      { name: "window", label: "Window", hint: "mon-fri 09:00-17:30 Europe/Berlin; empty: always open" },
      { name: "fair", label: "Fair", type: [["", "no: the first due is first"], ["key", "by key: each key has its share"]] },
      { name: "key_max_in_flight", label: "Max in flight of a key", type: "number", hint: "Deliveries, if it is fair; empty: no limit" },
      { name: "key_rate", label: "Rate of a key", type: "number", hint: "Deliveries a second, if it is fair; empty: no limit" },
      { name: "key_burst", label: "Burst of a key", type: "number", hint: "Deliveries at once, with a rate of a key; empty: 1" },
      { name: "key_limits", label: "Limits of some keys", hint: '{"gold-*": {"max_in_flight": 20, "rate": 50}}; empty: none' },
      { name: "weights", label: "Weights of keys", hint: '{"customer-7": 3, "gold-*": 2}; empty: all have 1' }],
    confirm: "Create group",
    line: ({ group = "", ...values }) => command("group create", [topic, group], flags(values)),
    run: async (values) => {
      await call("PUT", path`/v1/topics/${topic}/groups/${values.group}`, { json: limits(values) });
      return [`${values.group} is created.`];
    },
  });
}

/** @param {string} topic @param {string} group */
export function deleteGroup(topic, group) {
  return ask({
    title: `Delete ${group}`,
    body: element("p", {}, `The group is deleted for good, with its messages and dead letters. Other groups of ${topic} keep theirs.`),
    fields: [typed("group", group)],
    confirm: "Delete for good",
    danger: true,
    line: () => command("group delete", [topic, group], { yes: true }),
    run: async (values) => {
      confirmed(group, values);
      await call("DELETE", path`/v1/topics/${topic}/groups/${group}`);
      return [`${group} is deleted.`];
    },
  });
}

/** Goes to the form of a new message of a topic, which need not be there yet. */
export function newMessage() {
  return ask({
    title: "New message",
    fields: [{ name: "topic", label: "Topic", required: true, hint: "Is created if it does not exist", more: NAME }],
    confirm: "Continue",
    run: async () => [],
    next: ({ topic }) => to(["topics", topic, "push"]),
  });
}
