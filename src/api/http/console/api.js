// @ts-check
// The public API, as docs/reference/http.md has it, and nothing else.

const TOKEN = "dwell-token";

/** An answer that is an error, or none at all. */
export class Problem extends Error {
  /**
   * @param {string} title
   * @param {string} detail
   * @param {number} [status] 0: nothing was answered.
   * @param {any} [body]
   */
  constructor(title, detail, status = 0, body = {}) {
    super(detail ? `${title}: ${detail}` : title);
    this.title = title;
    this.detail = detail;
    this.status = status;
    this.body = body;
  }
}

/** Who is asked for a token; answers none when there is none to be had. @type {(why: string) => Promise<string | null>} */
let asks = async () => null;

/** Says who is asked for a token. @param {(why: string) => Promise<string | null>} ask */
export function askForToken(ask) {
  asks = ask;
}

/** The token of this tab, if one was given. It is gone when the tab is closed. */
export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** @param {string | null} value */
export function keepToken(value) {
  if (value === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, value);
}

/**
 * What does not exist, and what to do about it here.
 * @param {{topic: string, group?: string, cron?: string}} missing
 */
function remedy({ topic, group, cron }) {
  if (group) return `topic ${topic} has no group ${group}; the summary of the topic shows its groups.`;
  if (cron) return `topic ${topic} has no cron job ${cron}; it may have been deleted meanwhile.`;
  return `topic ${topic} does not exist; the overview shows all topics, and pushing a message creates one.`;
}

/**
 * A path of the API with its parts encoded, as in `` path`/v1/topics/${topic}` ``.
 *
 * A browser takes the parts `.` and `..` for steps in a path, encoded or not, and would ask for something else.
 * @param {TemplateStringsArray} texts
 * @param {...string} parts
 */
export function path(texts, ...parts) {
  for (const part of parts) {
    if (part === "." || part === "..") {
      throw new Problem("A browser cannot ask for this", `"${part}" is a step in a path; nothing has this name.`);
    }
  }
  return String.raw({ raw: texts }, ...parts.map(encoded));
}

/** @param {string} part */
export function encoded(part) {
  return encodeURIComponent(part).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

/**
 * What stands behind a path; what is absent or empty is left out.
 * @param {Record<string, string | number | null | undefined>} values
 */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${given.map(([name, value]) => `${name}=${encoded(String(value))}`).join("&")}` : "";
}

/**
 * @typedef {object} Request
 * @property {any} [json] The body, as JSON.
 * @property {string} [payload] The body, as it is.
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */

/**
 * The path of a message; its key, if it has one, says in which partition it is.
 * @param {{topic: string, id: string, key?: string}} message
 * @param {string} [below] As in `/explain`.
 * @param {string} [group]
 */
export function pathOfMessage({ topic, id, key }, below = "", group = undefined) {
  return `${path`/v1/topics/${topic}/messages/${id}`}${below}${query({ key, group })}`;
}

/**
 * Asks, and gives the JSON of a 2xx.
 * @param {string} method
 * @param {string} target
 * @param {Request} [request]
 * @returns {Promise<any>}
 */
export async function call(method, target, request = {}) {
  const answer = await sent(method, target, request);
  return answer.status === 204 ? {} : answer.json();
}

/**
 * The same for text.
 * @param {string} target
 * @param {Request} [request]
 */
export async function text(target, request = {}) {
  return (await sent("GET", target, request)).text();
}

/**
 * @param {string} method
 * @param {string} target
 * @param {Request} request
 * @returns {Promise<Response>}
 */
async function sent(method, target, request) {
  let used = token();
  let answer = await once(method, target, request, used);
  while (answer.status === 401) {
    const problem = await problemOf(answer);
    // Another request may have been given one meanwhile.
    const given = token() !== used ? token() : await asks(used === null ? "" : problem.detail);
    if (given === null) throw problem;
    used = given;
    answer = await once(method, target, request, used);
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

/**
 * @param {string} method
 * @param {string} target
 * @param {Request} request
 * @param {string | null} bearer
 */
async function once(method, target, request, bearer) {
  const headers = new Headers(request.headers);
  if (bearer !== null) headers.set("Authorization", `Bearer ${bearer}`);
  if (request.json !== undefined) headers.set("Content-Type", "application/json");
  const body = request.json === undefined ? request.payload : JSON.stringify(request.json);
  const rest = /** @type {const} */ ({ cache: "no-store", credentials: "omit", redirect: "error" });
  try {
    return await fetch(target, { method, headers, body, signal: request.signal, ...rest });
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new Problem("The broker does not answer", "It may be stopped, or restarting.");
  }
}

/** @param {Response} answer */
async function problemOf(answer) {
  try {
    const body = await answer.json();
    return new Problem(String(body.title ?? "Error"), body.missing ? remedy(body.missing) : String(body.detail ?? ""), answer.status, body);
  } catch {
    return new Problem(`Status ${answer.status}`, "The answer says no more.", answer.status);
  }
}

/**
 * Calls for each item, a few at the same time; answers come in the order of the items.
 * @template T, R
 * @param {T[]} items
 * @param {number} most
 * @param {(item: T) => Promise<R>} ask
 * @returns {Promise<R[]>}
 */
export async function each(items, most, ask) {
  /** @type {R[]} */
  const answers = new Array(items.length);
  let next = 0;
  const runs = Array.from({ length: Math.min(most, items.length) }, async () => {
    while (next < items.length) {
      const at = next;
      next += 1;
      answers[at] = await ask(items[at]);
    }
  });
  await Promise.all(runs);
  return answers;
}
