// @ts-check
// The line of the shell that does the same as the console, to be pasted as it is.

/** Where `dwell` looks for its broker when nothing is said. */
const SERVER = "http://127.0.0.1:7373";

/**
 * A word of the shell that means exactly this text. What cannot be seen is escaped, so that the line shows what it does.
 * @param {string} text
 */
export function quoted(text) {
  if (/^[A-Za-z0-9_.,:@%+=/-]+$/.test(text)) return text;
  if (!/[\p{C}\u2028\u2029]/u.test(text)) return `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const escaped = text.replace(/[\\']|[\p{C}\u2028\u2029]/gu, (part) => {
    if (part === "\\" || part === "'") return `\\${part}`;
    if (part === "\n") return "\\n";
    if (part === "\t") return "\\t";
    const code = part.codePointAt(0) ?? 0;
    return code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
  return `$'${escaped}'`;
}

/**
 * `dwell <verb> <places> <flags>`.
 * @param {string} verb As in `message cancel`.
 * @param {string[]} places What has no name: topic, id, payload.
 * @param {Record<string, string | number | boolean | null | undefined>} [flags] `true` is a flag without a value; what is
 *   absent, `false` or empty is left out.
 */
export function command(verb, places, flags = {}) {
  const words = ["dwell", verb];
  const given = { ...flags, server: location.origin === SERVER ? undefined : location.origin };
  // A word that begins with a dash would be taken for a flag.
  const dashed = places.some((place) => place.startsWith("-"));
  const named = Object.entries(given).flatMap(([name, value]) => flag(name, value));
  if (!dashed) return [...words, ...places.map(quoted), ...named].join(" ");
  return [...words, ...named, "--", ...places.map(quoted)].join(" ");
}

/**
 * @param {string} name
 * @param {string | number | boolean | null | undefined} value
 */
function flag(name, value) {
  if (value === undefined || value === null || value === false || value === "") return [];
  if (value === true) return [`--${name}`];
  const text = String(value);
  return text.startsWith("-") ? [`--${name}=${quoted(text)}`] : [`--${name}`, quoted(text)];
}

/**
 * A group as a flag or in a link: the one that is meant when nothing is said is left out.
 * @param {string | undefined} group
 */
export function givenGroup(group) {
  return group === "default" ? undefined : group;
}
