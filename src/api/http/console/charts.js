// @ts-check
// Charts: lines over the last 30 minutes, a line in a table cell, and columns of what becomes due.

import { draw, drawing, element } from "./dom.js";
import { NOTHING, absolute, clock, number, perSecond, span } from "./format.js";
import { traffic } from "./traffic.js";

/** Pixels. */
const HEIGHT = 132, LEFT = 56, RIGHT = 8, BOTTOM = 22, TOP = 8;

/** Pixels of a line in a table cell. */
const SPARK = { width: 84, height: 20 };

/**
 * The next of 1, 2, 5, 10, 20, … from this on.
 * @param {number} value
 */
function round(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 0.001)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? power;
}

/** Milliseconds that are read at a glance, as are their halves. */
const SPANS = [2, 4, 10, 20, 40, 100, 200, 400, 1_000, 2_000, 4_000, 10_000, 20_000, 60_000, 120_000, 240_000, 600_000, 1_200_000, 3_600_000];

/** The next of these from this on. @param {number} ms */
const roundSpan = (ms) => SPANS.find((span) => span >= ms) ?? ms;

/** @typedef {{name: string, values: (number | undefined)[]}} Line */

/**
 * A path through values; where there is none it is interrupted.
 * @param {(number | undefined)[]} values
 * @param {(at: number) => number} x
 * @param {(value: number) => number} y
 */
