// @ts-check
// Whether all is well: what needs attention, the traffic, and all topics.

import { Problem, call, each, path } from "./api.js";
import { showStatus, statusOf } from "./age.js";
import { attentionList, stateOf, upToDate } from "./attention.js";
import { sparkline, trafficCharts } from "./charts.js";
import { command, givenGroup } from "./command.js";
import { draw, element } from "./dom.js";
import { forecastOf } from "./forecast.js";
import { NOTHING, heldOf, number, perSecond, span } from "./format.js";
import { createTopic, newMessage } from "./manage.js";
import { button, chip, empty, facts, link, section, shell, table } from "./parts.js";
import { MAY_CHANGE, go, to } from "./place.js";
import { traffic } from "./traffic.js";

/** Topics on a page: each costs a request. */
const PAGE = 50;

/** Requests at the same time. */
const TOGETHER = 4;

/** Topics in the forecast, those with most that is scheduled. */
const FORECAST = 20;

/** @typedef {{group: string, state: string, scheduled: number, ready: number, blocked?: number, backoff?: number, in_flight: number, dead: number, oldest_ready_age_ms?: number}} Group */
/** @typedef {{name: string, groups: Group[]}} Row */
/** @typedef {"scheduled" | "ready" | "blocked" | "in_flight" | "dead" | "oldest_ready_age_ms"} Count */

/** @type {{by: string, down: boolean}} */
const order = { by: "name", down: false };

/**
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function overview(place, page) {
  const attention = element("div", { "aria-live": "polite" }), broker = element("div", {}), charts = element("div", {}), topics = element("div", {});
  const whose = element("p", { class: "hint" });
  /** @type {Row[]} */
  let rows = [];
  const forecast = forecastOf(() => busiest(rows), page.signal);
  page.body.append(section("Attention", attention), section("This broker, last 30 minutes", broker, charts),
    section("Topics", element("div", { class: "bar apart" }, finder(place), opener(page.again)), topics), forecast.part);
  forecast.part.append(whose);
  addEventListener("resize", () => trafficCharts(charts), { signal: page.signal });
  page.follow(async (health) => {
    // While the store is unavailable nobody knows the topics, and how the broker is matters most.
    /** @type {unknown} */
    let failed;
    const topicNames = async () => (await call("GET", "/v1/topics", page)).topics;
    const [answer, known] = await Promise.all([call("GET", "/v1/attention", page), topicNames().catch((error) => void (failed = error)), traffic.read(page)]);
    const wanted = (/** @type {string[]} */ all) => all.filter((name) => name.includes(place.given.filter ?? ""));
    const from = pageOf(place, wanted(known ?? [])) * PAGE, asked = wanted(known ?? []).slice(from, from + PAGE);
    const read = await each(asked, TOGETHER, (name) => rowOf(name, page.signal)).catch((error) => void (failed = error));
    rows = /** @type {Row[]} */ ((read ?? []).filter((row) => row !== undefined));
    // Those that were deleted meanwhile are in no count.
    const names = known?.filter((/** @type {string} */ name) => !asked.includes(name) || !read || rows.some((row) => row.name === name));
    const states = rows.flatMap((row) => row.groups.map(({ group, state }) => ({ topic: row.name, group, state })));
    const found = upToDate(answer, names, states);
    showStatus(health.status, found.attention.some(({ kind }) => kind === "restoring"));
    draw(attention, attentionList(found));
    draw(broker, brokerFacts(health, found));
    trafficCharts(charts);
    if (failed) throw failed;
    const show = () => draw(topics, listed(place, wanted(names), rows, found, show));
    show();
    draw(whose, forecastNote(rows, names.length));
    await forecast.reading();
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
    return { name, groups: (await call("GET", path`/v1/topics/${name}`, { signal })).totals };
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return undefined;
    throw error;
  }
}

/** The most of any group: each group has its own copy of a message, so a sum would count it twice. @param {Row} row @param {Count} what */
const most = (row, what) => Math.max(...row.groups.map((group) => group[what] ?? 0));

/** The topics with most that is scheduled, each by the group that has most of it. @param {Row[]} rows */
function busiest(rows) {
  const scheduled = rows.filter((row) => most(row, "scheduled") > 0).sort((a, b) => most(b, "scheduled") - most(a, "scheduled"));
  return scheduled.slice(0, FORECAST).map((row) => {
    const group = row.groups.reduce((a, b) => (b.scheduled > a.scheduled ? b : a));
    return { topic: row.name, group: group.group };
  });
}

/**
 * @param {any} health
 * @param {import("./attention.js").Attention} found
 */
function brokerFacts(health, found) {
  const late = traffic.lateness();
  const restoring = found.attention.some(({ kind }) => kind === "restoring");
  return [
    facts([
      ["Status", chip(statusOf(health.status))],
      ["Pushed", perSecond(traffic.rate("pushed"))],
      ["Delivered", perSecond(traffic.rate("delivered"))],
      ["Lateness p99", late === undefined ? NOTHING : span(late)],
      ["Backlog", number(traffic.backlog)],
      ["Topics", number(found.topics)],
    ], "tiles"),
    restoring ? element("p", { class: "note warn" }, "Redis lost data, and the brokers give it back: counts are too low until they have.") : null,
    element("p", { class: "hint" }, element("bdi", { class: "mono" }, traffic.member), " · ", health.store ? [`${health.store.kind}, `, element("bdi", {}, health.store.location), ". ", health.store.durability] : "",
      " ", link(to(["brokers"]), "All brokers")),
  ];
}

