// @ts-check
// Places of the console: what stands behind the `#` of the address, so that each can be linked to and gone back to.

import { encoded, query } from "./api.js";

/**
 * @typedef {object} Place
 * @property {string[]} parts The path, decoded.
 * @property {Record<string, string>} given What stands behind the `?`.
 */

/**
 * As in `` to`/topics/${topic}/messages` `` with what stands behind it.
 * @param {string[]} parts
 * @param {Record<string, string | number | null | undefined>} [given]
 */
export function to(parts, given = {}) {
  return `#/${parts.map(encoded).join("/")}${query(given)}`;
}

/**
 * @param {string} hash
 * @returns {Place | undefined} Nothing when it cannot be read.
 */
export function placeOf(hash) {
  const [path, behind = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  try {
    const parts = path.split("/").filter((part) => part !== "").map(decodeURIComponent);
    return { parts, given: Object.fromEntries(new URLSearchParams(behind)) };
  } catch {
    return undefined;
  }
}

/**
 * Shows a place.
 * @param {string} hash
 * @returns {Promise<void>} Once its page is there.
 */
export function go(hash) {
  return new Promise((resolve) => {
    addEventListener("hashchange", () => resolve(), { once: true });
    if (location.hash === hash) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = hash;
  });
}

/** Whether the console may offer changes. Rights are the token's: this only hides what is not wanted here. */
export const MAY_CHANGE = document.documentElement.dataset.console === "full";