function path(values, x, y) {
  let pen = "M";
  return values.map((value, at) => {
    if (value === undefined) {
      pen = "M";
      return "";
    }
    const step = `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    // A point between two gaps is seen, too.
    return values[at + 1] === undefined ? `${step}h0.01` : step;
  }).join("");
}

/**
 * The charts of all topics, or of one: pushed, delivered, lateness, backlog.
 * @param {HTMLElement} region
 * @param {string} [topic]
 */
export function trafficCharts(region, topic) {
  const samples = traffic.of(topic);
  const times = samples.map(({ at }) => Date.parse(at));
  const rate = (/** @type {"pushed" | "delivered"} */ what) => samples.map((each) => (each[what] / traffic.stepMs) * 1_000);
  const of = (/** @type {string} */ name, /** @type {any} */ field) => ({ name, values: samples.map((/** @type {any} */ each) => each[field]) });
  const late = [of("p50", "lateness_p50_ms"), of("p99", "lateness_p99_ms")];
  const backlog = { name: "backlog", values: samples.map((each) => (each.at === traffic.unwatched ? undefined : each.backlog)) };
  const second = (/** @type {number | undefined} */ value) => perSecond(value);
  const ms = (/** @type {number | undefined} */ value) => (value === undefined ? NOTHING : span(value));
  const most = Math.max((region.clientWidth || 1_000) > 900 ? region.clientWidth / 4 - 12 : region.clientWidth > 520 ? region.clientWidth / 2 - 12 : region.clientWidth, 240);
  draw(region, element("div", { class: "charts" },
    chart("Pushed", times, [{ name: "pushed", values: rate("pushed") }], second, most),
    chart("Delivered", times, [{ name: "delivered", values: rate("delivered") }], second, most),
    chart("Lateness", times, late, ms, most, roundSpan),
    chart("Backlog", times, [backlog], number, most)));
}

/**
 * @param {string} title
 * @param {number[]} times
 * @param {Line[]} lines
 * @param {(value: number | undefined) => string} words
 * @param {number} width
 * @param {(most: number) => number} upTo The end of the axis.
 */
function chart(title, times, lines, words, width, upTo = round) {
  const until = times.at(-1) ?? Date.now(), reach = traffic.reach;
  const all = lines.flatMap(({ values }) => values).filter((value) => value !== undefined);
  const top = upTo(Math.max(...all, 1));
  const x = (/** @type {number} */ at) => LEFT + (width - LEFT - RIGHT) * (1 - (until - times[at]) / reach);
  const y = (/** @type {number} */ value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const said = lines.map(({ name, values }) => `${lines.length > 1 ? `${name} ` : ""}${words(values.at(-1))}`).join(", ");
  const label = all.length ? `${title} in the last 30 minutes: now ${said}, at most ${words(Math.max(...all))}` : `${title}: nothing yet`;
  const grid = [0, 0.5, 1].map((part) => [
    drawing("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(part * top), y2: y(part * top) }),
    drawing("text", { x: LEFT - 6, y: y(part * top) + 4, "text-anchor": "end" }, words(part * top).replace(/\/s$/, "")),
  ]);
  const column = (width - LEFT - RIGHT) / (reach / traffic.stepMs);
  const readings = times.map((time, at) => drawing("rect", { class: "reading", x: x(at) - column, y: TOP, width: column, height: HEIGHT - TOP - BOTTOM },
    drawing("title", {}, `${clock(new Date(time))}: ${lines.map(({ name, values }) => `${name} ${words(values[at])}`).join(", ")}`)));
  return element("figure", { class: "chart" },
    element("figcaption", {}, element("span", {}, title), element("strong", {}, said)),
    drawing("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, class: "plot", role: "img", "aria-label": label },
      grid.flat(), lines.map(({ values }, at) => drawing("path", { class: `line line-${at}`, d: path(values, x, y) })), readings,
      drawing("text", { x: LEFT, y: HEIGHT - 6 }, `−${span(reach)}`), drawing("text", { x: width - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, "now")));
}

/**
 * A line without axes. What it shows is said beside it.
 * @param {(number | undefined)[]} values
 */
export function sparkline(values) {
  const { width, height } = SPARK, most = Math.max(...values.filter((value) => value !== undefined), 1);
  const x = (/** @type {number} */ at) => 1 + (at / Math.max(traffic.reach / traffic.stepMs - 1, 1)) * (width - 2);
  const shift = Math.max(traffic.reach / traffic.stepMs - values.length, 0);
  const y = (/** @type {number} */ value) => height - 2 - (height - 4) * (value / most);
  return drawing("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "spark", "aria-hidden": "true" },
    drawing("path", { class: "line line-0", d: path(values, (at) => x(at + shift), y) }));
}

/**
 * Columns over spans of time, each of one part or of several.
 * @param {object} what
 * @param {string} what.from
 * @param {{until: string, parts: number[]}[]} what.spans
 * @param {string[]} what.names Of the parts.
 * @param {string} what.words
 * @param {number} what.width
 * @param {(from: Date, until: Date, count: number) => void} [what.pick] Called when a column is chosen.
 */
export function columns({ from, spans, names, words, width: total, pick }) {
  const height = 220, bottom = 28, top = 12;
  const sums = spans.map(({ parts }) => parts.reduce((sum, part) => sum + part, 0));
  const most = Math.max(round(Math.max(...sums, 1)), 4);
  const width = (total - LEFT - RIGHT) / spans.length, room = height - top - bottom;
  const y = (/** @type {number} */ count) => top + room * (1 - count / most);
  const lines = [0, 0.25, 0.5, 0.75, 1].filter((part) => Number.isInteger(part * most)).map((part) => [
    drawing("line", { class: "grid", x1: LEFT, x2: total - RIGHT, y1: y(part * most), y2: y(part * most) }),
    drawing("text", { x: LEFT - 8, y: y(part * most) + 4, "text-anchor": "end" }, number(part * most)),
  ]);
  const bars = spans.map(({ until, parts }, at) => {
    const each = names.length > 1 ? names.map((name, part) => (parts[part] ? `, ${name} ${number(parts[part])}` : "")).join("") : "";
    const title = `until ${absolute(new Date(until))}: ${number(sums[at])}${each}`;
    let below = 0;
    const stack = parts.map((part, which) => {
      const drawn = part === 0 ? 0 : Math.max((room * part) / most, 1.5);
      below += drawn;
      return drawing("rect", { class: `column part-${which}`, x: LEFT + at * width + 0.75, y: height - bottom - below, width: Math.max(width - 1.5, 1), height: drawn });
    });
    const began = new Date(at ? spans[at - 1].until : from);
    const chosen = pick && sums[at] ? () => pick(began, new Date(until), sums[at]) : undefined;
    const area = drawing("rect", { class: "reading", x: LEFT + at * width, y: top, width, height: room });
    return drawing("g", { class: `bar-of${chosen ? " can-pick" : ""}`, onclick: chosen }, drawing("title", {}, title), stack, area);
  });
  return drawing("svg", { viewBox: `0 0 ${total} ${height}`, width: total, height, class: "plot", role: "img", "aria-label": words },
    lines.flat(), bars, ticks(from, spans, width, height));
}

/**
 * @param {string} from
 * @param {{until: string}[]} spans
 * @param {number} width
 * @param {number} height
 */
function ticks(from, spans, width, height) {
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
    return drawing("text", { x: LEFT + at * width, y: height - 8, "text-anchor": anchor }, `${words}${at === 0 ? "" : ` (+${span(ahead)})`}`);
  });
}
