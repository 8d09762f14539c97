// @ts-check
// Dead messages: looked through, redriven, purged.

import { Problem, call, path, query } from "./api.js";
import { command, givenGroup } from "./command.js";
import { ask, fieldOf, valuesOf } from "./dialog.js";
import { draw, element } from "./dom.js";
import { byError } from "./errors.js";
import { groupChoice, headingOf, tabs } from "./frame.js";
import { beginning, number } from "./format.js";
import { placeOfMessage } from "./messages.js";
import { button, empty, foreign, link, reason, section, shell, table, time, wordsOf } from "./parts.js";
import { preview } from "./payload.js";
import { MAY_CHANGE, go, to } from "./place.js";
import { box, selection } from "./selection.js";

/** Messages on a page. */
const PAGE = 50;

/** Ids in a request. */
const IDS = 1_000;

/** The fields of a filter, as the API has them. */
const FILTER = ["reason", "older_than", "younger_than", "text"];

/** In which order they are listed, as the API has it. @type {[string, string][]} */
const ORDERS = [["newest", "newest death first"], ["oldest", "oldest death first"]];

/** Dead letters that are looked through for their errors. */
const LOOKED_THROUGH = 1_000;

/** Which dead letters: those of a filter, those that are chosen, or those with an `error`.
 *  @typedef {{topic: string, group: string, filter: Record<string, string>, chosen: () => string[], error?: string, reload: () => void}} Dead */

/**
 * @param {string} topic
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function dead(topic, place, page) {
  const group = place.given.group ?? "default";
  const order = orderOf(place.given);
  const filter = Object.fromEntries(FILTER.filter((name) => place.given[name]).map((name) => [name, place.given[name]]));
  const list = element("div", { "aria-live": "polite", "aria-busy": "true" }), errors = element("div", {});
  const selected = selection(list), chosen = () => selected.chosen().map(({ id }) => id);
  const reload = () => page.reads(async () => {
    const target = path`/v1/topics/${topic}/groups/${group}/dead-letters`, { cursor } = place.given;
    const found = await call("GET", `${target}${query({ ...filter, order, limit: PAGE, cursor })}`, page);
    draw(list, listed(topic, place.given, found), shell(command("dead-letters list", [topic], { ...flags(group, filter), order })));
    selected.clear();
    list.setAttribute("aria-busy", "false");
    // Where the list is whole it says by itself which errors there are.
    const some = cursor || found.next_cursor ? await call("GET", `${target}${query({ ...filter, order, limit: LOOKED_THROUGH })}`, page) : found;
    draw(errors, Object.keys(filter).length ? element("p", { class: "hint" }, "Only of those that the filter shows.") : null, byError(some, (verb, error, ids) => void (verb === "Purge" ? purge : redrive)({ ...all, error, chosen: () => ids }).then(reload)));
  });
  const all = { topic, group, filter, chosen, reload };
  page.body.append(
    tabs(topic, "Dead letters", group),
    groupChoice(topic, group, page, (group) => to(["topics", topic, "dead"], { ...place.given, group, cursor: undefined })),
    section("By error", errors), section("Filter", filterForm(topic, place.given)), MAY_CHANGE ? actions(all, selected.bar) : "", section("Dead letters", list));
  void reload();
  return headingOf(topic, "Dead letters");
}

/** @param {Record<string, string>} given */
const orderOf = (given) => ORDERS.find(([order]) => order === given.order)?.[0] ?? "newest";

/**
 * @param {string} group
 * @param {Record<string, string>} filter
 */
function flags(group, filter) {
  const named = Object.entries(filter).map(([name, value]) => [name.replaceAll("_", "-"), value]);
  return { group: givenGroup(group), ...Object.fromEntries(named) };
}

/**
 * @param {string} topic
 * @param {Record<string, string>} given
 */
