// @ts-check
// Keys that do something on every page, and the list of them.

import { element } from "./dom.js";
import { button } from "./parts.js";

/** @typedef {{key: string, words: string, run: () => void}} Key */

/** Where it is kept that the reader does not want them: some use voices or other devices that press keys by chance. */
const OFF = "dwell-keys-off";

const areOff = () => localStorage.getItem(OFF) === "1";

/**
 * From now on these keys work, and `?` shows them.
 * @param {Key[]} keys
 */
export function listen(keys) {
  const all = [...keys, { key: "?", words: "Show these keys", run: () => show(all) }];
  addEventListener("keydown", (event) => {
    const elsewhere = event.target instanceof Element && event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (elsewhere || event.ctrlKey || event.metaKey || event.altKey || areOff()) return;
    const pressed = all.find(({ key }) => key === event.key);
    if (!pressed) return;
    event.preventDefault();
    pressed.run();
  });
  return () => show(all);
}

/** @param {Key[]} keys */
function show(keys) {
  const off = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox", id: "keys-off", onchange: () => localStorage.setItem(OFF, off.checked ? "1" : "0") }));
  off.checked = areOff();
  const rows = keys.map(({ key, words }) => element("div", {}, element("dt", {}, element("kbd", {}, key)), element("dd", {}, words)));
  const dialog = element("dialog", { "aria-labelledby": "keys-title" },
    element("h2", { id: "keys-title" }, "Keys"),
    element("dl", { class: "keys" }, rows, element("div", {}, element("dt", {}, element("kbd", {}, "Esc")), element("dd", {}, "Close a dialog or an explanation"))),
    element("label", { class: "chosen" }, off, "Turn the keys of one letter off"),
    element("div", { class: "buttons" }, button("Close", () => dialog.close())));
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  // The focus goes back by itself to where it was.
  dialog.showModal();
}
