// @ts-check
// The list of what needs attention: each item has its cause, and a link to the page about it.

import { command, givenGroup } from "./command.js";
import { element } from "./dom.js";
import { counted, number } from "./format.js";
import { chip, link, shell } from "./parts.js";
import { to } from "./place.js";

/** @typedef {{kind: string, topic?: string, group?: string, cause: string}} Item */
/** @typedef {{attention: Item[], topics_seen: number, topics?: number}} Attention `topics` is absent if they are not known. */

/** The page about each kind that has one; the others lead to the topic. */
const PLACES = /** @type {Record<string, string>} */ ({ dead_letters: "dead", broker_gone: "brokers", wal_filling: "brokers", evicting: "brokers", disk_low: "brokers", open_files: "brokers", clock_offset: "brokers", memory_filling: "brokers", degraded: "brokers", not_ready: "brokers", restoring: "brokers" });

/** @param {Item} item */
function placeOf({ kind, topic, group }) {
  if (topic === undefined) return link(to([PLACES[kind] ?? ""].filter(Boolean)), "Fleet");
  const given = { group: givenGroup(group) };
  const behind = kind === "dead_letters" ? { ...given, younger_than: "30m" } : given;
  const parts = PLACES[kind] ? ["topics", topic, PLACES[kind]] : ["topics", topic];
  return link(to(parts, behind), topic, given.group ? ` · ${group}` : "");
}

/** Kinds that say how a group delivers, so that its state says the same. */
const DELIVERY = ["no_consumer", "late", "blocked", "paused"];

/** A group, and the state that a later answer gave it. @typedef {{topic: string, group: string, state: string}} State */

/**
 * What is found, brought up to later answers: the list of what needs attention may be 2 seconds old, and must not contradict
 * the rows that stand beside it.
 * @param {Attention} found
 * @param {string[] | undefined} names All topics; nothing if they are not known.
 * @param {State[]} states
 * @returns {Attention}
 */
export function upToDate(found, names, states) {
  const stateOf = new Map(states.map(({ topic, group, state }) => [`${topic}/${group}`, state]));
  const named = names && new Set(names);
  const attention = found.attention.flatMap((item) => {
    if (item.topic !== undefined && named?.has(item.topic) === false) return [];
    const state = stateOf.get(`${item.topic}/${item.group}`);
    if (state === undefined || !DELIVERY.includes(item.kind)) return [item];
    // Nothing is late while the window is closed.
    if (state !== "closed" && (state === "paused") === (item.kind === "paused")) return [item];
    return [];
  });
  for (const { topic, group, state } of states) {
    const said = attention.some((item) => item.kind === "paused" && item.topic === topic && item.group === group);
    if (state === "paused" && !said) attention.push({ kind: "paused", topic, group, cause: "paused a moment ago" });
  }
  const topics = names?.length;
  return { attention, topics, topics_seen: Math.min(found.topics_seen, topics ?? 0) };
}

/** Which topics were looked at. @param {Attention} found */
function seenOf({ topics_seen, topics }) {
  if (topics === undefined) return "The topics could not be read, so nothing is known of them.";
  if (topics_seen === topics) return `${counted(topics, "topic")} looked at, in all groups.`;
  if (topics_seen === 0) return `None of ${counted(topics, "topic")} was looked at yet.`;
  return `${number(topics_seen)} of ${number(topics)} topics were looked at, those with recent traffic first.`;
}

/** @param {Attention} found */
export function attentionList(found) {
  const { attention, topics, topics_seen } = found, seen = seenOf(found);
  // Without a look at the topics nobody knows whether all is well.
  const unknown = topics === undefined || (topics_seen === 0 && topics > 0);
  if (attention.length === 0) return element("div", { class: "note well" }, unknown ? null : chip("well"), element("span", { class: "quiet" }, seen));
  return [
    element("ul", { class: "attention" }, attention.map((item) =>
      element("li", { "data-key": `${item.kind}/${item.topic}/${item.group}` }, chip(item.kind), placeOf(item), element("span", { class: "cause" }, item.cause)))),
    element("p", { class: "hint" }, attention.length >= 200 ? "There is more than these 200. " : "", seen),
    shell(command("attention", [])),
  ];
}

/**
 * The state of a group: what needs attention first, or else what it is.
 * @param {Attention} found
 * @param {string} topic
 * @param {{group: string, state: string}} group
 * @param {string} [behind] Said behind a state that is no reason for attention.
 */
export function stateOf({ attention }, topic, { group, state }, behind = "") {
  const kind = attention.find((item) => item.topic === topic && (item.group ?? group) === group)?.kind;
  return state === "active" && kind ? chip(kind) : chip(state, behind);
}
