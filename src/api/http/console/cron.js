// @ts-check
// The cron jobs of a topic.

import { call, path, query } from "./api.js";
import { command } from "./command.js";
import { ask } from "./dialog.js";
import { draw, element } from "./dom.js";
import { span } from "./format.js";
import { headingOf, tabs } from "./frame.js";
import { placeOfMessage } from "./messages.js";
import { button, chip, empty, foreign, link, section, shell, table, time } from "./parts.js";
import { preview } from "./payload.js";
import { MAY_CHANGE, to } from "./place.js";

/**
 * @param {string} topic
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function cron(topic, place, page) {
  const list = element("div", { "aria-live": "polite" });
  page.body.append(tabs(topic, "Cron jobs", place.given.group), section("Cron jobs", list));
  const reload = () => page.reads(async () => {
    const found = await call("GET", `${path`/v1/topics/${topic}/cron`}${query({ cursor: place.given.cursor })}`, page);
    draw(list, listed(topic, found, reload), shell(command("cron list", [topic])));
  });
  void reload();
  return headingOf(topic, "Cron jobs");
}

/**
 * @param {string} topic
 * @param {any} found
 * @param {() => void} reload
 */
function listed(topic, found, reload) {
  const create = MAY_CHANGE ? element("div", { class: "actions" }, button("Create cron job…", () => void put(topic).then(reload))) : null;
  if (found.cron_jobs.length === 0 && !found.next_cursor) {
    return [empty("There are no cron jobs.", element("p", {}, "A cron job pushes a message at each of its times."),
      shell(command("cron create", [topic, "nightly", "close the books"], { cron: "0 3 * * *" }), "Create one")), create];
  }
  const heads = ["Name", "State", "Occurs", "Next at", "Missed", "Payload"];
  if (MAY_CHANGE) heads.push("Actions");
  const rows = found.cron_jobs.map((/** @type {any} */ entry) => {
    const cells = [entry.name, chip(entry.state), occurs(entry), entry.failure ?? time(entry.next_at), entry.missed, preview(entry)];
    return { key: entry.name, cells: MAY_CHANGE ? [...cells, actions(topic, entry, reload)] : cells };
  });
  const next = found.next_cursor
    ? element("nav", { "aria-label": "Pages of cron jobs", class: "bar" }, link(to(["topics", topic, "cron"], { cursor: found.next_cursor }), "Next page"))
    : null;
  return [table("Cron jobs, partition by partition", heads.map((head) => ({ head })), rows, { hidden: true }), next, create];
}

/** @param {any} entry */
function occurs(entry) {
  if (entry.every_ms) return `every ${span(entry.every_ms)}`;
  if (!entry.cron) return "never";
  return element("span", {}, element("bdi", { class: "mono" }, entry.cron), " ", foreign(entry.time_zone));
}

/**
 * @param {string} topic
 * @param {any} entry
 * @param {() => void} reload
 */
function actions(topic, entry, reload) {
  const offer = (/** @type {string} */ word, /** @type {() => Promise<boolean>} */ act, danger = false) =>
    button(`${word}…`, () => void act().then(reload), { class: danger ? "small danger" : "small", "aria-label": `${word} ${entry.name}…`, "data-key": `${word}-${entry.name}` });
  return element("div", { class: "actions" }, offer("Run now", () => run(topic, entry)),
    entry.paused ? offer("Resume", () => change(topic, entry.name, "resume", "Resume")) : offer("Pause", () => change(topic, entry.name, "pause", "Pause")),
    offer("Change", () => put(topic, entry)), offer("Delete", () => remove(topic, entry.name), true));
}

/** What a message of a cron job carries. @param {any} entry */
const carried = ({ payload, payload_base64, content_type, meta, ttl_ms, max_attempts }) => ({ payload, payload_base64, content_type, meta, ttl_ms, max_attempts });

/**
 * Pushes the message of a cron job; its next time stays as it is.
 * @param {string} topic
 * @param {any} entry
 */
