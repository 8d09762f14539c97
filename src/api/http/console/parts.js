// @ts-check
// What pages are made of: states, times, tables, command lines, facts.

import { element } from "./dom.js";
import { NOTHING, absolute, beginning, relative, visible } from "./format.js";

/** A sign and a word for each state, so that colour is not needed. */
const STATES = {
  scheduled: ["○", "scheduled"], ready: ["●", "ready"], in_flight: ["▶", "in flight"], dead: ["✕", "dead"],
  active: ["●", "active"], paused: ["⏸︎", "paused"], copying: ["▷", "copying"], degraded: ["▲", "degraded"],
  restoring: ["▲", "restoring"],
  up: ["●", "ready"], down: ["✕", "not ready"], stored: ["●", "stored"], journaled: ["●", "journaled"], buffered: ["▲", "buffered"],
  duplicate: ["=", "duplicate"], replaced: ["●", "replaced"], debounced: ["●", "debounced"],
};

/**
 * A state as a sign, a word and a colour.
 * @param {string} state
 * @param {string} [behind] Said behind the word.
 */
export function chip(state, behind = "") {
  const [sign, word] = STATES[/** @type {keyof typeof STATES} */ (state)] ?? ["·", state.replaceAll("_", " ")];
  const mark = element("span", { "aria-hidden": "true", class: "sign" }, sign);
  return element("span", { class: `chip ${state.replaceAll("_", "-")}` }, mark, behind ? `${word} ${behind}` : word);
}

/**
 * A time, with how far away it is.
 * @param {string | undefined} text RFC 3339.
 */
export function time(text) {
  if (!text) return element("span", { class: "quiet" }, NOTHING);
  const at = new Date(text);
  const away = element("span", { class: "quiet" }, relative(at));
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
 * @param {{key: string, cells: any[]}[]} rows
 * @param {{hidden?: boolean}} [how] `hidden`: the caption is for screen readers alone.
 */
export function table(caption, columns, rows, how = {}) {
  const of = (/** @type {Column} */ column) => (column.number ? "number" : undefined);
  const head = columns.map((column) =>
    element("th", { scope: "col", class: of(column), "aria-sort": column.sort }, column.head));
  const body = rows.map(({ key, cells }) =>
    element("tr", { "data-key": key }, cells.map((cell, at) => {
      const attributes = { class: of(columns[at]) };
      return at === 0 ? element("th", { scope: "row", ...attributes }, cell) : element("td", attributes, cell);
    })));
  return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `${caption}, table` },
    element("table", {},
      element("caption", { class: how.hidden ? "unseen" : undefined }, caption),
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, body)));
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
 * @param {string} title
 * @param {...any} children
 */
export function section(title, ...children) {
  const id = `section-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return element("section", { "aria-labelledby": id }, element("h2", { id }, title), ...children);
}
