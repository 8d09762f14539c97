// @ts-check
// The forecast of a group or of several topics: columns, and the same numbers in a table.

import { call, each, path, query } from "./api.js";
import { columns } from "./charts.js";
import { command, givenGroup } from "./command.js";
import { draw, element } from "./dom.js";
import { absolute, number } from "./format.js";
import { section, shell, table } from "./parts.js";

/** Words, the length of a span, and how many there are. @type {[string, string, number][]} */
const REACHES = [["5 minutes", "5s", 60], ["hour", "1m", 60], ["6 hours", "6m", 60], ["day", "30m", 48], ["week", "3h", 56], ["30 days", "12h", 60]];

/** Pixels; the width is what there is. */
const WIDTH_MIN = 280;

/** A forecast may cost the store a look at all that is scheduled, so it is not read more often. */
const LEAST_MS = 10_000;

/** Topics that have a colour of their own; the others share one. */
const COLOURS = 5;

/** @typedef {{topic: string, group: string}} Of */

/**
 * A section with the forecast of groups, one or several, and what reads it.
 * @param {() => Of[]} wanted The groups, most important first.
 * @param {AbortSignal} signal
 * @param {(from: Date, until: Date, count: number) => void} [pick] Called when a column is chosen.
 */
export function forecastOf(wanted, signal, pick) {
  const plot = element("div", {});
  /** @type {{onresize: () => void}} */
  const sizes = { onresize: () => {} };
  addEventListener("resize", () => sizes.onresize(), { signal });
  const options = REACHES.map(([words, , ], at) => element("option", { value: at, selected: at === 1 }, `The next ${words}`));
  let read = 0;
  const reading = async () => {
    const groups = wanted();
    if (Date.now() - read < LEAST_MS) return;
    const [, step, spans] = REACHES[Number(reach.value)];
    const found = await each(groups, 4, async ({ topic, group }) => {
      try {
        return await call("GET", `${path`/v1/topics/${topic}/groups/${group}/forecast`}${query({ step, spans })}`, { signal });
      } catch (error) {
        if (groups.length === 1 || signal.aborted) throw error;
        return undefined;
      }
    });
    read = Date.now();
    const all = summed(groups, found);
    const { topic, group } = groups[0] ?? {};
    const line = groups.length === 1 ? shell(command("forecast", [topic], { group: givenGroup(group), step, spans })) : null;
    const show = () => draw(plot, all ? plotted(all, Math.max(plot.clientWidth - 2, WIDTH_MIN), pick) : element("p", {}, "Nothing is scheduled."), line);
    sizes.onresize = show;
    show();
  };
  const chosen = () => {
    read = 0;
    reading().catch(() => (read = 0));
  };
  const reach = element("select", { id: "reach", onchange: chosen }, options);
  const choice = element("div", { class: "bar" }, element("label", { for: "reach" }, "Ahead"), reach);
  return { part: section("Due forecast", choice, plot), reading };
}

/**
 * Puts forecasts on each other; those past the colours are one.
 * @param {Of[]} groups
 * @param {any[]} found
 */
function summed(groups, found) {
  const all = groups.map(({ topic }, at) => ({ name: topic, forecast: found[at] })).filter(({ forecast }) => forecast);
  if (all.length === 0) return undefined;
  const own = all.length > COLOURS + 1 ? COLOURS : all.length;
  const names = all.slice(0, own).map(({ name }) => name);
  if (own < all.length) names.push(`${number(all.length - own)} others`);
  const first = all[0].forecast;
  const spans = first.spans.map((/** @type {any} */ span, /** @type {number} */ at) => {
    const parts = names.map(() => 0);
    all.forEach(({ forecast }, which) => (parts[Math.min(which, names.length - 1)] += forecast.spans[at]?.due ?? 0));
    return { until: span.until, parts };
  });
  const total = (/** @type {"ready" | "later"} */ what) => all.reduce((sum, { forecast }) => sum + forecast[what], 0);
  return { from: first.from, spans, names, ready: total("ready"), later: total("later") };
}

/**
 * @param {{from: string, spans: {until: string, parts: number[]}[], names: string[], ready: number, later: number}} forecast
 * @param {number} width
 * @param {(from: Date, until: Date, count: number) => void} [pick]
 */
function plotted({ from, spans, names, ready, later }, width, pick) {
  const due = spans.map(({ parts }) => parts.reduce((sum, part) => sum + part, 0));
  const sum = due.reduce((all, part) => all + part, 0), most = Math.max(...due);
  const words = sum === 0 ? "Nothing becomes due in this time." :
    `${number(sum)} become due in this time, most of them, ${number(most)}, in the span that ends ${absolute(new Date(spans[due.indexOf(most)].until))}.`;
  const several = names.length > 1;
  const heads = [{ head: "Until" }, ...(several ? names.map((head) => ({ head, number: true })) : []), { head: "Due", number: true }];
  return [
    several ? element("ul", { class: "legend" }, names.map((name, at) => element("li", {}, element("span", { class: `key part-${at}`, "aria-hidden": "true" }), name))) : null,
    columns({ from, spans, names, words: `Due forecast. ${words}`, width, pick }),
    element("p", {}, words, ` ${number(ready)} are ready already; ${number(later)} are due later.`, pick && sum ? " Choose a column to list, postpone or cancel its messages." : ""),
    element("details", { "data-key": "forecast-table" }, element("summary", {}, "The same as a table"),
      table("Messages that become due", heads, spans.map(({ until, parts }, at) => ({ key: until, cells: [
        pick && due[at] ? element("button", { type: "button", class: "small", onclick: () => pick(new Date(at ? spans[at - 1].until : from), new Date(until), due[at]) }, absolute(new Date(until))) : absolute(new Date(until)),
        ...(several ? parts.map((part) => number(part)) : []), number(due[at])] })))),
  ];
}
