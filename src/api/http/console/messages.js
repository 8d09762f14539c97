// @ts-check
// The messages of a group, page by page, and the way to one of them.

import { Problem, call, each, path, pathOfMessage, query } from "./api.js";
import { command, givenGroup } from "./command.js";
import { ask, dueFields, fieldOf, utc, valuesOf } from "./dialog.js";
import { draw, element } from "./dom.js";
import { groupChoice, headingOf, tabs } from "./frame.js";
import { counted, number } from "./format.js";
import { button, chip, empty, foreign, link, shell, section, table, time } from "./parts.js";
import { preview } from "./payload.js";
import { MAY_CHANGE, go, to } from "./place.js";
import { box, selection } from "./selection.js";

/** Messages on a page. */
const PAGE = 50;

/** Messages that are changed at the same time. */
const AT_ONCE = 8;

/** Whether the messages of a list wait, so that they have one order over all partitions. @param {string | undefined} state */
const waits = (state) => !["blocked", "backoff", "in_flight", "dead"].includes(state);

/**
 * @param {string} topic
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function messages(topic, place, page) {
  const { group = "default", state, from, to: until, cursor } = place.given;
  const list = element("div", { "aria-live": "polite", "aria-busy": "true" });
  const buttons = [["Reschedule selected…", reschedule, "primary"], ["Cancel selected…", cancel, "danger"]].map(([label, run, look]) =>
    button(label, () => void run(topic, selected.chosen()).then(reload), { class: look, disabled: true }));
  const selected = selection(list, (count) => buttons.forEach((button) => { button.disabled = count === 0; }));
  const actions = MAY_CHANGE && waits(state) ? element("div", { class: "actions" }, buttons, selected.bar) : "";
  page.body.append(
    tabs(topic, "Messages", group),
    groupChoice(topic, group, page, (group) => to(["topics", topic, "messages"], { ...place.given, group, cursor: undefined })),
    section("Find a message", finder(topic, group)), section("List", filter(topic, place.given), actions, list));
  const reload = () => page.reads(async () => {
    const wanted = { group, state, from, to: until, order: waits(state) ? "due" : undefined, limit: PAGE, cursor };
    const found = await call("GET", `${path`/v1/topics/${topic}/messages`}${query(wanted)}`, page);
    const line = command("message list", [topic], { group: givenGroup(group), state, from, to: until });
    draw(list, listed(topic, place.given, found), shell(line));
    selected.clear();
    list.setAttribute("aria-busy", "false");
  });
  void reload();
  return headingOf(topic, "Messages");
}

/**
 * Where a message is shown.
 * @param {string} topic
 * @param {{id: string, key?: string}} message
 * @param {string} [group]
 */
export function placeOfMessage(topic, message, group) {
  return to(["topics", topic, "messages", message.id], { key: message.key, group: givenGroup(group) });
}

/**
 * @param {string} topic
 * @param {string} group
 */
function finder(topic, group) {
  /** @param {Event} event */
  const submitted = (event) => {
    event.preventDefault();
    const { id, key } = valuesOf(/** @type {HTMLFormElement} */ (event.currentTarget));
    void go(placeOfMessage(topic, { id, key }, group));
  };
  return element("form", { class: "bar fields", onsubmit: submitted },
    fieldOf({ name: "id", label: "Id", required: true }),
    fieldOf({ name: "key", label: "Key", hint: "The one it was pushed with, if it was" }),
    element("button", { type: "submit" }, "Open"));
}

/**
 * @param {string} topic
 * @param {Record<string, string>} given
 */
function filter(topic, given) {
  /** @param {string | undefined} time */
  const local = (time) => {
    const at = new Date(time ?? "");
    return Number.isNaN(at.getTime()) ? "" : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  };
  /** @param {Event} event */
  const submitted = (event) => {
    event.preventDefault();
    const { state, from, to: until } = valuesOf(/** @type {HTMLFormElement} */ (event.currentTarget));
    void go(to(["topics", topic, "messages"], { group: given.group, state, from: utc(from), to: utc(until) }));
  };
  return element("form", { class: "bar fields", onsubmit: submitted },
    fieldOf({ name: "state", label: "State", value: given.state ?? "", type: [["", "scheduled and ready"], ["scheduled", "scheduled"],
      ["ready", "ready"], ["blocked", "blocked"], ["backoff", "backoff"], ["in_flight", "in flight"], ["dead", "dead"]] }),
    fieldOf({ name: "from", label: "Due from", type: "datetime-local", value: local(given.from) }),
    fieldOf({ name: "to", label: "Due before", type: "datetime-local", value: local(given.to) }),
    element("button", { type: "submit" }, "Show"));
}

