// @ts-check
// The schedules of a topic.

import { call, path, query } from "./api.js";
import { command } from "./command.js";
import { ask } from "./dialog.js";
import { draw, element } from "./dom.js";
import { span } from "./format.js";
import { headingOf, tabs } from "./frame.js";
import { button, chip, empty, foreign, link, section, shell, table, time } from "./parts.js";
import { preview } from "./payload.js";
import { MAY_CHANGE, to } from "./place.js";

/**
 * @param {string} topic
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function schedules(topic, place, page) {
  const list = element("div", { "aria-live": "polite" });
  page.body.append(tabs(topic, "Schedules", place.given.group), section("Schedules", list));
  const reload = () => page.once(async () => {
    const found = await call("GET", `${path`/v1/topics/${topic}/schedules`}${query({ cursor: place.given.cursor })}`, page);
    draw(list, listed(topic, found, reload), shell(command("schedule list", [topic])));
  });
  void reload();
  return headingOf(topic, "Schedules");
}

/**
 * @param {string} topic
 * @param {any} found
 * @param {() => void} reload
 */
function listed(topic, found, reload) {
  if (found.schedules.length === 0 && !found.next_cursor) {
    return empty("There are no schedules.", element("p", {}, "A schedule pushes a message again and again."),
      shell(command("schedule put", [topic, "nightly", "close the books"], { cron: "0 3 * * *" }), "Make one"));
  }
  const heads = ["Name", "State", "Occurs", "Next at", "Missed", "Payload"];
  if (MAY_CHANGE) heads.push("Actions");
  const rows = found.schedules.map((/** @type {any} */ schedule) => {
    const { name, paused } = schedule;
    const cells = [name, chip(paused ? "paused" : "active"), occurs(schedule), time(schedule.next_at), schedule.missed, preview(schedule)];
    const verb = paused ? "resume" : "pause";
    const word = paused ? "Resume" : "Pause";
    const act = () => void change(topic, name, verb, word).then(reload);
    return { key: name, cells: MAY_CHANGE ? [...cells, button(`${word}…`, act, { class: "small", "aria-label": `${word} ${name}…`, "data-key": `change-${name}` })] : cells };
  });
  const next = found.next_cursor
    ? element("nav", { "aria-label": "Pages of schedules", class: "bar" }, link(to(["topics", topic, "schedules"], { cursor: found.next_cursor }), "Next page"))
    : null;
  return [table("Schedules, partition by partition", heads.map((head) => ({ head })), rows, { hidden: true }), next];
}

/** @param {any} schedule */
function occurs(schedule) {
  if (schedule.every_ms) return `every ${span(schedule.every_ms)}`;
  return element("span", {}, element("bdi", { class: "mono" }, schedule.cron), " ", foreign(schedule.time_zone));
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
    body: element("p", {}, verb === "pause" ? "Nothing is pushed until it is resumed." : "It goes on with the first occurrence from now on; what has occurred meanwhile is not made up for."),
    confirm: word,
    line: () => command(`schedule ${verb}`, [topic, name]),
    run: async () => {
      await call("POST", path`/v1/topics/${topic}/schedules/${name}/${verb}`);
      return [`${name} is ${verb}d.`];
    },
  });
}
