// @ts-check
// Rows of a list that the reader selects with check boxes. None is selected beforehand.

import { draw, element } from "./dom.js";
import { number } from "./format.js";

/** A message as the API finds it. @typedef {{id: string, key?: string}} Selected */

/**
 * The boxes of a list, one for all of them, and how many are checked.
 * @param {HTMLElement} list
 * @param {(count: number) => void} [changed] Called when the number of selected rows changes.
 */
export function selection(list, changed = () => {}) {
  const count = element("span", { class: "quiet", role: "status" });
  const every = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox", name: "every", onchange: () => check(every.checked) }));
  const all = element("label", { class: "chosen", hidden: true }, every, "Select all of this page");
  /** @returns {HTMLInputElement[]} */
  const boxes = () => [...list.querySelectorAll("input[name=id]")].map((box) => /** @type {HTMLInputElement} */ (box));
  /** @returns {Selected[]} */
  const chosen = () => boxes().filter((box) => box.checked).map((box) => ({ id: box.value, key: box.dataset.routing }));
  const show = () => {
    const [selected, listed] = [chosen().length, boxes().length];
    every.checked = selected > 0 && selected === listed;
    every.indeterminate = selected > 0 && selected < listed;
    all.hidden = listed === 0;
    draw(count, selected ? `${number(selected)} selected` : "");
    changed(selected);
  };
  /** @param {boolean} checked */
  const check = (checked) => {
    for (const box of boxes()) box.checked = checked;
    show();
  };
  list.onchange = show;
  return { chosen, bar: [all, count], clear: () => check(false) };
}

/**
 * A row's head with a box to select it by.
 * @param {Selected} message
 * @param {any} name
 */
export function box({ id, key }, name) {
  const input = element("input", { type: "checkbox", name: "id", value: id, "data-routing": key, "aria-label": `Select ${id}` });
  return element("span", { class: "chosen" }, input, name);
}
