// @ts-check
// A payload: text as text, bytes as a dump, and of a large one the beginning.

import { element } from "./dom.js";
import { beginning, bytes, hex, visible } from "./format.js";
import { button } from "./parts.js";

/** Characters, or bytes, of a payload that are shown at first. */
const TEXT_SHOWN = 16_384, BYTES_SHOWN = 2_048;

/** Bytes on a line of a dump. */
const LINE = 16;

/**
 * The payload of a message as the API has it.
 * @param {{payload?: string, payload_base64?: string, unreadable?: string}} message
 */
export function payloadOf(message) {
  if (message.payload !== undefined) return text(message.payload);
  if (message.payload_base64 !== undefined) return dump(message.payload_base64);
  return element("p", { class: "quiet" }, message.unreadable ?? "It has no payload.");
}

/**
 * The beginning of a payload, on one line.
 * @param {{payload?: string, payload_base64?: string, unreadable?: string}} message
 */
export function preview(message) {
  if (message.payload === "") return element("span", { class: "quiet" }, "empty");
  if (message.payload !== undefined) return element("bdi", { class: "mono" }, beginning(message.payload, 60));
  if (message.payload_base64 !== undefined) return element("span", { class: "quiet" }, `binary, ${bytes(size(message.payload_base64))}`);
  return element("span", { class: "quiet" }, "unreadable");
}

/** @param {string} payload */
function text(payload) {
  const shown = element("pre", { class: "payload", tabindex: "0", "aria-label": "Payload", role: "region", dir: "auto" }, visible(payload.slice(0, TEXT_SHOWN)));
  const length = bytes(new TextEncoder().encode(payload).length);
  return element("div", {}, element("p", { class: "hint" }, `Text, ${length}`), shown, rest(payload.length > TEXT_SHOWN, () => {
    shown.textContent = visible(payload);
  }));
}

/** @param {string} base64 */
function dump(base64) {
  const all = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const shown = element("pre", { class: "payload", tabindex: "0", "aria-label": "Payload, bytes in hexadecimal", role: "region" }, lines(all.subarray(0, BYTES_SHOWN)));
  return element("div", {}, element("p", { class: "hint" }, `Not UTF-8, ${bytes(all.length)}`), shown, rest(all.length > BYTES_SHOWN, () => {
    shown.textContent = lines(all);
  }));
}

/**
 * @param {boolean} there
 * @param {() => void} show
 */
function rest(there, show) {
  if (!there) return null;
  const more = button("Show all of it", () => {
    show();
    more.remove();
  });
  return more;
}

/** @param {string} base64 */
function size(base64) {
  return (base64.length / 4) * 3 - (base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0);
}

/** @param {Uint8Array} all */
function lines(all) {
  const found = [];
  for (let at = 0; at < all.length; at += LINE) {
    const part = [...all.subarray(at, at + LINE)];
    const seen = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    found.push(`${hex(at, 6)}  ${part.map((byte) => hex(byte, 2)).join(" ").padEnd(LINE * 3)} ${seen}`);
  }
  return found.join("\n");
}