/**
 * @param {string} topic
 * @param {Record<string, string>} given
 * @param {any} found
 */
function listed(topic, given, found) {
  const next = found.next_cursor
    ? element("nav", { "aria-label": "Pages of messages", class: "bar" }, link(to(["topics", topic, "messages"], { ...given, cursor: found.next_cursor }), "Next page"))
    : null;
  if (found.messages.length === 0) {
    if (next) return [element("p", {}, "There is none on this page; there may be on the next."), next];
    return empty("No message is like this.", element("p", {}, "Choose another state or time", MAY_CHANGE ? [", or ", link(to(["topics", topic, "push"]), "push one"), "."] : "."));
  }
  const heads = ["Id", "State", "Next at", "Key", "Attempts", "Partition", "Payload"];
  const rows = found.messages.map((/** @type {any} */ message) => {
    const name = link(placeOfMessage(topic, message, given.group), element("span", { class: "mono" }, message.id));
    return {
      key: `${message.partition}/${message.id}`,
      cells: [MAY_CHANGE && waits(given.state) ? box(message, name) : name, chip(message.state), time(message.next_at ?? message.due_at),
        foreign(message.key, 40), number(message.attempts), number(message.partition), preview(message)],
    };
  });
  return [
    table(waits(given.state) ? "Messages by due time, the earliest first" : "Messages, partition by partition", heads.map((head, at) => ({ head, number: at === 4 || at === 5 })), rows, { stacks: true }),
    given.cursor ? element("p", {}, link(to(["topics", topic, "messages"], { ...given, cursor: undefined }), "First page")) : null,
    next,
  ];
}

/**
 * Changes messages one by one; those that a consumer took meanwhile, or that are gone, are passed over.
 * @param {import("./selection.js").Selected[]} chosen
 * @param {(message: import("./selection.js").Selected, signal: AbortSignal) => Promise<any>} change
 * @param {string} word What is said of those that were changed.
 * @param {{said: (text: string) => void, signal: AbortSignal}} dialog
 */
async function changeEach(chosen, change, word, { said, signal }) {
  let [changed, passed] = [0, 0];
  await each(chosen, AT_ONCE, async (message) => {
    try {
      await change(message, signal);
      changed += 1;
    } catch (error) {
      if (!(error instanceof Problem && (error.status === 404 || error.status === 409))) throw error;
      passed += 1;
    }
    said(`${number(changed)} ${word} so far. Cancel stops it; what is done is done.`);
  });
  return [`${counted(changed, "message")} ${word}`, passed ? `; ${number(passed)} passed over.` : "."];
}

/**
 * @param {string} topic
 * @param {import("./selection.js").Selected[]} chosen
 */
function cancel(topic, chosen) {
  const title = `Cancel ${counted(chosen.length, "message")}`;
  return ask({
    title,
    ids: () => chosen.map(({ id }) => id),
    body: element("p", {}, "Each is taken out of every group in which it waits, and delivered to none of them."),
    confirm: title,
    danger: true,
    line: () => chosen.map(({ id, key }) => command("message cancel", [topic, id], { key })).join(" && "),
    run: (_, dialog) => changeEach(chosen, (message, signal) => call("DELETE", pathOfMessage({ topic, ...message }), { signal }), "cancelled", dialog),
  });
}

/**
 * @param {string} topic
 * @param {import("./selection.js").Selected[]} chosen
 */
function reschedule(topic, chosen) {
  const title = `Reschedule ${counted(chosen.length, "message")}`;
  return ask({
    title,
    ids: () => chosen.map(({ id }) => id),
    body: element("p", {}, "Each gets another due time, in every group in which it waits."),
    fields: dueFields(false),
    confirm: title,
    line: ({ delay, due_at }) => chosen.map(({ id, key }) =>
      command("message reschedule", [topic, id], { key, delay, at: utc(due_at) })).join(" && "),
    run: ({ delay, due_at }, dialog) => {
      const json = { delay, due_at: utc(due_at) };
      return changeEach(chosen, (message, signal) => call("PATCH", pathOfMessage({ topic, ...message }), { json, signal }), "rescheduled", dialog);
    },
  });
}
