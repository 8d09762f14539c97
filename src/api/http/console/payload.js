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
  if (message.payload !== undefined) return views(message.payload);
  if (message.payload_base64 !== undefined) return dump(Uint8Array.from(atob(message.payload_base64), (c) => c.charCodeAt(0)), "Not UTF-8");
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

/** JSON with line breaks; nothing when it is none. Numbers stay as they are written only up to 2^53. @param {string} payload */
function pretty(payload) {
  if (!/^\s*[[{]/.test(payload)) return undefined;
  try {
    const text = JSON.stringify(JSON.parse(payload), null, 2);
    return /\d{16}/.test(payload) ? undefined : text;
  } catch {
    return undefined;
  }
}

/** A payload as JSON, text or bytes, by choice, and to be copied. @param {string} payload */
function views(payload) {
  const shown = element("div", {}), said = element("span", { role: "status", class: "quiet" }), json = pretty(payload);
  const utf8 = new TextEncoder().encode(payload), length = bytes(utf8.length);
  const kinds = { JSON: () => text(json ?? "", "JSON, ", length), Text: () => text(payload, "Text, ", length), Hex: () => dump(utf8, "Bytes") };
  const choices = Object.entries(kinds).filter(([name]) => name !== "JSON" || json !== undefined).map(([name, show]) =>
    button(name, () => choose(name, show), { class: "small", "aria-pressed": "false" }));
  /** @param {string} name @param {() => any} show */
  const choose = (name, show) => {
    choices.forEach((choice) => choice.setAttribute("aria-pressed", String(choice.textContent === name)));
    shown.replaceChildren(show());
  };
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(payload);
      said.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(shown);
      said.textContent = "Selected: copy it with the keyboard";
    }
  };
  if (json === undefined) choose("Text", kinds.Text);
  else choose("JSON", kinds.JSON);
  return element("div", {}, element("div", { class: "bar", role: "group", "aria-label": "Shown as" }, choices, button("Copy the payload", () => void copy(), { class: "small" }), said), shown);
}

/** @param {string} payload @param {string} kind @param {string} length */
function text(payload, kind, length) {
  const shown = element("pre", { class: "payload", tabindex: "0", "aria-label": "Payload, text", role: "region", dir: "auto" }, visible(payload.slice(0, TEXT_SHOWN)));
  return element("div", {}, element("p", { class: "hint" }, kind, length), shown, rest(payload.length > TEXT_SHOWN, () => {
    shown.textContent = visible(payload);
  }));
}

/** @param {Uint8Array} all @param {string} kind */
function dump(all, kind) {
  const shown = element("pre", { class: "payload", tabindex: "0", "aria-label": "Payload, bytes in hexadecimal", role: "region" }, lines(all.subarray(0, BYTES_SHOWN)));
  return element("div", {}, element("p", { class: "hint" }, `${kind}, ${bytes(all.length)}`), shown, rest(all.length > BYTES_SHOWN, () => {
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
