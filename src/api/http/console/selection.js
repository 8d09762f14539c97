// @ts-check
// Rows of a list that the reader selects with check boxes. None is selected beforehand.

import { draw, element } from "./dom.js";
import { number } from "./format.js";

/** A message as the API finds it. @typedef {{id: string, key?: string}} Selected */

/**
 * The boxes of a list, and how many of them are checked.
 * @param {HTMLElement} list
 * @param {(count: number) => void} [changed] Called when the number of selected rows changes.
 */
export function selection(list, changed = () => {}) {
  const count = element("span", { class: "quiet", role: "status" });
  /** @returns {HTMLInputElement[]} */
  const boxes = () => [...list.querySelectorAll("input[name=id]")].map((box) => /** @type {HTMLInputElement} */ (box));
  /** @returns {Selected[]} */
  const chosen = () => boxes().filter((box) => box.checked).map((box) => ({ id: box.value, key: box.dataset.routing }));
  const show = () => {
    const selected = chosen().length;
    draw(count, selected ? `${number(selected)} selected` : "");
    changed(selected);
  };
  const clear = () => {
    for (const box of boxes()) box.checked = false;
    show();
  };
  list.onchange = show;
  return { chosen, count, clear };
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