function run(topic, entry) {
  return ask({
    title: `Run ${entry.name} now`,
    body: element("p", {}, "Its message is pushed once, due at once. The next occurrence stays as it is."),
    confirm: "Run now",
    line: () => command("push", [topic, entry.payload ?? ""], { key: entry.name, "content-type": entry.content_type }),
    run: async () => {
      const pushed = await call("POST", path`/v1/topics/${topic}/messages`, { json: { ...carried(entry), key: entry.name } });
      return ["Pushed as ", link(placeOfMessage(topic, { id: pushed.id, key: entry.name }), element("span", { class: "mono" }, pushed.id)), "."];
    },
  });
}

/**
 * Creates a cron job, or changes one.
 * @param {string} topic
 * @param {any} [entry] The one that there is.
 */
function put(topic, entry) {
  const binary = entry?.payload_base64 !== undefined;
  /** @type {import("./dialog.js").Field[]} */
  const fields = [
    { name: "name", label: "Name", required: true, shown: () => !entry, value: entry?.name },
    { name: "kind", label: "Occurs", value: entry?.every_ms ? "every" : "cron", type: [["cron", "by a cron expression"], ["every", "at equal intervals"]] },
    { name: "cron", label: "Cron expression", hint: "Minute, hour, day of month, month, day of week: 0 3 * * *; or @daily", value: entry?.cron, shown: ({ kind }) => kind !== "every" },
    { name: "time_zone", label: "Time zone", hint: "Europe/Berlin; empty: UTC", value: entry?.time_zone, shown: ({ kind }) => kind !== "every" },
    { name: "every", label: "Every", hint: "15m, 1h, 1d", value: entry?.every_ms && `${entry.every_ms}ms`, shown: ({ kind }) => kind === "every" },
    { name: "missed", label: "Missed occurrences", value: entry?.missed ?? "last", type: [["last", "the last one is pushed later"], ["all", "all are pushed later"], ["skip", "none is pushed later"]] },
    { name: "payload", label: "Payload", type: "area", value: entry?.payload, shown: () => !binary },
  ];
  return ask({
    title: entry ? `Change ${entry.name}` : "Create cron job",
    fields,
    confirm: entry ? "Change" : "Create",
    line: ({ name = "", payload = "", cron, time_zone, every, missed }) => command(entry ? "cron update" : "cron create", [topic, entry?.name ?? name, payload], { cron, "time-zone": time_zone, every, missed }),
    run: async ({ name, payload = "", cron, time_zone, every, missed }) => {
      const kept = entry ? carried(entry) : {}, from = every ? entry?.from : undefined;
      const json = { ...kept, cron, time_zone, every, from, missed, ...(binary ? {} : { payload }) };
      await call("PUT", path`/v1/topics/${topic}/cron/${entry?.name ?? name}`, { json });
      return [`${entry?.name ?? name} is ${entry ? "changed" : "created"}.`];
    },
  });
}

/** @param {string} topic @param {string} name */
function remove(topic, name) {
  return ask({
    title: `Delete ${name}`,
    body: element("p", {}, "Nothing more is pushed. Messages that it pushed stay."),
    confirm: "Delete for good",
    danger: true,
    line: () => command("cron delete", [topic, name]),
    run: async () => {
      await call("DELETE", path`/v1/topics/${topic}/cron/${name}`);
      return [`${name} is deleted.`];
    },
  });
}

/**
 * @param {string} topic
 * @param {string} name
 * @param {"pause" | "resume"} verb
 * @param {string} word
 */
function change(topic, name, verb, word) {
  return ask({
    title: `${word} ${name}`,
    body: element("p", {}, verb === "pause" ? "Nothing is pushed until it is resumed." : "It continues with the first occurrence from now on; what occurred meanwhile is not made up for."),
    confirm: word,
    line: () => command(`cron ${verb}`, [topic, name]),
    run: async () => {
      await call("POST", path`/v1/topics/${topic}/cron/${name}/${verb}`);
      return [`${name} is ${verb}d.`];
    },
  });
}
