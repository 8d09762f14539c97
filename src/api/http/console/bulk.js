// @ts-check
// Counts the messages that become due in a span of time, and lists, cancels, postpones or advances them.

import { Problem, call, path, query } from "./api.js";
import { command, givenGroup } from "./command.js";
import { ask } from "./dialog.js";
import { element } from "./dom.js";
import { absolute, counted, number, span } from "./format.js";
import { link } from "./parts.js";
import { to } from "./place.js";

/**
 * Counts first; nothing is chosen until the reader chooses it.
 * @param {string} topic
 * @param {string} group
 * @param {Date} after The span begins behind this time,
 * @param {Date} until and ends with this one.
 */
export async function pickSpan(topic, group, after, until) {
  // A span of the API has its beginning and not its end.
  const [from, end] = [after, until].map((time) => new Date(time.getTime() + 1).toISOString());
  const target = path`/v1/topics/${topic}/groups/${group}/bulk`, length = span(until.getTime() - after.getTime());
  const { waiting } = await call("GET", `${target}${query({ from, to: end })}`);
  const about = element("p", {}, `${counted(waiting, "message")} of ${group} ${waiting === 1 ? "waits" : "wait"} that ${waiting === 1 ? "is" : "are"} due in these ${length}. `,
    link(to(["topics", topic, "messages"], { group: givenGroup(group), from, to: end }), "List them"));
  about.querySelector("a").onclick = () => about.closest("dialog").close();
  /** @type {import("./dialog.js").Field[]} */
  const fields = [
    { name: "action", label: "Change", required: true, type: [["", "Choose…"], ["postpone", "postpone them"], ["advance", "make them due sooner"], ["cancel", "cancel them"]] },
    { name: "by", label: "By", hint: `At least ${length}: 30m, 2h, 1d`, shown: ({ action }) => action === "postpone" || action === "advance" },
  ];
  return ask({
    title: `Due from ${absolute(after)} to ${absolute(until)}`,
    body: about,
    fields,
    confirm: "Change the messages",
    danger: true,
    line: ({ action, by }) => command(`bulk ${action ?? "count"}`, [topic], { group: givenGroup(group), from, to: end, by, yes: action === "cancel" }),
    run: async ({ action, by }, { said, signal }) => {
      if (action !== "cancel" && !by) throw new Problem("Nothing is changed", "Say by how much.");
      let [changed, passed, cursor] = [0, 0, undefined];
      do {
        const answer = await call("POST", target, { json: { from, to: end, action, by, cursor }, signal });
        changed += answer.changed;
        passed += answer.passed_over;
        cursor = answer.next_cursor;
        said(`${number(changed)} so far. Cancel stops it; what is done is done.`);
      } while (cursor !== undefined);
      const words = { cancel: "cancelled", postpone: "postponed", advance: "made due sooner" }[action];
      return [`${counted(changed, "message")} ${words}`, passed ? `; ${number(passed)} passed over.` : "."];
    },
  });
}
