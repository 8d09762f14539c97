// @ts-check
// One message: where it is, what keeps it, and what can be done about it.

import { Problem, call, path, pathOfMessage } from "./api.js";
import { command, givenGroup } from "./command.js";
import { ask, dueFields, utc } from "./dialog.js";
import { draw, element } from "./dom.js";
import { bytes, number, visible } from "./format.js";
import { groupChoice, tabs } from "./frame.js";
import { placeOfMessage } from "./messages.js";
import { button, chip, empty, facts, failure, foreign, link, reason, section, shell, table, time } from "./parts.js";
import { payloadOf } from "./payload.js";
import { MAY_CHANGE, to } from "./place.js";

/** @typedef {{topic: string, id: string, key?: string, group: string}} Which */

/**
 * @param {string} topic
 * @param {string} id
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function message(topic, id, place, page) {
  const which = { topic, id, key: place.given.key, group: place.given.group ?? "default" };
  const state = element("div", { "aria-live": "polite" }), why = element("div", {}), actions = element("div", { class: "actions" });
  const line = element("div", {}), contents = element("div", {});
  page.body.append(
    tabs(topic, "Messages", which.group),
    groupChoice(topic, which.group, page, (group) => placeOfMessage(topic, which, group)),
    actions, section("State", state), section("Why it is not delivered yet", why), section("Time line", line), contents);
  const reload = () => page.reads(async () => {
    const [found, explained] = await Promise.all([look(which, page.signal), explain(which, page.signal)]);
    draw(state, found ? stateOf(found) : absent(which), shell(command("message get", [topic, id], flags(which, true))));
    draw(why, reasons(explained), shell(command("explain", [topic, id], flags(which))));
    draw(actions, MAY_CHANGE && found ? offers(which, found, reload) : null);
    draw(line, found ? timeLine(found) : null);
    draw(contents, found ? rest(found) : null);
  });
  void reload();
  /** @type {[string, string][]} */
  const crumbs = [["Overview", to([])], [topic, to(["topics", topic])], ["Messages", to(["topics", topic, "messages"], { group: place.given.group })]];
  return { title: element("bdi", { class: "mono" }, id), plain: `${id} · ${topic}`, crumbs };
}

/**
 * @param {Which} which
 * @param {boolean} [group]
 */
function flags(which, group = false) {
  return { key: which.key, group: group ? givenGroup(which.group) : undefined };
}

/**
 * @param {Which} which
 * @param {AbortSignal} signal
 * @returns {Promise<any>} Nothing when it is not there.
 */
async function look(which, signal) {
  try {
    return await call("GET", pathOfMessage(which, "", which.group), { signal });
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return undefined;
    throw error;
  }
}

/**
 * @param {Which} which
 * @param {AbortSignal} signal
 */
async function explain(which, signal) {
  return call("GET", pathOfMessage(which, "/explain"), { signal });
}

/** @param {Which} which */
function absent(which) {
  return empty(`${which.group} does not have it.`, element("p", {}, which.key
    ? "It was never pushed with this id and key, or it is settled."
    : "It was never pushed with this id, it is settled, or it was pushed with a key: give the key, too."),
  link(to(["topics", which.topic, "messages"]), "Find another one"));
}

/** @param {any} found */
function stateOf(found) {
  /** @type {[string, any][]} */
  const all = [["State", chip(found.state)], ["Attempts", number(found.attempts)]];
  if (found.next_at) all.push(["Next at", time(found.next_at)]);
  if (found.died_at) all.push(["Died at", time(found.died_at)], ["Reason", found.reason.replaceAll("_", " ")]);
  if (found.last_error) all.push(["Last error", failure(found.last_error)]);
  if (found.owner) all.push(["Owner", element("bdi", { class: "mono" }, found.owner)]);
  all.push(["Due at", time(found.due_at)], ["Pushed at", time(found.pushed_at)], ["Key", foreign(found.key, 256)], ["Partition", number(found.partition)]);
  if (found.expires_at) all.push(["Expires at", time(found.expires_at)]);
  if (found.successor_due_at) all.push(["Successor due at", time(found.successor_due_at)]);
  if (found.max_attempts != null) all.push(["Max attempts", found.max_attempts ? number(found.max_attempts) : "without a limit"]);
  if (found.priority) all.push(["Priority", number(found.priority)]);
  return facts(all);
}

/** @param {any} explained */
function reasons(explained) {
  const rows = explained.groups.map((/** @type {any} */ each) => ({
    key: each.group, cells: [each.group, each.reason.replaceAll("_", " "), reason(each.detail)],
  }));
  return table("What keeps it, in each group", [{ head: "Group" }, { head: "Reason" }, { head: "Detail" }], rows, { hidden: true, stacks: true });
}

/** @param {any} found */
function rest(found) {
  const meta = Object.entries(found.meta ?? {});
  const attributes = Object.entries(found.attributes ?? {});
  return [
    section("Payload", found.content_type ? element("p", { class: "hint" }, "Content type: ", element("bdi", {}, visible(found.content_type))) : null, payloadOf(found)),
    found.attachment && !attributes.length ? section("Attachment", element("p", {}, `${bytes(sizeOf(found.attachment))} of a gateway, beside the payload.`)) : null,
    found.dead_letter_source ? section("Dead letter of", sourceOf(found.dead_letter_source)) : null,
    meta.length ? section("Meta", facts(meta.map(([name, value]) => [visible(name), element("bdi", {}, visible(String(value)))]))) : null,
    attributes.length ? section("SQS attributes", facts(attributes.map(([name, value]) => [visible(name), element("bdi", {}, visible(`${value.type}: ${value.value ?? value.value_base64}`))]))) : null,
  ];
}

