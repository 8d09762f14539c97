// @ts-check
// What is around the pages of a topic: its parts as links, and the choice of a group.

import { call, path } from "./api.js";
import { givenGroup } from "./command.js";
import { element } from "./dom.js";
import { link } from "./parts.js";
import { MAY_CHANGE, go, to } from "./place.js";

/**
 * What a view draws on.
 * @typedef {object} Page
 * @property {HTMLElement} body
 * @property {AbortSignal} signal Aborted when the reader goes elsewhere.
 * @property {(reading: (health: any) => Promise<void>) => void} follow Reads now, and again and again,
 *   with what /readyz says; errors are shown.
 * @property {(reading: () => Promise<void>) => Promise<any>} once Reads now; errors are shown.
 * @property {(reading: () => Promise<void>) => Promise<any>} reads The same for what the page is about: it is read again when the
 *   reader asks for it, and says how old it is.
 * @property {() => void} again Reads what is followed at once.
 */

/**
 * What a view says of itself.
 * @typedef {object} Heading
 * @property {any} title
 * @property {string} plain The title of the window.
 * @property {[string, string][]} crumbs The places above: words and hash.
 */

/** @type {[string, string[]][]} */
const TABS = [["Summary", []], ["Messages", ["messages"]], ["New message", ["push"]], ["Dead letters", ["dead"]], ["Cron jobs", ["cron"]]];

/** The names of the parts that are shown. */
export function tabNames() {
  return TABS.map(([name]) => name).filter((name) => MAY_CHANGE || name !== "New message");
}

/**
 * The parts of a topic as links.
 * @param {string} topic
 * @param {string} tab The one that is shown.
 * @param {string} [group]
 */
export function tabs(topic, tab, group) {
  const given = { group: givenGroup(group) };
  const shown = TABS.filter(([name]) => tabNames().includes(name));
  return element("nav", { "aria-label": "Topic", class: "tabs" },
    element("ul", {}, shown.map(([name, behind]) => {
      const place = link(to(["topics", topic, ...behind], given), name);
      if (name === tab) place.setAttribute("aria-current", "page");
      return element("li", {}, place);
    })));
}

/**
 * The heading of a page of a topic.
 * @param {string} topic
 * @param {string} [part]
 * @returns {Heading}
 */
export function headingOf(topic, part) {
  const title = part ? [topic, element("span", { class: "part" }, ` · ${part.toLowerCase()}`)] : topic;
  return { title, plain: part ? `${topic} · ${part}` : topic, crumbs: [["Overview", to([])]] };
}

/**
 * A choice of the groups of a topic, which leads to the same place with another group. With one group there is none.
 * @param {string} topic
 * @param {string} group
 * @param {Page} page
 * @param {(group: string) => string} place
 */
export function groupChoice(topic, group, page, place) {
  const region = element("div", { class: "group-choice" });
  void page.once(async () => {
    const { groups } = await call("GET", path`/v1/topics/${topic}/groups`, { signal: page.signal });
    /** @type {string[]} */
    const names = groups.map((/** @type {any} */ each) => each.group);
    if (names.length < 2 && names.includes(group)) return;
    if (!names.includes(group)) names.unshift(group);
    const options = names.map((name) => element("option", { value: name, selected: name === group }, name));
    const select = element("select", { id: "group", onchange: () => void go(place(select.value)) }, options);
    region.replaceChildren(element("label", { for: "group" }, "Group"), select);
  });
  return region;
}
