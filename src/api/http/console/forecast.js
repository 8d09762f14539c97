// @ts-check
// What becomes due, as a plot and as a table.

import { call, path, query } from "./api.js";
import { command, groupFlag } from "./command.js";
import { draw, drawing, element } from "./dom.js";
import { absolute, clock, number, span } from "./format.js";
import { section, shell, table } from "./parts.js";

/** Words, the length of a span, and how many there are. @type {[string, string, number][]} */
const REACHES = [["5 minutes", "5s", 60], ["hour", "1m", 60], ["6 hours", "6m", 60], ["day", "30m", 48], ["week", "3h", 56], ["30 days", "12h", 60]];

/** Pixels of the plot; its width is what there is. */
const WIDTH_MIN = 280, HEIGHT = 220, LEFT = 48, RIGHT = 8, BOTTOM = 28, TOP = 12;

/** A forecast may cost the store a look at all that is scheduled, so it is not read more often. */
const LEAST_MS = 10_000;

/**
 * A section with the forecast of a group, and what reads it.
 * @param {string} topic
 * @param {string} group
 * @param {AbortSignal} signal
 */
export function forecastOf(topic, group, signal) {
  const plot = element("div", {});
  /** @type {{onresize: () => void}} */
  const sizes = { onresize: () => {} };
  addEventListener("resize", () => sizes.onresize(), { signal });
  const options = REACHES.map(([words, , ], at) => element("option", { value: at, selected: at === 1 }, `The next ${words}`));
  let read = 0;
  const reading = async () => {
    if (Date.now() - read < LEAST_MS) return;
    const [, step, spans] = REACHES[Number(reach.value)];
    const forecast = await call("GET", `${path`/v1/topics/${topic}/groups/${group}/forecast`}${query({ step, spans })}`, { signal });
    read = Date.now();
    const line = command("forecast", [topic], { group: groupFlag(group), step, spans });
    const show = () => draw(plot, plotted(forecast, Math.max(plot.clientWidth - 2, WIDTH_MIN)), shell(line));
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
 * @param {any} forecast
 * @param {number} width
 */
function plotted(forecast, width) {
  /** @type {{until: string, due: number}[]} */
  const spans = forecast.spans;
  const sum = spans.reduce((all, { due }) => all + due, 0);
  const most = spans.reduce((a, b) => (b.due > a.due ? b : a), spans[0]);
  const words = sum === 0 ? "Nothing becomes due in this time." :
    `${number(sum)} become due in this time, most of them, ${number(most.due)}, in the span that ends ${absolute(new Date(most.until))}.`;
  const rest = `${number(forecast.ready)} are ready already; ${number(forecast.later)} are due later.`;
  return [
    figure(forecast, most.due, words, width),
    element("p", {}, words, " ", rest),
    element("details", { "data-key": "forecast-table" }, element("summary", {}, "The same as a table"),
      table("Messages that become due", [{ head: "Until" }, { head: "Due", number: true }],
        spans.map(({ until, due }) => ({ key: until, cells: [absolute(new Date(until)), number(due)] })))),
  ];
}

/**
 * The next of 1, 2, 5, 10, 20, … from this on.
 * @param {number} value
 */
function round(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? power;
}

/**
 * @param {any} forecast
 * @param {number} most
 * @param {string} words
 * @param {number} total The width.
 */
function figure(forecast, most, words, total) {
  const top = round(Math.max(most, 4));
  const spans = /** @type {{until: string, due: number}[]} */ (forecast.spans);
  const width = (total - LEFT - RIGHT) / spans.length, room = HEIGHT - TOP - BOTTOM;
  const y = (/** @type {number} */ count) => TOP + room * (1 - count / top);
  const lines = [0, 0.25, 0.5, 0.75, 1].filter((part) => Number.isInteger(part * top)).map((part) => [
    drawing("line", { class: "grid", x1: LEFT, x2: total - RIGHT, y1: y(part * top), y2: y(part * top) }),
    drawing("text", { x: LEFT - 8, y: y(part * top) + 4, "text-anchor": "end" }, number(part * top)),
  ]);
  const bars = spans.map(({ until, due }, at) => {
    const height = due === 0 ? 0 : Math.max(HEIGHT - BOTTOM - y(due), 1.5);
    const title = drawing("title", {}, `until ${absolute(new Date(until))}: ${number(due)}`);
    return drawing("rect", { class: "column", x: LEFT + at * width + 0.75, y: HEIGHT - BOTTOM - height, width: Math.max(width - 1.5, 1), height }, title);
  });
  return drawing("svg", { viewBox: `0 0 ${total} ${HEIGHT}`, width: total, height: HEIGHT, class: "plot", role: "img", "aria-label": `Due forecast. ${words}` },
    lines.flat(), bars, ticks(forecast.from, spans, width));
}

/**
 * @param {string} from
 * @param {{until: string}[]} spans
 * @param {number} width
 */
function ticks(from, spans, width) {
  const began = new Date(from).getTime();
  const all = spans.map(({ until }) => new Date(until).getTime() - began);
  const long = all[all.length - 1] > 86_400_000;
  const parts = width * spans.length > 640 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1];
  return parts.map((part) => {
    const at = Math.round(part * spans.length);
    const ahead = at === 0 ? 0 : all[at - 1];
    const time = new Date(began + ahead);
    const words = at === 0 ? "now" : long ? absolute(time).slice(5, 16) : clock(time).slice(0, ahead < 600_000 ? 8 : 5);
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    return drawing("text", { x: LEFT + at * width, y: HEIGHT - 8, "text-anchor": anchor }, `${words}${at === 0 ? "" : ` (+${span(ahead)})`}`);
  });
}
