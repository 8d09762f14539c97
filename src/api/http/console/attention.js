// @ts-check
// The list of what needs attention: each item has its cause, and a link to the page about it.

import { command, givenGroup } from "./command.js";
import { element } from "./dom.js";
import { counted, number } from "./format.js";
import { chip, link, shell } from "./parts.js";
import { to } from "./place.js";

/** @typedef {{kind: string, topic?: string, group?: string, cause: string}} Item */
/** @typedef {{attention: Item[], topics_seen: number, topics: number}} Attention */

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

/** @param {Attention} found */
export function attentionList({ attention, topics_seen, topics }) {
  const seen = topics_seen < topics
    ? `${number(topics_seen)} of ${number(topics)} topics were looked at, those with recent traffic first.`
    : `${counted(topics, "topic")} looked at, in all groups.`;
  if (attention.length === 0) return element("div", { class: "note well" }, chip("well"), element("span", { class: "quiet" }, seen));
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
 */
export function stateOf({ attention }, topic, { group, state }) {
  const kind = attention.find((item) => item.topic === topic && (item.group ?? group) === group)?.kind;
  return chip(state === "active" ? (kind ?? state) : state);
}
