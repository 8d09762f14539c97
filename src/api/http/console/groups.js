// @ts-check
// The groups of a topic: what is in them, who holds them, pause and limits.

import { call, path } from "./api.js";
import { command, givenGroup } from "./command.js";
import { ask } from "./dialog.js";
import { element } from "./dom.js";
import { NOTHING, counted, heldOf, number, relative, span } from "./format.js";
import { deleteGroup } from "./manage.js";
import { objectOf, spelledObject } from "./objects.js";
import { button, chip, link, shell, table, time } from "./parts.js";
import { MAY_CHANGE, to } from "./place.js";
import { explained } from "./tip.js";
import { spelledWindow, windowOf } from "./window.js";

/**
 * @param {string} topic
 * @param {any[]} groups As the API lists them.
 * @param {any} description Of the topic.
 * @param {string} chosen
 * @param {{state: (group: any, behind: string) => any, changed: () => void}} how The state of a group, and what is called when
 *   one was changed.
 */
export function groupTable(topic, groups, description, chosen, { state, changed }) {
  const columns = ["Group", "State", "Scheduled", "Ready", "Blocked", "In flight", "Dead", "Oldest ready", "Owners", "Rate", "Max in flight", "Window", "Fair"];
  const heads = columns.map((head, at) => ({ head: head === "Owners" ? ["Owners ", explained(head)] : head, number: at > 1 && head !== "Window" && head !== "Fair" }));
  if (MAY_CHANGE) heads.push({ head: "Actions", number: false });
  const rows = groups.map((group) => {
    const counts = description.totals.find((/** @type {any} */ each) => each.group === group.group) ?? {};
    const parts = description.partitions.filter((/** @type {any} */ each) => each.group === group.group);
    const owners = new Set(parts.map((/** @type {any} */ part) => part.owner).filter(Boolean));
    const name = link(to(["topics", topic], { group: givenGroup(group.group) }), group.group);
    name.setAttribute("data-key", `group-${group.group}`);
    if (group.group === chosen) name.setAttribute("aria-current", "true");
    const ends = group.paused_until ?? group.opens_at;
    const behind = ends ? relative(new Date(ends)).replace(/^in /, "for ") : group.copy_of ? `of ${group.copy_of}` : "";
    const cells = [name, state(group, behind), number(counts.scheduled), number(counts.ready), number(heldOf(counts)), number(counts.in_flight),
      number(counts.dead), counts.oldest_ready_age_ms !== undefined ? span(counts.oldest_ready_age_ms) : NOTHING,
      number(owners.size),
      group.rate ? `${number(group.rate)}/s` : "no limit", group.max_in_flight ? number(group.max_in_flight) : "no limit", spelledWindow(group.window) || "always open", spelledFairness(group)];
    return { key: group.group, cells: MAY_CHANGE ? [...cells, actions(topic, group, groups.length > 1, changed)] : cells };
  });
  return table("Groups", heads, rows, { hidden: true });
}

/** What takes turns, and the limits of each key: `by key, 5 in flight, 10/s, burst 20`. @param {any} group */
function spelledFairness({ fair, key_max_in_flight, key_rate, key_burst, key_limits = {}, weights = {} }) {
  if (!fair) return "no";
  const [limits, shares] = [key_limits, weights].map((of) => Object.keys(of).length);
  return [`by ${fair}`, key_max_in_flight && `${number(key_max_in_flight)} in flight`, key_rate && `${number(key_rate)}/s`, key_burst && `burst ${number(key_burst)}`,
    limits && counted(limits, "other limit"), shares && counted(shares, "weight")]
    .filter(Boolean).join(", ");
}

/**
 * @param {string} topic
 * @param {any} group
 * @param {boolean} many Whether there are others: the last one cannot be deleted.
 * @param {() => void} changed
 */
function actions(topic, group, many, changed) {
  const name = group.group;
  const key = { "data-key": `pause-${name}`, class: "small" };
  const paused = group.state === "paused";
  return element("div", { class: "actions" },
    paused
      ? button("Resume", () => void resume(topic, name).then(changed), { ...key, "aria-label": `Resume ${name}` })
      : button("Pause…", () => void pause(topic, name).then(changed), { ...key, "aria-label": `Pause ${name}…` }),
    button("Limits…", () => void limit(topic, group).then(changed), { "data-key": `limits-${name}`, class: "small", "aria-label": `Limits of ${name}…` }),
    button("Purge…", () => void purge(topic, name).then(changed), { "data-key": `purge-${name}`, class: "small danger", "aria-label": `Purge ${name}…` }),
    many ? button("Delete…", () => void deleteGroup(topic, name).then(changed), { "data-key": `delete-${name}`, class: "small danger", "aria-label": `Delete ${name}…` }) : null);
}

