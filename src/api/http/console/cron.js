// @ts-check
// The cron jobs of a topic.

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
export function cron(topic, place, page) {
  const list = element("div", { "aria-live": "polite" });
  page.body.append(tabs(topic, "Cron jobs", place.given.group), section("Cron jobs", list));
  const reload = () => page.once(async () => {
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
  if (found.cron_jobs.length === 0 && !found.next_cursor) {
    return empty("There are no cron jobs.", element("p", {}, "A cron job pushes a message at each of its times."),
      shell(command("cron create", [topic, "nightly", "close the books"], { cron: "0 3 * * *" }), "Make one"));
  }
  const heads = ["Name", "State", "Occurs", "Next at", "Missed", "Payload"];
  if (MAY_CHANGE) heads.push("Actions");
  const rows = found.cron_jobs.map((/** @type {any} */ entry) => {
    const { name, paused } = entry;
    const cells = [name, chip(paused ? "paused" : "active"), occurs(entry), time(entry.next_at), entry.missed, preview(entry)];
    const verb = paused ? "resume" : "pause";
    const word = paused ? "Resume" : "Pause";
    const act = () => void change(topic, name, verb, word).then(reload);
    return { key: name, cells: MAY_CHANGE ? [...cells, button(`${word}…`, act, { class: "small", "aria-label": `${word} ${name}…`, "data-key": `change-${name}` })] : cells };
  });
  const next = found.next_cursor
    ? element("nav", { "aria-label": "Pages of cron jobs", class: "bar" }, link(to(["topics", topic, "cron"], { cursor: found.next_cursor }), "Next page"))
    : null;
  return [table("Cron jobs, partition by partition", heads.map((head) => ({ head })), rows, { hidden: true }), next];
}

/** @param {any} entry */
function occurs(entry) {
  if (entry.every_ms) return `every ${span(entry.every_ms)}`;
  return element("span", {}, element("bdi", { class: "mono" }, entry.cron), " ", foreign(entry.time_zone));
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
    line: () => command(`cron ${verb}`, [topic, name]),
    run: async () => {
      await call("POST", path`/v1/topics/${topic}/cron/${name}/${verb}`);
      return [`${name} is ${verb}d.`];
    },
  });
}