function filterForm(topic, given) {
  /** @param {Event} event */
  const submitted = (event) => {
    event.preventDefault();
    void go(to(["topics", topic, "dead"], { group: given.group, ...valuesOf(/** @type {HTMLFormElement} */ (event.currentTarget)) }));
  };
  return element("form", { class: "bar fields", onsubmit: submitted },
    fieldOf({ name: "reason", label: "Reason", value: given.reason ?? "", type: [["", "any"], ["max_attempts", "out of attempts"],
      ["buried", "buried"], ["expired", "expired"], ["unreadable", "unreadable"]] }),
    fieldOf({ name: "older_than", label: "Older than", value: given.older_than, hint: "Died so long ago: 1h, 2d" }),
    fieldOf({ name: "younger_than", label: "Younger than", value: given.younger_than, hint: "1h, 2d" }),
    fieldOf({ name: "text", label: "Text", value: given.text, hint: "In the last error or the payload" }),
    fieldOf({ name: "order", label: "Order", value: orderOf(given), type: ORDERS }),
    element("button", { type: "submit" }, "Filter"));
}

/**
 * @param {Dead} dead
 * @param {HTMLElement[]} bar
 */
function actions(dead, bar) {
  return element("div", { class: "actions" },
    button("Redrive…", () => void redrive(dead).then(dead.reload), { class: "primary" }),
    button("Purge…", () => void purge(dead).then(dead.reload), { class: "danger" }), bar);
}

/**
 * @param {string} topic
 * @param {Record<string, string>} given
 * @param {any} found
 */
function listed(topic, given, found) {
  const next = found.next_cursor
    ? element("nav", { "aria-label": "Pages of dead letters", class: "bar" }, link(to(["topics", topic, "dead"], { ...given, cursor: found.next_cursor }), "Next page"))
    : null;
  if (found.dead_letters.length === 0) {
    if (next) return [element("p", {}, "None so far; there is more to look through."), next];
    return FILTER.some((name) => given[name])
      ? empty("No dead letter is like this.", link(to(["topics", topic, "dead"], { group: given.group }), "Show all"))
      : empty("There are no dead letters.", element("p", {}, "A message that is out of attempts, was buried or has expired is kept here."));
  }
  const sorted = orderOf(given) === "newest" ? "descending" : "ascending";
  const heads = ["Id", "Died at", "Reason", "Attempts", "Last error", "Key", "Payload"].map((head, at) => ({ head, number: at === 3, sort: at === 1 ? sorted : undefined }));
  const rows = found.dead_letters.map((/** @type {any} */ dead) => {
    const cells = [link(placeOfMessage(topic, dead, given.group), element("span", { class: "mono" }, dead.id)), time(dead.died_at),
      [dead.reason, dead.unforwarded].filter(Boolean).join(", ").replaceAll("_", " "), number(dead.attempts), reason(wordsOf(dead.last_error)), foreign(dead.key, 30), preview(dead)];
    return { key: `${dead.partition}/${dead.id}`, cells: MAY_CHANGE ? [box(dead, cells[0]), ...cells.slice(1)] : cells };
  });
  const [, words] = ORDERS.find(([order]) => order === orderOf(given)) ?? ORDERS[0];
  return [table(`Dead letters of all partitions, the ${words}`, heads, rows, { stacks: true }),
    given.cursor ? element("p", {}, link(to(["topics", topic, "dead"], { ...given, cursor: undefined }), "First page")) : null, next];
}

/**
 * Which ones: those that are selected, or all that the filter lets through.
 * @param {Dead} dead
 * @param {string} verb
 * @returns {import("./dialog.js").Field}
 */
function whichField({ filter, chosen, error }, verb) {
  const filtered = Object.keys(filter).length > 0, count = number(chosen().length);
  /** @type {[string, string][]} */
  const choices = error !== undefined ? [["chosen", `${verb} the ${count} with this error`]]
    : [["described", filtered ? `${verb} all that the filter shows` : `${verb} all of the group`]];
  if (error === undefined && chosen().length) choices.unshift(["chosen", `${verb} the ${count} selected`]);
  // A purge cannot be undone, so nothing is chosen at first.
  if (verb === "Purge") choices.unshift(["", "Choose…"]);
  return { name: "which", label: "Which", type: choices, required: true };
}

/**
 * @param {Dead} dead
 * @param {string} verb
 * @param {Record<string, string>} values
 * @param {string[]} ids
 */