/**
 * Which topics the forecast has, if not all.
 * @param {Row[]} rows
 * @param {number} all
 */
function forecastNote(rows, all) {
  const scheduled = rows.filter((row) => most(row, "scheduled") > 0).length;
  if (scheduled > FORECAST) return `Of the ${number(FORECAST)} topics above with most that is scheduled, each in the group that has most.`;
  return rows.length < all ? "Of the topics above, not of all." : "";
}

/** @param {import("./place.js").Place} place */
function finder(place) {
  const input = element("input", { id: "filter", name: "filter", type: "search", value: place.given.filter, autocomplete: "off" });
  const submitted = (/** @type {Event} */ event) => {
    event.preventDefault();
    void go(to([], { filter: input.value }));
  };
  return element("form", { class: "bar", onsubmit: submitted },
    element("label", { for: "filter" }, "Name contains"), input, element("button", { type: "submit" }, "Filter"),
    place.given.filter ? link(to([]), "All topics") : null);
}

/** Creates topics, and goes to the form of a new message. @param {() => void} again */
function opener(again) {
  if (!MAY_CHANGE) return null;
  return element("div", { class: "bar" }, button("Create topic…", () => void createTopic().then(again)),
    button("New message…", () => void newMessage()));
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
 * @param {import("./attention.js").Attention} found
 * @param {() => void} show
 */
function listed(place, names, rows, found, show) {
  if (names.length === 0 && place.given.filter) return empty("No topic has this in its name.", link(to([]), "Show all topics"));
  if (names.length === 0) {
    return empty("There are no topics yet.", element("p", {}, "The first push to a topic creates it."),
      shell(command("push", ["orders", "close order 4711"], { delay: "30m", key: "customer-7" }), "Push a first message"));
  }
  const value = (/** @type {Row} */ row) => (order.by === "name" ? row.name
    : order.by === "pushed" || order.by === "delivered" ? (traffic.rate(order.by, row.name) ?? -1)
    : order.by === "late" ? (traffic.lateness(row.name) ?? -1)
    : order.by === "blocked" ? Math.max(...row.groups.map(heldOf)) : most(row, /** @type {Count} */ (order.by)));
  const sorted = [...rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (order.down ? -1 : 1));
  const at = pageOf(place, names);
  return [
    table(`Topics ${number(at * PAGE + 1)} to ${number(at * PAGE + rows.length)} of ${number(names.length)}${place.given.filter ? ` with "${place.given.filter}" in the name` : ""}`,
      heads(show), sorted.flatMap((row) => cells(row, found))),
    element("p", { class: "hint" }, "Counts are of the store, a row for each group: each has its own copy of a message. Lateness and rates are of this broker, in the last minute; the lines show 30 minutes."),
    pages(place, names, at),
  ];
}

/** @param {() => void} show */
function heads(show) {
  const columns = [["name", "Topic"], ["", "State"], ["scheduled", "Scheduled"], ["ready", "Ready"], ["blocked", "Blocked"], ["in_flight", "In flight"], ["dead", "Dead"],
    ["oldest_ready_age_ms", "Oldest ready"], ["late", "Lateness p99"], ["pushed", "Pushed"], ["delivered", "Delivered"]];
  return columns.map(([by, words]) => {
    if (!by) return { head: words };
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

/**
 * A row for each group; what is not of a group alone is in the first.
 * @param {Row} row
 * @param {import("./attention.js").Attention} found
 */
function cells({ name, groups }, found) {
  const many = groups.length > 1;
  return groups.map((group, at) => {
    const given = { group: givenGroup(group.group) };
    const dead = group.dead > 0 ? link(to(["topics", name, "dead"], given), number(group.dead)) : number(0);
    if (dead instanceof Element) dead.setAttribute("aria-label", `${number(group.dead)} dead of ${name}${many ? `, ${group.group}` : ""}`);
    const place = link(to(["topics", name], given), many && given.group ? `${name} · ${group.group}` : name);
    place.setAttribute("data-key", `topic-${name}-${at}`);
    const late = traffic.lateness(name), samples = traffic.of(name);
    const rate = (/** @type {"pushed" | "delivered"} */ what) =>
      element("span", { class: "rate" }, sparkline(samples.map((each) => each[what])), perSecond(traffic.rate(what, name)));
    return {
      key: `${name}/${group.group}`,
      cells: [place, stateOf(found, name, group), number(group.scheduled), number(group.ready), number(heldOf(group)), number(group.in_flight), dead,
        group.oldest_ready_age_ms ? span(group.oldest_ready_age_ms) : NOTHING,
        ...(at ? ["", "", ""] : [late === undefined ? NOTHING : span(late), rate("pushed"), rate("delivered")])],
    };
  });
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
