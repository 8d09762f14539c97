// @ts-check
// Numbers, times and hostile text for people.

const COUNT = new Intl.NumberFormat("en");
const RATE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** What stands where there is nothing. */
export const NOTHING = "–";

/** @param {number | undefined} count */
export function number(count) {
  return count === undefined || Number.isNaN(count) ? NOTHING : COUNT.format(count);
}

/**
 * As in `1 message`, `1,204 messages`.
 * @param {number} count
 * @param {string} noun Its plural ends with an s.
 */
export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * Messages that wait for an earlier one of their key, or hold it until their next attempt.
 * @param {{blocked?: number, backoff?: number}} counts
 */
export function heldOf(counts) {
  return (counts.blocked ?? 0) + (counts.backoff ?? 0);
}

/**
 * As in `12.5/s`.
 * @param {number | undefined} rate A second.
 */
export function perSecond(rate) {
  return rate === undefined ? NOTHING : `${RATE.format(rate)}/s`;
}

/** @param {number} count */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${RATE.format(count)} ${units[unit]}`;
}

const UNITS = /** @type {const} */ ([["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]]);

/**
 * The two largest units of a span, as in `1 h 5 min`.
 * @param {number} ms
 */
export function span(ms) {
  if (ms < 1) return ms > 0 ? "< 1 ms" : "0 s";
  if (ms < 1_000) return `${RATE.format(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  const at = UNITS.findIndex(([, unit]) => ms >= unit);
  const [name, unit] = UNITS[at];
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((ms % unit) / next[1]) : 0;
  return `${COUNT.format(Math.floor(ms / unit))} ${name}${rest && next ? ` ${rest} ${next[0]}` : ""}`;
}

/**
 * As in `in 5 min`, `2 h ago`.
 * @param {Date} time
 * @param {number} [now]
 */
export function relative(time, now = Date.now()) {
  const ahead = time.getTime() - now;
  if (Math.abs(ahead) < 1_000) return "now";
  return ahead > 0 ? `in ${span(ahead)}` : `${span(-ahead)} ago`;
}

/** @param {number} part */
const two = (part) => String(part).padStart(2, "0");

/**
 * In the reader's time zone, as in `2026-01-02 03:04:05`.
 * @param {Date} time
 */
export function absolute(time) {
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(time)}`;
}

/** @param {Date} time */
export function clock(time) {
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** The name of the reader's time zone. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";

/** Control characters, and those that turn the direction of what follows. */
const HIDDEN =
  /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200B\u200E\u200F\u2028-\u202E\u2066-\u2069\uFEFF]/gu;

/**
 * Text with what cannot be seen, or turns what follows around, made visible.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(HIDDEN, (hidden) => `⟨U+${hex(hidden.codePointAt(0) ?? 0, 4)}⟩`);
}

/**
 * The beginning of a text on one line.
 * @param {string} text
 * @param {number} most Characters.
 */
export function beginning(text, most) {
  const line = visible(text.slice(0, most * 2).replace(/\s+/g, " "));
  const points = [...line];
  return points.length > most || text.length > most * 2 ? `${points.slice(0, most).join("")}…` : line;
}

/**
 * @param {number} value
 * @param {number} digits
 */
export function hex(value, digits) {
  return value.toString(16).toUpperCase().padStart(digits, "0");
}