/**
 * @param {string} topic
 * @param {string} group
 */
function pause(topic, group) {
  return ask({
    title: `Pause ${group}`,
    body: element("p", {}, "Nothing is delivered until it is resumed. What is in flight may still be settled; pushes continue."),
    fields: [{ name: "for", label: "For", hint: "10m, 2h, 1d. Empty: until it is resumed", value: "10m" }],
    confirm: "Pause",
    line: (values) => command("group pause", [topic, group], values),
    run: async (values) => {
      const now = await call("POST", path`/v1/topics/${topic}/groups/${group}/pause`, { json: values });
      return [`${group} is paused`, now.paused_until ? ` for ${relative(new Date(now.paused_until)).replace(/^in /, "")}.` : " until it is resumed."];
    },
  });
}

/**
 * @param {string} topic
 * @param {string} group
 */
function resume(topic, group) {
  return ask({
    title: `Resume ${group}`,
    body: element("p", {}, "Messages are delivered again."),
    confirm: "Resume",
    line: () => command("group resume", [topic, group]),
    run: async () => {
      await call("POST", path`/v1/topics/${topic}/groups/${group}/resume`);
      return [`${group} is resumed.`];
    },
  });
}

/**
 * @param {string} topic
 * @param {any} group
 */
function limit(topic, group) {
  /** @param {Record<string, string>} values */
  const wish = (values) => ({ rate: Number(values.rate ?? 0), max_in_flight: Number(values.max_in_flight ?? 0), window: windowOf(values.window), fair: values.fair, key_max_in_flight: Number(values.key_max_in_flight ?? 0),
    key_rate: Number(values.key_rate ?? 0), key_burst: values.key_burst ? Number(values.key_burst) : Number(values.key_rate ?? 0) ? 1 : undefined,
    key_limits: objectOf(values.key_limits || "{}"), weights: objectOf(values.weights || "{}") });
  return ask({
    title: `Limits of ${group.group}`,
    body: element("p", {}, "By all brokers together. Empty or 0: without a limit; without a window the group is always open."),
    fields: [
      { name: "rate", label: "Rate", type: "number", hint: "Messages a second, 0.001 to 100,000", value: String(group.rate ?? "") },
      { name: "max_in_flight", label: "Max in flight", type: "number", hint: "Deliveries; at least one for each partition", value: String(group.max_in_flight ?? "") },
      { name: "window", label: "Window", hint: "mon-fri 09:00-17:30 Europe/Berlin", value: spelledWindow(group.window) },
      { name: "fair", label: "Fair", type: [["none", "no: the first due is first"], ["key", "by key: each key has its share"]], value: group.fair ?? "none" },
      { name: "key_max_in_flight", label: "Max in flight of a key", type: "number", hint: "Deliveries; only if it is fair", value: String(group.key_max_in_flight ?? "") },
      { name: "key_rate", label: "Rate of a key", type: "number", hint: "Deliveries a second, 0.001 to 100,000; only if it is fair", value: String(group.key_rate ?? "") },
      { name: "key_burst", label: "Burst of a key", type: "number", hint: "Deliveries at once, 1 to 10,000; only with a rate of a key; empty: 1", value: String(group.key_burst ?? "") },
      { name: "key_limits", label: "Limits of some keys", hint: '{"gold-*": {"max_in_flight": 20, "rate": 50}}; only if it is fair', value: spelledObject(group.key_limits) },
      { name: "weights", label: "Weights of keys", hint: '{"customer-7": 3, "gold-*": 2}, where others have 1; only if it is fair', value: spelledObject(group.weights) },
    ],
    confirm: "Set limits",
    line: (values) => {
      const { rate, max_in_flight, key_max_in_flight, key_rate, key_burst } = wish(values);
      return command("group create", [topic, group.group], { rate, "max-in-flight": max_in_flight, window: values.window ?? "none", fair: values.fair ?? "none", "key-max-in-flight": key_max_in_flight,
        "key-rate": key_rate, "key-burst": key_burst, "key-limits": values.key_limits || "{}", weights: values.weights || "{}" });
    },
    run: async (values) => {
      await call("PUT", path`/v1/topics/${topic}/groups/${group.group}`, { json: wish(values) });
      return [`The limits of ${group.group} are set.`];
    },
  });
}

