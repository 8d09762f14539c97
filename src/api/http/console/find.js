// @ts-check
// Finds topics, messages by id or key, and dead letters by a text, in all topics.

import { Problem, call, each, path, query } from "./api.js";
import { givenGroup } from "./command.js";
import { draw, element } from "./dom.js";
import { number } from "./format.js";
import { placeOfMessage } from "./messages.js";
import { chip, empty, foreign, link, reason, section, table, time, wordsOf } from "./parts.js";
import { preview } from "./payload.js";
import { to } from "./place.js";

/** Topics that are looked through for messages. */
const TOPICS = 50;

/** Messages of a topic that are looked through for a key, and dead letters that are shown of one. */
const KEYS = 1_000, DEAD = 10;

/** Found in one topic. @typedef {{topic: string, message?: any, keyed: any[], dead: any[], group: string}} Found */

/**
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function find(place, page) {
  const wanted = (place.given.q ?? "").trim();
  const found = element("div", { "aria-live": "polite", "aria-busy": "true" });
  page.body.append(section("Found", found));
  void page.reads(async () => {
    if (wanted === "") return draw(found, empty("Nothing is looked for.", element("p", {}, "Type the name of a topic, an id, a key, or a text of dead letters into the field above.")));
    const { topics } = await call("GET", "/v1/topics", page);
    const named = topics.filter((/** @type {string} */ topic) => topic.toLowerCase().includes(wanted.toLowerCase()));
    // Of many topics, those whose name fits come first.
    const some = [...named, ...topics.filter((/** @type {string} */ topic) => !named.includes(topic))].slice(0, TOPICS);
    const all = await each(some, 4, (topic) => foundIn(topic, wanted, page.signal));
    draw(found, shown(wanted, named, all, topics.length));
    found.setAttribute("aria-busy", "false");
  });
  return { title: ["Find ", element("bdi", { class: "mono" }, wanted)], plain: `Find ${wanted}`, crumbs: [["Overview", "#/"]] };
}

/**
 * @param {string} topic
 * @param {string} wanted
 * @param {AbortSignal} signal
 * @returns {Promise<Found>}
 */
async function foundIn(topic, wanted, signal) {
  /** What is refused for this text, such as an id that cannot be one, is not there. @param {() => Promise<any>} reading */
  const orNothing = async (reading) => {
    try {
      return await reading();
    } catch (error) {
      if (signal.aborted || !(error instanceof Problem) || ![400, 404, 409, 422].includes(error.status)) throw error;
      return undefined;
    }
  };
  const groups = (await orNothing(() => call("GET", path`/v1/topics/${topic}/groups`, { signal })))?.groups ?? [];
  const group = groups[0]?.group ?? "default";
  const [message, listed, ...dead] = await Promise.all([
    orNothing(async () => call("GET", `${path`/v1/topics/${topic}/messages/${wanted}`}${query({ group })}`, { signal })),
    orNothing(() => call("GET", `${path`/v1/topics/${topic}/messages`}${query({ group, limit: KEYS })}`, { signal })),
    ...groups.map((/** @type {any} */ each) => orNothing(async () => {
      const found = await call("GET", `${path`/v1/topics/${topic}/groups/${each.group}/dead-letters`}${query({ text: wanted, limit: DEAD })}`, { signal });
      return found.dead_letters.map((/** @type {any} */ letter) => ({ ...letter, group: each.group }));
    })),
  ]);
  const keyed = (listed?.messages ?? []).filter((/** @type {any} */ each) => each.key === wanted);
  return { topic, group, message, keyed, dead: dead.flatMap((letters) => letters ?? []) };
}

/**
 * @param {string} wanted
 * @param {string[]} named
 * @param {Found[]} all
 * @param {number} topics
 */
function shown(wanted, named, all, topics) {
  const messages = all.flatMap(({ topic, group, message, keyed }) => {
    const rows = message ? [message, ...keyed.filter((each) => each.id !== message.id)] : keyed;
    return rows.map((each) => ({ key: `${topic}/${each.id}/${each.key}`, cells: [id(topic, each, group), link(to(["topics", topic]), topic), chip(each.state), time(each.next_at ?? each.due_at), foreign(each.key, 40)] }));
  });
  const dead = all.flatMap(({ topic, dead }) => dead.map((each) => ({ key: `${topic}/${each.group}/${each.id}`,
    cells: [id(topic, each, each.group), link(to(["topics", topic, "dead"], { group: givenGroup(each.group), text: wanted }), topic), time(each.died_at), reason(wordsOf(each.last_error)), preview(each)] })));
  const hint = element("p", { class: "hint" }, topics > TOPICS ? `Messages were looked for in ${number(TOPICS)} of ${number(topics)} topics. ` : "",
    `Ids are looked up; keys are compared with the first ${number(KEYS)} messages of a topic that wait, texts with the last error and the payload of dead letters, ${number(DEAD)} of each group.`);
  if (named.length + messages.length + dead.length === 0) return [empty(`Nothing has "${wanted}".`, element("p", {}, "A message is gone once it is acked, cancelled or expired.")), hint];
  const heads = (/** @type {string[]} */ ...words) => words.map((head) => ({ head }));
  return [
    named.length ? table("Topics", heads("Topic"), named.slice(0, 100).map((topic) => ({ key: topic, cells: [link(to(["topics", topic]), topic)] }))) : null,
    messages.length ? table("Messages", heads("Id", "Topic", "State", "Next at", "Key"), messages, { stacks: true }) : null,
    dead.length ? table("Dead letters", heads("Id", "Topic", "Died at", "Last error", "Payload"), dead, { stacks: true }) : null,
    hint,
  ];
}

/** @param {string} topic @param {any} message @param {string} group */
const id = (topic, message, group) => link(placeOfMessage(topic, message, group), element("span", { class: "mono" }, message.id));
