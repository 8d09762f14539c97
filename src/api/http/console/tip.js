// @ts-check
// Explanations of words: a button beside the word shows one, by the pointer, the keyboard and touch.

import { element } from "./dom.js";

/** Words and what they mean. @type {Record<string, string>} */
const TIPS = {
  Members: "Brokers that consume for this group: they have consumers that wait, or deliveries in flight. Each says so in heartbeats; what stands in its row is from its last one. A broker without consumers of the group is no member.",
  Owners: "The owner of a partition is the one broker that delivers its messages, for as long as it holds the lease. The members of a group share its partitions, so there are at most as many owners as members. A partition without an owner delivers nothing; pushes to it are accepted.",
};

/** Space between a tip and what is around it, pixels. */
const GAP = 6;

/** The tip that a press keeps, until another press, Escape, or the focus is elsewhere. @type {HTMLElement | undefined} */
let kept;

/**
 * The explanation of a word, which is drawn once and stays.
 * @param {string} word
 */
function tipOf(word) {
  const id = `tip-${word.toLowerCase()}`;
  const there = document.getElementById(id);
  if (there) return there;
  const tip = element("div", { id, popover: "manual", class: "tip", role: "tooltip" }, TIPS[word]);
  document.body.append(tip);
  return tip;
}

/** @param {HTMLElement} tip @param {HTMLElement} button */
function show(tip, button) {
  if (!tip.matches(":popover-open")) tip.showPopover();
  const place = button.getBoundingClientRect(), below = place.bottom + GAP;
  tip.style.left = `${Math.max(GAP, Math.min(place.left, innerWidth - tip.offsetWidth - GAP))}px`;
  tip.style.top = `${below + tip.offsetHeight > innerHeight ? Math.max(GAP, place.top - tip.offsetHeight - GAP) : below}px`;
}

/** Hides the tip that is kept. */
function release() {
  if (kept?.matches(":popover-open")) kept.hidePopover();
  kept = undefined;
}

/**
 * A button that explains a word. Screen readers read the explanation with the button.
 * @param {string} word
 */
export function explained(word) {
  const tip = tipOf(word);
  const press = (/** @type {Event} */ event) => {
    const was = kept;
    release();
    if (was === tip) return;
    show(tip, /** @type {HTMLElement} */ (event.currentTarget));
    kept = tip;
  };
  const hover = (/** @type {PointerEvent} */ event) => {
    if (event.pointerType === "mouse") show(tip, /** @type {HTMLElement} */ (event.currentTarget));
  };
  const leave = (/** @type {PointerEvent} */ event) => {
    if (event.pointerType === "mouse" && kept !== tip && tip.matches(":popover-open")) tip.hidePopover();
  };
  return element("button", { type: "button", class: "help", "aria-label": `About ${word.toLowerCase()}`, "aria-describedby": tip.id,
    "data-key": tip.id, "data-tip": word, onclick: press, onpointerenter: hover, onpointerleave: leave, onblur: release });
}

/** Hides tips when something else is pressed, and when their place moves away. */
export function watchTips() {
  addEventListener("keydown", (event) => event.key === "Escape" && release());
  addEventListener("pointerdown", (event) => {
    if (!(event.target instanceof Element && event.target.closest("[data-tip], .tip"))) release();
  });
  addEventListener("scroll", release, { capture: true, passive: true });
}
