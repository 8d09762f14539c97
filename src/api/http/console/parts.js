// @ts-check
// What pages are made of: states, times, tables, command lines, facts.

import { drawing, element } from "./dom.js";
import { NOTHING, absolute, beginning, relative, visible } from "./format.js";

/** Signs, drawn in a square of 12. */
const GLYPHS = {
  dot: "M6 2a4 4 0 1 0 0.01 0z", ring: "M6 1.5a4.5 4.5 0 1 0 0.01 0zM6 3.5a2.5 2.5 0 1 1 -0.01 0z", play: "M3 1.5l7.5 4.5l-7.5 4.5z",
  pause: "M2.5 2h2.5v8h-2.5zM7 2h2.5v8h-2.5z", alert: "M6 1l5.5 10h-11z", cross: "M2 3.2L3.2 2L6 4.8L8.8 2L10 3.2L7.2 6L10 8.8L8.8 10L6 7.2L3.2 10L2 8.8L4.8 6z",
  equal: "M2 3.5h8v1.7h-8zM2 6.8h8v1.7h-8z", check: "M1.5 6.3l1.3-1.3l2 2l4.4-4.6l1.3 1.3l-5.7 6z",
};

/** The sign, the words and the look of each state: colour alone says nothing. @type {Record<string, [keyof typeof GLYPHS, string, string?]>} */
const STATES = {
  scheduled: ["ring", "scheduled"], ready: ["dot", "ready", "good"], blocked: ["pause", "blocked", "warn"], backoff: ["ring", "backoff", "warn"], in_flight: ["play", "in flight", "live"], dead: ["cross", "dead", "bad"],
  active: ["dot", "active", "good"], paused: ["pause", "paused", "warn"], closed: ["pause", "closed"], copying: ["play", "copying", "live"], degraded: ["alert", "degraded", "warn"],
  restoring: ["alert", "restoring", "warn"], up: ["dot", "ready", "good"], down: ["cross", "not ready", "bad"], not_ready: ["cross", "not ready", "bad"],
  stored: ["dot", "stored", "good"], journaled: ["dot", "journaled", "good"], buffered: ["alert", "buffered", "warn"],
  duplicate: ["equal", "duplicate"], replaced: ["dot", "replaced"], debounced: ["dot", "debounced"],
  well: ["check", "All is well", "good"], late: ["alert", "late", "bad"], no_consumer: ["alert", "no consumer", "bad"],
  retry_storm: ["alert", "retry storm", "warn"], dead_letters: ["cross", "dead letters", "warn"], expired: ["cross", "expired", "warn"], wal_filling: ["alert", "log is filling", "bad"],
  disk_low: ["alert", "disk is filling", "bad"], cron_failed: ["cross", "cron job failed", "warn"], open_files: ["alert", "many open files", "warn"], clock_offset: ["alert", "clock is off", "warn"],
  evicting: ["cross", "Redis deletes messages", "bad"], memory_filling: ["alert", "Redis is filling", "warn"],
  unheard: ["alert", "not heard", "warn"],
  behind: ["alert", "older version", "warn"], unreadable: ["cross", "unreadable", "bad"], failed: ["cross", "failed", "bad"], broker_gone: ["cross", "broker gone", "warn"],
};

/**
 * A state as a sign, a word and a colour.
 * @param {string} state
 * @param {string} [behind] Said behind the word.
 */
export function chip(state, behind = "") {
  const [sign, word, look = ""] = STATES[state] ?? ["ring", state.replaceAll("_", " ")];
  return element("span", { class: `chip ${look}` }, glyph(sign), behind ? `${word} ${behind}` : word);
}

/** @param {keyof typeof GLYPHS} sign */
function glyph(sign) {
  return drawing("svg", { viewBox: "0 0 12 12", width: 10, height: 10, class: "sign", "aria-hidden": "true" }, drawing("path", { d: GLYPHS[sign], "fill-rule": "evenodd" }));
}

/**
 * A time, with how far away it is.
 * @param {string | undefined} text RFC 3339.
 */
export function time(text) {
  if (!text) return element("span", { class: "quiet" }, NOTHING);
  const at = new Date(text);
  const away = element("span", { class: "quiet away" }, relative(at));
  return element("time", { datetime: text, title: text }, absolute(at), " ", away);
}

/**
 * Text of a producer or consumer, on one line. It neither turns nor styles what is around it.
 * @param {string | undefined} text
 * @param {number} [most] Characters.
 */
export function foreign(text, most = 80) {
  if (text === undefined) return element("span", { class: "quiet" }, NOTHING);
  return element("bdi", {}, beginning(text, most));
}

/**
 * Why something failed, all of it: in lines where there is no room for one.
 * @param {string | undefined} text
 */
