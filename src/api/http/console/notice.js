// @ts-check
// What became of the last action, said to everybody: it is shown, and read out.

import { draw, element } from "./dom.js";
import { Problem } from "./api.js";

/** @param {string} id */
const region = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Shows a result, with what belongs to it. @param {...any} children */
export function say(...children) {
  draw(region("problem"));
  draw(region("notice"), element("div", { class: "note" }, element("div", {}, children), dismiss("notice")));
}

/** Shows why something failed. @param {unknown} error */
export function complain(error) {
  draw(region("notice"));
  draw(region("problem"), element("div", { class: "note bad" }, problem(error), dismiss("problem")));
}

/** Takes away what was said. */
export function hush() {
  draw(region("notice"));
  draw(region("problem"));
}

/** @param {string} id */
function dismiss(id) {
  return element("button", { type: "button", class: "small", onclick: () => draw(region(id)), "aria-label": "Dismiss this message" }, "Dismiss");
}

/**
 * An error in words.
 * @param {unknown} error
 */
export function problem(error) {
  const known = error instanceof Problem ? error : new Problem("The console met a defect", String(error));
  const status = known.status ? ` (${known.status})` : "";
  return element("div", { class: "problem" },
    element("p", {}, element("strong", {}, `${known.title}${status}`)),
    known.detail ? element("p", {}, element("bdi", {}, known.detail)) : null,
    known.status === 403 ? element("p", {}, "The token has not the scope that this needs.") : null);
}
