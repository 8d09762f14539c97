// @ts-check
// All topics, and how the broker is.

import { Problem, call, each, path, text } from "./api.js";
import { command } from "./command.js";
import { draw, element } from "./dom.js";
import { NOTHING, bytes, lateness, number, perSecond, span } from "./format.js";
import { samples } from "./metrics.js";
import { button, chip, empty, facts, link, section, shell, table } from "./parts.js";
import { MAY_CHANGE, go, to } from "./place.js";

/** Topics on a page: each costs a request. */
const PAGE = 50;

/** Requests at the same time. */
const TOGETHER = 4;

/** @typedef {{name: string, scheduled: number, ready: number, in_flight: number, dead: number, oldest: number, late: any, pushed?: number, delivered?: number}} Row */

/** @type {{by: keyof Row, down: boolean}} */
const order = { by: "name", down: false };

/**
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function overview(place, page) {
  const broker = element("div", {});
  const topics = element("div", {});
  page.body.append(section("Broker", broker), section("Topics", element("div", { class: "bar apart" }, finder(place), opener()), topics));
  /** @type {Row[]} */
  let rows = [];
  let names = /** @type {string[]} */ ([]);
  const show = () => draw(topics, listed(place, names, rows, show));
  page.follow(async (health) => {
    samples.add(await text("/metrics", page));
    draw(broker, brokerFacts(health));
    // While the store is unavailable nobody knows the topics, and how the broker is matters most.
    const list = await call("GET", "/v1/topics", page);
    names = list.topics.filter((/** @type {string} */ name) => name.includes(place.given.filter ?? ""));
    const from = pageOf(place, names) * PAGE;
    const found = await each(names.slice(from, from + PAGE), TOGETHER, (name) => rowOf(name, page.signal));
    rows = /** @type {Row[]} */ (found.filter((row) => row !== undefined));
    show();
  });
  return { title: "Overview", plain: "Overview", crumbs: [] };
}

/**
 * @param {string} name
 * @param {AbortSignal} signal
 * @returns {Promise<Row | undefined>} Nothing when it was deleted meanwhile.
 */
async function rowOf(name, signal) {
  try {
    const { totals } = await call("GET", path`/v1/topics/${name}`, { signal });
    const sum = (/** @type {string} */ state) =>
      totals.reduce((/** @type {number} */ all, /** @type {any} */ group) => all + group[state], 0);
    const ages = totals.map((/** @type {any} */ group) => group.oldest_ready_age_ms ?? 0);
    return {
      name, scheduled: sum("scheduled"), ready: sum("ready"), in_flight: sum("in_flight"), dead: sum("dead"),
      oldest: Math.max(...ages), late: samples.lateness(0.99, { topic: name }),
      pushed: accepted({ topic: name }),
      delivered: samples.rate("dwell_deliveries_total", { topic: name }),
    };
  } catch (error) {
    if (error instanceof Problem && (error.status === 404 || error.status === 0)) return undefined;
    throw error;
  }
}

/**
 * How many messages a second are taken in; nothing before the second sample.
 * @param {Record<string, string>} labels
 */
function accepted(labels) {
  const all = samples.rate("dwell_pushes_total", labels);
  return all === undefined ? undefined : all - (samples.rate("dwell_pushes_total", { ...labels, outcome: "failed" }) ?? 0);
}

/** @param {any} health */
function brokerFacts(health) {
  const store = health.store;
  const late = samples.lateness(0.99);
  return [
    facts([
      ["Status", chip(restoring() ? "restoring" : health.status)],
      ["Pushed", perSecond(accepted({}))],
      ["Handed out", perSecond(samples.rate("dwell_deliveries_total"))],
      ["Lateness p99", lateness(late)],
      ["Write-ahead log", log("wal")],
      ["Journal", log("journal")],
    ], "tiles"),
    health.detail ? element("p", { class: "note warn" }, health.detail) : null,
    store ? facts([["Store", [`${store.kind}, `, element("bdi", {}, store.location)]], ["Durability", store.durability]], "facts wide") : null,
  ];
}

/** Whether the brokers still give back what Redis lost, so that counts are too low. */
function restoring() {
  return samples.now("dwell_restoring") > 0;
}

/** @param {string} log */
function log(log) {
  const records = samples.now("dwell_wal_records", { log });
  const size = bytes(samples.now("dwell_wal_bytes", { log }));
  const age = samples.now("dwell_wal_oldest_age_seconds", { log });
  if (records === 0) return [element("span", {}, "empty"), " ", element("span", { class: "quiet" }, `${size} on disk`)];
  return [`${number(records)} waiting`, " ", element("span", { class: "quiet" }, `oldest ${span(age * 1_000)}, ${size}`)];
}

/** @param {import("./place.js").Place} place */
function finder(place) {
  const input = element("input", { id: "filter", name: "filter", type: "search", value: place.given.filter, autocomplete: "off" });
  const submitted = (/** @type {Event} */ event) => {
    event.preventDefault();
    go(to([], { filter: input.value }));
  };
  return element("form", { class: "bar", role: "search", onsubmit: submitted },
    element("label", { for: "filter" }, "Name contains"), input, element("button", { type: "submit" }, "Filter"),
    place.given.filter ? link(to([]), "All topics") : null);
}

