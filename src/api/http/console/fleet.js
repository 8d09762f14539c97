// @ts-check
// All brokers that share the store, and which one this page talks to.

import { call } from "./api.js";
import { command } from "./command.js";
import { statusOf } from "./age.js";
import { draw, element } from "./dom.js";
import { bytes, counted, number } from "./format.js";
import { heard } from "./groups.js";
import { chip, facts, section, shell, table, time } from "./parts.js";

/**
 * @param {import("./place.js").Place} _place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function fleet(_place, page) {
  const list = element("div", {}), store = element("div", {});
  page.body.append(section("Brokers", list), section("Store", store));
  page.follow(async (health) => {
    draw(store, health.store ? facts([["Kind", health.store.kind], ["Location", element("bdi", {}, health.store.location)], ["Durability", health.store.durability]]) : null,
      health.detail ? element("p", { class: "note warn" }, health.detail) : null);
    const { brokers } = await call("GET", "/v1/brokers", page);
    draw(list, listed(brokers, health));
  });
  return { title: "Fleet", plain: "Fleet", crumbs: [["Overview", "#/"]] };
}

/**
 * @param {any[]} brokers
 * @param {any} health Of the broker that answers.
 */
function listed(brokers, health) {
  const newest = brokers.map(({ version }) => version).sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
  const heads = ["Broker", "Health", "Version", "Started", "Does", "Groups", "With demand", "Waiting consumers", "Partitions", "Write-ahead log", "Journal", "Clock", "Last heard"];
  const rows = brokers.map((broker) => ({
    key: broker.member, stale: heard(broker, UNHEARD_MS).stale,
    cells: [[element("bdi", { class: "mono" }, broker.member), broker.here ? element("span", { class: "quiet" }, " this page talks to it") : ""],
      stateOf(broker, health), [broker.version, " ", broker.version === newest ? "" : chip("behind")],
      broker.started_at ? time(broker.started_at) : "", broker.doing, number(broker.groups), number(broker.demanded), number(broker.waiting), number(broker.owned), log(broker),
      broker.journal_bytes ? bytes(broker.journal_bytes) : element("span", { class: "quiet" }, "none"), ahead(broker.clock_ahead_ms), broker.heard_at ? time(broker.heard_at) : ""],
  }));
  return [
    table(counted(brokers.length, "broker"), heads.map((head, at) => ({ head, number: at > 4 && at < 9 })), rows),
    element("p", { class: "hint" }, "As the brokers said in their latest heartbeats, which each sends every 15 seconds. A broker that was killed is listed for up to 50 seconds, as not heard."),
    shell(command("brokers", [])),
  ];
}

/** A process sends a heartbeat every 15 seconds: from this age on it missed one. */
const UNHEARD_MS = 30_000;

/**
 * How a broker is; beside it, that its log is filling. One that is not heard was so when it was heard last.
 * @param {any} broker
 * @param {any} health
 */
function stateOf(broker, health) {
  const filling = broker.wal_limit_bytes && broker.wal_bytes * 2 > broker.wal_limit_bytes ? chip("wal_filling") : "";
  if (heard(broker, UNHEARD_MS).stale) return chip("unheard");
  return [chip(broker.here ? statusOf(health.status) : broker.wal_records ? "buffered" : "up"), " ", filling];
}

/** @param {number | undefined} ms How far a clock is ahead of that of the store. */
function ahead(ms) {
  return ms === undefined ? "" : `${ms > 0 ? "+" : ""}${number(ms)} ms`;
}

/** @param {any} broker */
function log({ wal_records, wal_bytes, wal_limit_bytes }) {
  if (!wal_limit_bytes) return element("span", { class: "quiet" }, "none");
  const part = Math.round((wal_bytes / wal_limit_bytes) * 100);
  return element("span", { class: "meter" }, element("meter", { min: 0, max: 100, high: 50, value: part, "aria-label": "How full it is" }),
    ` ${part} %, ${wal_records ? `${number(wal_records)} waiting` : "empty"} `, element("span", { class: "quiet" }, `${bytes(wal_bytes)} of ${bytes(wal_limit_bytes)}`));
}
