// @ts-check
// A topic: its groups, what becomes due, partitions, settings.

import { call, path } from "./api.js";
import { stateOf, upToDate } from "./attention.js";
import { pickSpan } from "./bulk.js";
import { trafficCharts } from "./charts.js";
import { draw, element } from "./dom.js";
import { forecastOf } from "./forecast.js";
import { span } from "./format.js";
import { headingOf, tabs } from "./frame.js";
import { keyTable } from "./group_keys.js";
import { groupTable, memberTable, partitionTable } from "./groups.js";
import { changeTopic, createGroup, deleteTopic } from "./manage.js";
import { complain } from "./notice.js";
import { button, chip, empty, facts, foreign, link, section } from "./parts.js";
import { MAY_CHANGE, to } from "./place.js";
import { explained } from "./tip.js";
import { traffic } from "./traffic.js";

/**
 * @param {string} topic
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function topic(topic, place, page) {
  const group = place.given.group ?? "default";
  const groups = element("div", {}), members = element("div", {}), keys = element("div", {}), partitions = element("div", {}), settings = element("div", {});
  const attention = element("div", { "aria-live": "polite" }), charts = element("div", {});
  const pick = (/** @type {Date} */ from, /** @type {Date} */ until) => void pickSpan(topic, group, from, until).then(page.again, complain);
  const forecast = forecastOf(() => [{ topic, group }], page.signal, MAY_CHANGE ? pick : undefined);
  addEventListener("resize", () => trafficCharts(charts, topic), { signal: page.signal });
  page.body.append(
    tabs(topic, "Summary", group), attention,
    section("Groups", groups), section("Traffic at this broker, last 30 minutes", charts), forecast.part, section([`Members of ${group}`, explained("Members")], members),
    keys, section([`Partitions of ${group}`, explained("Owners")], partitions), section("Settings", settings));
  page.follow(async () => {
    const [described, list, answer] = await Promise.all([
      call("GET", path`/v1/topics/${topic}`, page),
      call("GET", path`/v1/topics/${topic}/groups`, page),
      call("GET", "/v1/attention", page),
      traffic.read(page),
    ]);
    const found = upToDate(answer, undefined, list.groups.map((/** @type {any} */ each) => ({ ...each, topic })));
    draw(attention, concerns(found, topic));
    trafficCharts(charts, topic);
    const names = list.groups.map((/** @type {any} */ each) => each.group);
    const known = names.includes(group);
    // Counts, owners and members of the group that is shown are of one answer.
    const detail = known ? await call("GET", path`/v1/topics/${topic}/groups/${group}`, page) : { members: [] };
    const counts = known ? withGroup(described, group, detail) : described;
    const states = (/** @type {any} */ each, /** @type {string} */ behind) => stateOf(found, topic, each, behind);
    draw(groups, groupTable(topic, list.groups, counts, group, { state: states, changed: page.again }), MAY_CHANGE
      ? element("div", { class: "actions" }, button("Create group…", () => void createGroup(topic, names).then(page.again))) : null);
    draw(settings, settingsOf(described.settings), MAY_CHANGE ? element("div", { class: "actions" },
      button("Change settings…", () => void changeTopic(topic, described.settings).then(page.again)),
      button("Delete topic…", () => void deleteTopic(topic), { class: "danger" })) : null);
    draw(partitions, partitionTable(counts, group, detail.members));
    draw(members, known ? memberTable(topic, detail) : empty(`${topic} has no group ${group}.`, element("p", {}, "The groups above are all that there are.")));
    // Only the keys of a fair group are told apart.
    draw(keys, detail.keys ? section(`Keys of ${group}`, keyTable(topic, detail, page.again)) : null);
    if (!known) return;
    await forecast.reading();
  });
  return headingOf(topic);
}

/**
 * A topic with a later answer about one of its groups.
 * @param {any} described
 * @param {string} group
 * @param {any} detail
 */
function withGroup(described, group, detail) {
  const others = (/** @type {any} */ each) => each.group !== group;
  return {
    ...described,
    totals: [...described.totals.filter(others), { ...detail.totals, group }],
    partitions: [...described.partitions.filter(others), ...detail.partitions],
  };
}

/**
 * Why something of this topic needs attention, if it does.
 * @param {import("./attention.js").Attention} found
 * @param {string} topic
 */
function concerns({ attention }, topic) {
  const own = attention.filter((item) => item.topic === topic);
  if (own.length === 0) return null;
  return element("ul", { class: "attention" }, own.map(({ kind, group, cause }) =>
    element("li", {}, chip(kind), group ? element("bdi", {}, group) : "", element("span", { class: "cause" }, cause))));
}

/** Settings whose 0 is no number. @type {Record<string, string>} */
const ZERO = { max_attempts: "without a limit", ttl_ms: "never", dead_max_age_ms: "indefinitely", dead_max_count: "all" };

/** @param {any} settings */
function settingsOf({ annotations, ...settings }) {
  const own = Object.entries(settings).map(([name, value]) => [name.replace(/_ms$/, "").replaceAll("_", " "), words(name, value)]);
  const notes = Object.entries(annotations ?? {}).map(([name, text]) => [foreign(`annotation ${name}`), foreign(String(text), 200)]);
  return facts([...own, ...notes], "facts small");
}

/**
 * @param {string} name
 * @param {any} value
 */
function words(name, value) {
  if (value === 0 && name in ZERO) return ZERO[name];
  if (name === "dead_letter") return link(to(["topics", value.topic]), value.topic);
  if (name.endsWith("_ms")) return span(value);
  if (typeof value !== "object") return String(value).replaceAll("_", " ");
  if (value.kind === "ladder") return `ladder: ${value.steps_ms.map(span).join(", ")}`;
  return `${value.kind}: ${span(value.initial_ms)} to ${span(value.max_ms)}, × ${value.factor}, jitter ${value.jitter}`;
}