/** Goes to the push form of a topic, which need not be there yet. */
function opener() {
  if (!MAY_CHANGE) return null;
  const input = element("input", { id: "topic", required: true, pattern: "[A-Za-z0-9._\\-]{1,100}", autocomplete: "off",
    title: "1 to 100 of A-Z a-z 0-9 . _ -" });
  const submitted = (/** @type {Event} */ event) => {
    event.preventDefault();
    go(to(["topics", input.value, "push"]));
  };
  return element("form", { class: "bar", onsubmit: submitted },
    element("label", { for: "topic" }, "Push to topic"), input, element("button", { type: "submit" }, "Open the form"));
}

/**
 * The page that is asked for, from 0 on, as far as there are so many.
 * @param {import("./place.js").Place} place
 * @param {string[]} names
 */
function pageOf(place, names) {
  const last = Math.max(Math.ceil(names.length / PAGE) - 1, 0);
  return Math.min(Math.max(Number.parseInt(place.given.page ?? "1", 10) - 1 || 0, 0), last);
}

/**
 * @param {import("./place.js").Place} place
 * @param {string[]} names
 * @param {Row[]} rows
 * @param {() => void} show
 */
function listed(place, names, rows, show) {
  if (names.length === 0 && place.given.filter) return empty("No topic has this in its name.", link(to([]), "Show all topics"));
  if (names.length === 0) {
    return empty("There are no topics yet.", element("p", {}, "The first push to a topic makes it."),
      shell(command("push", ["orders", "close order 4711"], { delay: "30m", key: "customer-7" }), "Push a first message"));
  }
  const sorted = [...rows].sort((a, b) => {
    const one = sortable(a[order.by]), other = sortable(b[order.by]);
    return (one < other ? -1 : one > other ? 1 : 0) * (order.down ? -1 : 1);
  });
  const at = pageOf(place, names);
  const over = samples.span > 0 ? `the last ${span(samples.span)}` : "the time since it began";
  return [
    table(`Topics ${number(at * PAGE + 1)} to ${number(at * PAGE + rows.length)} of ${number(names.length)}`,
      heads(show), sorted.map(cells)),
    element("p", { class: "hint" }, `Counts are over all groups. Lateness is what 99 of 100 hand-overs stayed below, rates are a
      second, both of this broker in ${over}.`),
    restoring() ? element("p", { class: "note warn" }, "Redis lost data, and the brokers give it back: counts are too low until they have.") : null,
    pages(place, names, at),
  ];
}

/** @param {any} value */
function sortable(value) {
  if (typeof value === "object" && value !== null) return value.ms;
  return value ?? -1;
}

/** @param {() => void} show */
function heads(show) {
  /** @type {[keyof Row, string][]} */
  const columns = [["name", "Topic"], ["scheduled", "Scheduled"], ["ready", "Ready"], ["in_flight", "In flight"], ["dead", "Dead"],
    ["oldest", "Oldest ready"], ["late", "Lateness p99"], ["pushed", "Pushed"], ["delivered", "Handed out"]];
  return columns.map(([by, words]) => {
    const chosen = order.by === by;
    const sort = () => {
      order.down = chosen ? !order.down : by !== "name";
      order.by = by;
      show();
    };
    const sign = element("span", { "aria-hidden": "true" }, chosen ? (order.down ? " ↓" : " ↑") : "");
    const head = button("", sort, { class: "sort", "data-key": `sort-${by}` });
    head.append(words, sign);
    return { head, number: by !== "name", sort: chosen ? (order.down ? "descending" : "ascending") : undefined };
  });
}

/** @param {Row} row */
function cells(row) {
  const dead = row.dead > 0 ? link(to(["topics", row.name, "dead"]), number(row.dead)) : number(0);
  if (dead instanceof Element) dead.setAttribute("aria-label", `${number(row.dead)} dead of ${row.name}`);
  const name = link(to(["topics", row.name]), row.name);
  name.setAttribute("data-key", `topic-${row.name}`);
  return {
    key: row.name,
    cells: [name, number(row.scheduled), number(row.ready), number(row.in_flight), dead, row.oldest ? span(row.oldest) : NOTHING,
      lateness(row.late), perSecond(row.pushed), perSecond(row.delivered)],
  };
}

/**
 * @param {import("./place.js").Place} place
 * @param {string[]} names
 * @param {number} at
 */
function pages(place, names, at) {
  const last = Math.ceil(names.length / PAGE) - 1;
  if (last <= 0) return null;
  const place_of = (/** @type {number} */ page) => to([], { filter: place.given.filter, page: page + 1 });
  return element("nav", { "aria-label": "Pages of topics", class: "bar" },
    at > 0 ? link(place_of(at - 1), "Previous page") : null,
    element("span", {}, `Page ${number(at + 1)} of ${number(last + 1)}`),
    at < last ? link(place_of(at + 1), "Next page") : null);
}
