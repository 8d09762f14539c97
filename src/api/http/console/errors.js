// @ts-check
// Dead letters by their last errors.

import { element } from "./dom.js";
import { counted, number } from "./format.js";
import { button, reason as whole, table, time, wordsOf } from "./parts.js";
import { MAY_CHANGE } from "./place.js";

/**
 * The errors of dead letters, the most frequent first.
 * @param {any} found A page of dead letters.
 * @param {(verb: "Redrive" | "Purge", error: string, ids: string[]) => void} act Called to act on those with one error.
 */
export function byError(found, act) {
  /** @type {Map<string, {reason: string, error: string | undefined, ids: string[], died_at: string}>} */
  const errors = new Map();
  for (const { id, reason, last_error, died_at } of found.dead_letters) {
    const error = wordsOf(last_error);
    const key = `${reason} ${error ?? ""}`, same = errors.get(key) ?? { reason, error, ids: [], died_at };
    same.ids.push(id);
    if (died_at > same.died_at) same.died_at = died_at;
    errors.set(key, same);
  }
  if (errors.size === 0) return element("p", { class: "quiet" }, "None.");
  const heads = ["Last error", "Reason", "Dead letters", "Last died at"];
  if (MAY_CHANGE) heads.push("Actions");
  const rows = [...errors].sort(([, a], [, b]) => b.ids.length - a.ids.length).map(([key, { reason, error, ids, died_at }]) => {
    const why = reason.replaceAll("_", " "), name = error ?? why;
    const offer = (/** @type {"Redrive" | "Purge"} */ verb) => button(`${verb}…`, () => act(verb, name, ids),
      { class: verb === "Purge" ? "small danger" : "small", "aria-label": `${verb} those with ${name}…` });
    const cells = [whole(name), why, number(ids.length), time(died_at)];
    return { key, cells: MAY_CHANGE ? [...cells, element("div", { class: "actions" }, offer("Redrive"), offer("Purge"))] : cells };
  });
  return [table("Dead letters by their last errors", heads.map((head, at) => ({ head, number: at === 2 })), rows, { hidden: true, stacks: true }),
    found.next_cursor ? element("p", { class: "hint" }, `Of the first ${counted(found.dead_letters.length, "dead letter")}; there are more.`) : null];
}