export function reason(text) {
  if (text === undefined) return element("span", { class: "quiet" }, NOTHING);
  return element("bdi", { class: "reason" }, visible(text));
}

/**
 * An error of an attempt in words, without its stack.
 * @param {{class?: string, message: string} | undefined} error
 */
export function wordsOf(error) {
  return error && [error.class, error.message].filter(Boolean).join(": ");
}

/**
 * An error of an attempt, with its stack where there is room for it.
 * @param {{class?: string, message: string, stack?: string} | undefined} error
 */
export function failure(error) {
  const words = reason(wordsOf(error));
  if (!error?.stack) return words;
  return element("div", {}, words, element("details", {}, element("summary", {}, "Stack"), element("pre", {}, visible(error.stack))));
}

/**
 * @param {string} hash
 * @param {...any} children
 */
export function link(hash, ...children) {
  return element("a", { href: hash }, ...children);
}

/**
 * @param {string} label
 * @param {() => void} onclick
 * @param {Record<string, any>} [attributes]
 */
export function button(label, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, label);
}

/**
 * @typedef {object} Column
 * @property {any} head
 * @property {boolean} [number] Its cells are numbers: they stand on the right.
 * @property {string} [sort] `ascending` or `descending`.
 */

/**
 * A table that scrolls in itself when it is wide. The first cell of a row is its head.
 * @param {string} caption
 * @param {Column[]} columns
 * @param {{key: string, cells: any[], stale?: boolean}[]} rows `stale`: what stands there may no longer be so.
 * @param {{hidden?: boolean, stacks?: boolean}} [how] `hidden`: the caption is for screen readers alone. `stacks`: where it is
 *   narrow, the cells of a row stand below each other, with the heads beside them.
 */
export function table(caption, columns, rows, how = {}) {
  const of = (/** @type {Column} */ column) => (column.number ? "number" : undefined);
  // A table that is laid out otherwise is one to screen readers only if it says so.
  const role = (/** @type {string} */ name) => (how.stacks ? name : undefined);
  const head = columns.map((column) =>
    element("th", { scope: "col", role: role("columnheader"), class: of(column), "aria-sort": column.sort }, column.head));
  const body = rows.map(({ key, cells, stale }) =>
    element("tr", { "data-key": key, role: role("row"), class: stale ? "stale" : undefined }, cells.map((cell, at) => {
      const attributes = { class: of(columns[at]), "data-head": how.stacks ? columns[at].head : undefined };
      return at === 0 ? element("th", { scope: "row", role: role("rowheader"), ...attributes }, cell) : element("td", { role: role("cell"), ...attributes }, cell);
    })));
  return element("div", { class: how.stacks ? "scroll stacks" : "scroll", role: "region", tabindex: "0", "aria-label": `${caption}, table` },
    element("table", { role: role("table") },
      element("caption", { class: how.hidden ? "unseen" : undefined }, caption),
      element("thead", { role: role("rowgroup") }, element("tr", { role: role("row") }, head)),
      element("tbody", { role: role("rowgroup") }, body)));
}

/**
 * Names and what they are.
 * @param {[string, any][]} facts
 * @param {string} [kind]
 */
export function facts(facts, kind = "facts") {
  return element("dl", { class: kind }, facts.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/**
 * What is shown where there is nothing, and what to do about it.
 * @param {string} what
 * @param {...any} help
 */
export function empty(what, ...help) {
  return element("div", { class: "empty" }, element("p", {}, element("strong", {}, what)), help);
}

/**
 * A line of the shell with a button that copies it.
 * @param {string} line
 * @param {string} [label]
 */
export function shell(line, label = "Same on the command line") {
  const code = element("code", { dir: "ltr" }, visible(line));
  const said = element("span", { role: "status", class: "quiet" });
  const copy = button("Copy", () => void copied(line, code, said), { "aria-label": `Copy: ${label}`, class: "small" });
  return element("div", { class: "shell" }, element("span", { class: "label" }, label), element("pre", {}, code), copy, said);
}

/**
 * @param {string} line
 * @param {HTMLElement} code
 * @param {HTMLElement} said
 */
async function copied(line, code, said) {
  try {
    await navigator.clipboard.writeText(line);
    said.textContent = "Copied";
  } catch {
    getSelection()?.selectAllChildren(code);
    said.textContent = "Selected: copy it with the keyboard";
  }
}

/**
 * A section with its heading.
 * @param {string | [string, any]} heading Its words, and what stands beside them.
 * @param {...any} children
 */
export function section(heading, ...children) {
  const [title, beside] = typeof heading === "string" ? [heading] : heading;
  const id = `section-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const head = element("h2", { id }, title);
  return element("section", { "aria-labelledby": id }, beside ? element("div", { class: "headed" }, head, beside) : head, ...children);
}