/**
 * Asks with the number of messages, and deletes nothing until one of the two is chosen.
 * @param {string} topic
 * @param {string} group
 */
async function purge(topic, group) {
  const target = path`/v1/topics/${topic}/groups/${group}/purge`;
  /** @param {boolean} dead_letters */
  const count = async (dead_letters) => (await call("POST", target, { json: { all: true, dead_letters, dry_run: true } })).matching;
  const [messages, all] = await Promise.all([count(false), count(true)]);
  return ask({
    title: `Purge ${group}`,
    body: element("p", {}, `Messages of ${group} are deleted for good, also those in flight. Other groups keep theirs, and what is pushed afterwards stays.`),
    fields: [{ name: "which", label: "Delete", required: true, type: [
      ["", "Choose…"],
      ["messages", `${counted(messages, "message")}: scheduled, ready, blocked and in flight`],
      ["all", `${counted(messages, "message")} and ${counted(all - messages, "dead letter")}`],
    ] }],
    confirm: "Purge for good",
    danger: true,
    line: ({ which }) => which === undefined ? command("group get", [topic, group]) : command("group purge", [topic, group], { "dead-letters": which === "all" }),
    run: async ({ which }) => {
      const answer = await call("POST", target, { json: { all: true, dead_letters: which === "all" } });
      return [`${counted(answer.purged, "message")} of ${group} purged.`];
    },
  });
}

/** A member whose heartbeat is older missed several: it sends one a second, or as its configuration says. */
const UNHEARD_MS = 15_000;

/**
 * How long ago a heartbeat was sent, and whether it is so old that what it said may no longer be so.
 * @param {{heard_at?: string}} broker
 * @param {number} [most] Milliseconds.
 */
export function heard({ heard_at }, most = UNHEARD_MS) {
  if (!heard_at) return { cell: NOTHING, stale: false };
  const stale = Date.now() - Date.parse(heard_at) > most;
  return { cell: element("span", {}, stale ? [chip("unheard"), " "] : "", time(heard_at)), stale };
}

/**
 * The brokers that consume for a group.
 * @param {string} topic
 * @param {any} description Of the group.
 */
export function memberTable(topic, description) {
  const heads = ["Member", "Version", "Demand", "Waiting consumers", "Partitions", "Last heard"];
  const rows = description.members.map((/** @type {any} */ member) => {
    const { cell, stale } = heard(member);
    return { key: member.member, stale, cells: [element("bdi", { class: "mono" }, member.member), member.version, member.demand ? "yes" : "no",
      number(member.waiting), number(member.owned), cell] };
  });
  return [
    table(`Members of ${description.group}`, heads.map((head, at) => ({ head, number: at === 3 || at === 4 })), rows, { hidden: true }),
    rows.length ? null : element("p", { class: "quiet" }, "No broker consumes for this group."),
    shell(command("group get", [topic, description.group])),
  ];
}

/**
 * Which partitions there are, what is in them and who owns them.
 * @param {any} description Of the topic.
 * @param {string} group
 * @param {any[]} members Of the group: an owner that is none of them is not heard any more, and its lease will end.
 */
export function partitionTable(description, group, members) {
  const heads = ["Partition", "Scheduled", "Ready", "Blocked", "In flight", "Dead", "Next due", "Oldest ready", "Owner"];
  const live = new Set(members.filter((member) => !heard(member).stale).map(({ member }) => member));
  const rows = description.partitions.filter((/** @type {any} */ part) => part.group === group).map((/** @type {any} */ part) => {
    const stale = part.owner !== undefined && part.owner !== null && !live.has(part.owner);
    return { key: String(part.partition), stale,
      cells: [number(part.partition), number(part.scheduled), number(part.ready), number(heldOf(part)), number(part.in_flight), number(part.dead),
        part.next_due_at ? relative(new Date(part.next_due_at)) : NOTHING,
        part.oldest_ready_age_ms !== undefined ? span(part.oldest_ready_age_ms) : NOTHING,
        part.owner ? element("span", {}, element("bdi", { class: "mono" }, part.owner), stale ? [" ", chip("unheard")] : "") : element("span", { class: "quiet" }, "nobody")] };
  });
  return [
    table(`Partitions of ${group}`, heads.map((head, at) => ({ head, number: at > 0 && at < 7 })), rows, { hidden: true }),
    shell(command("topic get", [description.topic])),
  ];
}
