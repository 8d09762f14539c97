// @ts-check
// A topic: its groups, what becomes due, partitions, settings.

import { call, path, text } from "./api.js";
import { draw, element } from "./dom.js";
import { forecastOf } from "./forecast.js";
import { headingOf, tabs } from "./frame.js";
import { groupTable, memberTable, partitionTable } from "./groups.js";
import { samples } from "./metrics.js";
import { facts, section } from "./parts.js";

/**
 * @param {string} topic
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function topic(topic, place, page) {
  const group = place.given.group ?? "default";
  const groups = element("div", {}), members = element("div", {}), partitions = element("div", {}), settings = element("div", {});
  const forecast = forecastOf(topic, group, page.signal);
  page.body.append(
    tabs(topic, "Summary", group),
    section("Groups", groups), forecast.part, section(`Members of ${group}`, members),
    section(`Partitions of ${group}`, partitions), section("Settings", settings));
  page.follow(async () => {
    const [described, list, metrics] = await Promise.all([
      call("GET", path`/v1/topics/${topic}`, page),
      call("GET", path`/v1/topics/${topic}/groups`, page),
      text("/metrics", page),
    ]);
    samples.add(metrics);
    draw(groups, groupTable(topic, list.groups, described, group, page.again));
    draw(partitions, partitionTable(described, group));
    draw(settings, settingsOf(described.settings));
    if (!list.groups.some((/** @type {any} */ each) => each.group === group)) return;
    draw(members, memberTable(topic, await call("GET", path`/v1/topics/${topic}/groups/${group}`, page)));
    await forecast.reading();
  });
  return headingOf(topic);
}

/** @param {any} settings */
function settingsOf(settings) {
  return facts(Object.entries(settings).map(([name, value]) => [name.replaceAll("_", " "), words(value)]), "facts small");
}

/** @param {any} value */
function words(value) {
  if (typeof value !== "object") return String(value);
  if (value.kind === "ladder") return `ladder: ${value.steps.join(", ")}`;
  return `${value.kind}: ${value.initial} to ${value.max}, × ${value.factor}, jitter ${value.jitter}`;
}
