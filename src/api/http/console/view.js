// @ts-check
// Which page an address is of.

import { cron } from "./cron.js";
import { dead } from "./dead.js";
import { find } from "./find.js";
import { fleet } from "./fleet.js";
import { message } from "./message.js";
import { messages } from "./messages.js";
import { overview } from "./overview.js";
import { empty, link } from "./parts.js";
import { MAY_CHANGE, to } from "./place.js";
import { push } from "./push.js";
import { topic } from "./topic.js";

/** @typedef {import("./place.js").Place} Place */
/** @typedef {(place: Place, page: import("./frame.js").Page) => import("./frame.js").Heading} View */

/** @type {View} */
function notFound(_place, page) {
  page.body.append(empty("There is no such page.", link(to([]), "To the overview")));
  return { title: "Not found", plain: "Not found", crumbs: [["Overview", to([])]] };
}

/**
 * The page of a topic.
 * @param {Place} place
 * @returns {View}
 */
function viewOfTopic({ parts: [, name, kind, id, ...more] }) {
  if (more.length > 0) return notFound;
  if (kind === undefined) return (place, page) => topic(name, place, page);
  if (kind === "messages" && id !== undefined) return (place, page) => message(name, id, place, page);
  if (id !== undefined) return notFound;
  if (kind === "messages") return (place, page) => messages(name, place, page);
  if (kind === "push" && MAY_CHANGE) return (place, page) => push(name, place, page);
  if (kind === "dead") return (place, page) => dead(name, place, page);
  if (kind === "cron") return (place, page) => cron(name, place, page);
  return notFound;
}

/**
 * @param {Place} place
 * @returns {View}
 */
export function viewOf(place) {
  const [root, name] = place.parts;
  if (root === undefined) return overview;
  if (root === "topics" && name !== undefined) return viewOfTopic(place);
  if (root === "brokers" && name === undefined) return fleet;
  if (root === "find" && name === undefined) return find;
  return notFound;
}

/**
 * Whether a page is of a topic that has to be there. The form of a new message creates it, and an address that is no page is of none.
 * @param {Place} place
 */
export function isOfTopicThatIs(place) {
  const [root, name, kind] = place.parts;
  return root === "topics" && name !== undefined && kind !== "push" && viewOf(place) !== notFound;
}
