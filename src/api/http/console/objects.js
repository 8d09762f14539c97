// @ts-check
// An object of settings as a text that people write.

/** @param {Record<string, any>} [object] */
export function spelledObject(object = {}) {
  return Object.keys(object).length > 0 ? JSON.stringify(object) : "";
}

/**
 * An object as people write it. Another text stays one, and the broker says what is wrong with it, at its field.
 * @param {string} text
 */
export function objectOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