/** The bytes that base64 stands for. @param {string} base64 */
const sizeOf = (base64) => (base64.length / 4) * 3 - (base64.match(/=*$/)?.[0].length ?? 0);

/** @param {any} source */
function sourceOf(source) {
  const there = { id: source.id };
  return facts([
    ["Topic", link(to(["topics", source.topic]), source.topic)], ["Group", source.group],
    ["Id", link(placeOfMessage(source.topic, there, source.group), element("span", { class: "mono" }, source.id))],
    ["Died at", time(source.died_at)], ["Reason", source.reason.replaceAll("_", " ")], ["Attempts", number(source.attempts)],
    ["Topics that forwarded it", number(source.hops)],
    ["Last error", failure(source.last_error)],
  ]);
}

/** What happened to a message and what will, in the order of time. @param {any} found */
function timeLine(found) {
  const failed = (found.history ?? []).map((/** @type {any} */ each) => [each.at, `Attempt ${number(each.attempt)} failed`, reason(each.reason)]);
  const events = [[found.pushed_at, "Pushed"], [found.due_at, "Due"], ...failed, [found.next_at !== found.due_at && found.next_at, "Next attempt"],
    [found.died_at, "Died", found.reason && found.reason.replaceAll("_", " ")], [found.expires_at, "Expires"]].filter(([at]) => at);
  events.sort(([a], [b]) => Date.parse(a) - Date.parse(b));
  return element("ol", { class: "time-line" }, events.map(([at, what, detail]) =>
    element("li", { class: Date.parse(at) > Date.now() ? "ahead" : undefined }, element("strong", {}, what), " ", time(at), detail ? [" ", detail] : "")));
}

/**
 * What can be done with a message as it is.
 * @param {Which} which
 * @param {any} found
 * @param {() => void} reload
 */
function offers(which, found, reload) {
  if (found.state === "dead") {
    return [button("Redrive", () => void redrive(which).then(reload), { class: "primary", "data-key": "redrive" })];
  }
  if (found.state === "in_flight") return element("p", { class: "hint" }, "A consumer has it: it can be changed once that is settled.");
  return [
    button("Run now", () => void reschedule(which, "Run it now", true).then(reload), { "data-key": "run" }),
    button("Reschedule…", () => void reschedule(which, "Reschedule it", false).then(reload), { "data-key": "reschedule" }),
    button("Cancel the message…", () => void cancel(which).then(reload), { class: "danger", "data-key": "cancel" }),
  ];
}

/**
 * What a request changed, in each group.
 * @param {any} answer
 */
function fates(answer) {
  return answer.groups.map((/** @type {any} */ each) => `${each.group}: ${each.status.replaceAll("_", " ")}`).join(", ");
}

/**
 * @param {Which} which
 * @param {string} title
 * @param {boolean} now
 */
function reschedule(which, title, now) {
  const { topic, id, key } = which;
  return ask({
    title,
    body: element("p", {}, now ? "It becomes due at once, in every group in which it waits." : "It gets another due time, in every group in which it waits."),
    fields: now ? [] : dueFields(false),
    confirm: now ? "Run now" : "Reschedule",
    line: ({ delay, due_at }) => now ? command("message run", [topic, id], { key })
      : command("message reschedule", [topic, id], { key, delay, at: utc(due_at) }),
    run: async ({ delay, due_at }) => {
      const json = now ? { delay: "0s" } : { delay, due_at: utc(due_at) };
      const answer = await call("PATCH", pathOfMessage(which), { json });
      return [element("bdi", { class: "mono" }, id), " is due ", time(answer.due_at), `. ${fates(answer)}.`];
    },
  });
}

/** @param {Which} which */
function cancel(which) {
  const { topic, id, key } = which;
  return ask({
    title: "Cancel the message",
    body: element("p", {}, "It is taken out of every group in which it waits, and delivered to none of them."),
    confirm: "Cancel the message",
    danger: true,
    line: () => command("message cancel", [topic, id], { key }),
    run: async () => {
      const answer = await call("DELETE", pathOfMessage(which));
      return [element("bdi", { class: "mono" }, id), ` is cancelled. ${fates(answer)}.`];
    },
  });
}

/** @param {Which} which */
function redrive({ topic, id, group }) {
  return ask({
    title: "Redrive the message",
    body: element("p", {}, `It is ready again in ${group}, with no attempt counted.`),
    confirm: "Redrive",
    line: () => command("dead-letters redrive", [topic, id], { group: givenGroup(group) }),
    run: async () => {
      const answer = await call("POST", path`/v1/topics/${topic}/groups/${group}/dead-letters/redrive`, { json: { ids: [id] } });
      return [answer.redriven ? "It is redriven." : "It was not dead any more."];
    },
  });
}
