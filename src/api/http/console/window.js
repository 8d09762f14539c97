// @ts-check
// The window of a group, as the command line writes it: mon-fri 09:00-17:30 Europe/Berlin.

const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/** @typedef {{days?: string[], from?: string, to?: string, time_zone?: string}} DeliveryWindow As the API has it. */

/** @param {DeliveryWindow | undefined} given */
export function spelledWindow(given) {
  if (!given) return "";
  const on = DAYS.map((day) => given.days?.includes(day) ?? true);
  const parts = [];
  for (let first = 0; first < DAYS.length; first += 1) {
    let end = first;
    while (on[end]) end += 1;
    // Two days are no span.
    if (end - first > 2) parts.push(`${DAYS[first]}-${DAYS[end - 1]}`);
    else parts.push(...DAYS.slice(first, end));
    first = end;
  }
  const days = on.every(Boolean) ? "" : parts.join(",");
  return [days, `${given.from}-${given.to}`, given.time_zone].filter(Boolean).join(" ");
}

/**
 * What the API takes; nothing is always open. What is no window it refuses, and says why.
 * @param {string} [text]
 * @returns {DeliveryWindow}
 */
export function windowOf(text = "") {
  const words = text.split(/\s+/).filter(Boolean);
  if (words.length === 0) return {};
  const days = /^\d/.test(words[0]) ? undefined : words.shift()?.split(",").flatMap(daysOf);
  const [times = "", ...zone] = words;
  const [from, to] = times.split("-");
  return { days, from: from || undefined, to: to || undefined, time_zone: zone.join(" ") || undefined };
}

/** @param {string} part A day, or a span of days. */
function daysOf(part) {
  const [first, last = first] = part.split("-");
  const from = DAYS.indexOf(first), to = DAYS.indexOf(last);
  if (from < 0 || to < 0) return [part];
  return Array.from({ length: ((to - from + DAYS.length) % DAYS.length) + 1 }, (_, at) => DAYS[(from + at) % DAYS.length]);
}