function lineOf({ topic, group, filter }, verb, values, ids) {
  // Nothing is chosen yet.
  if (values.which === undefined) return command("dead-letters list", [topic], flags(group, filter));
  if (values.which === "chosen") return command(`dead-letters ${verb}`, [topic, ...ids], { group: givenGroup(group) });
  const all = Object.keys(filter).length === 0;
  return command(`dead-letters ${verb}`, [topic], { ...flags(group, filter), all, rate: values.rate, limit: values.limit });
}

/**
 * Repeats a request until nothing is left, as the API has it.
 * @param {Dead} dead
 * @param {{method: string, target: string, counted: string, ids: string[], values: Record<string, string>}} request
 * @param {{said: (text: string) => void, signal: AbortSignal}} dialog
 * @returns {Promise<number>}
 */
async function sweep({ filter }, { method, target, counted, ids, values }, { said, signal }) {
  if (values.which === "chosen") {
    let done = 0;
    for (let at = 0; at < ids.length; at += IDS) done += (await call(method, target, { json: { ids: ids.slice(at, at + IDS) }, signal }))[counted];
    return done;
  }
  const [rate, limit] = [values.rate, values.limit].map((text) => (text ? Number(text) : undefined));
  const all = Object.keys(filter).length === 0 ? true : undefined;
  let [count, cursor] = [0, undefined];
  do {
    const left = limit === undefined ? undefined : limit - count;
    const answer = await call(method, target, { json: { ...filter, all, rate, limit: left, cursor }, signal });
    count += answer[counted];
    cursor = answer.next_cursor;
    said(`${number(count)} ${counted} so far. Cancel stops it; what is done is done.`);
  } while (cursor !== undefined && (limit === undefined || count < limit));
  return count;
}

/** @type {import("./dialog.js").Field[]} */
const PACE = [
  { name: "rate", label: "Rate", type: "number", hint: "Messages a second, 1 to 100,000; empty: as fast as it goes", more: { min: 1, max: 100_000, step: 1 }, shown: ({ which }) => which === "described" },
  { name: "limit", label: "At most", type: "number", hint: "Messages; empty: all", more: { min: 1, step: 1 }, shown: ({ which }) => which === "described" },
];

/** @param {Dead} dead */
function redrive(dead) {
  const ids = dead.chosen();
  return ask({
    title: dead.error === undefined ? `Redrive dead letters of ${dead.group}` : `Redrive: ${beginning(dead.error, 60)}`,
    body: element("p", {}, "They are ready again at once, with no attempt counted. A consumer that still fails makes them dead again."),
    ids: ({ which }) => (which === "chosen" ? ids : []),
    fields: [whichField(dead, "Redrive"), ...PACE],
    confirm: "Redrive",
    line: (values) => lineOf(dead, "redrive", values, ids),
    run: async (values, dialog) => {
      const target = path`/v1/topics/${dead.topic}/groups/${dead.group}/dead-letters/redrive`;
      const count = await sweep(dead, { method: "POST", target, counted: "redriven", ids, values }, dialog);
      return [`${number(count)} redriven.`];
    },
  });
}

/** @param {Dead} dead */
function purge(dead) {
  const ids = dead.chosen();
  return ask({
    title: dead.error === undefined ? `Purge dead letters of ${dead.group}` : `Purge: ${beginning(dead.error, 60)}`,
    body: element("p", {}, "They are deleted for good."),
    ids: ({ which }) => (which === "chosen" ? ids : []),
    fields: [whichField(dead, "Purge"), ...PACE,
      { name: "topic", label: `Type the name of the topic, ${dead.topic}, to confirm`, required: true }],
    confirm: "Purge for good",
    danger: true,
    line: (values) => lineOf(dead, "purge", values, ids),
    run: async (values, dialog) => {
      if (values.topic !== dead.topic) throw new Problem("Nothing is purged", `"${values.topic}" is not the name of the topic.`);
      const target = path`/v1/topics/${dead.topic}/groups/${dead.group}/dead-letters/purge`;
      const count = await sweep(dead, { method: "POST", target, counted: "purged", ids, values }, dialog);
      return [`${number(count)} purged.`];
    },
  });
}
