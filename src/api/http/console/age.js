// @ts-check
// How old what is shown is. What may no longer be so says its age, and looks stale.

import { draw, element } from "./dom.js";
import { clock, relative, span } from "./format.js";
import { chip } from "./parts.js";

/** From this age on what is shown is old. A page that is followed is read every few seconds. */
const STALE_MS = 30_000;

/** How often the age is looked at. */
const STEP_MS = 1_000;

/** What is shown: when it was read, whether it could not be read again, and whether it is read again by itself.
 *  @type {{at: Date | undefined, failed: boolean, followed: boolean, restoring: boolean}} */
const shown = { at: undefined, failed: false, followed: true, restoring: false };

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Another page: nothing of it is read yet. */
export function begin() {
  Object.assign(shown, { at: undefined, failed: false, followed: true, restoring: false });
  mark();
}

/**
 * What is shown was read just now.
 * @param {boolean} followed Whether it is read again and again.
 */
export function wasRead(followed) {
  Object.assign(shown, { at: new Date(), failed: false, followed });
  part("updated").textContent = `Updated ${clock(/** @type {any} */ (shown.at))}`;
  mark();
}

/** It could not be read again. */
export function wasNotRead() {
  shown.failed = true;
  mark();
}

/**
 * Shows how the broker is. While the brokers give back what the store lost, that is its state everywhere.
 * @param {string} status
 * @param {boolean} [restoring] Known only where it was asked for.
 */
export function showStatus(status, restoring = shown.restoring) {
  shown.restoring = restoring;
  draw(part("health"), chip(statusOf(status)));
}

/** The state of the broker, one for all places that show it. @param {string} status */
export function statusOf(status) {
  return shown.restoring && status !== "down" ? "restoring" : status;
}

function mark() {
  const age = shown.at === undefined ? 0 : Date.now() - shown.at.getTime();
  const stale = shown.at !== undefined && (shown.failed || age >= STALE_MS);
  part("main").toggleAttribute("data-stale", stale);
  draw(part("age"), stale ? element("p", { class: "note warn" }, `Stale: this was read at ${clock(/** @type {any} */ (shown.at))}, ${span(Math.max(age, STEP_MS))} ago. ${why()}`) : null);
  for (const time of document.querySelectorAll("main time[datetime]")) {
    const away = time.querySelector(".away");
    if (away) away.textContent = relative(new Date(time.getAttribute("datetime") ?? ""));
  }
}

function why() {
  if (shown.failed) return "The broker or its store does not answer since then.";
  return shown.followed ? "Refreshing is stopped, or slow." : "\"Refresh\" reads it again.";
}

/** Looks at the age from now on. */
export function watchAge() {
  setInterval(mark, STEP_MS);
}
