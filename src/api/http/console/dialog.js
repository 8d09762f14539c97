// @ts-check
// Forms, and the dialogs that ask before something is changed.

import { draw, element } from "./dom.js";
import { counted, number } from "./format.js";
import { problem, say } from "./notice.js";
import { button, shell } from "./parts.js";
import { go } from "./place.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {string} [hint]
 * @property {"text" | "number" | "area" | "datetime-local" | "password" | "search" | [string, string][]} [type] Pairs are what can be
 *   chosen: value and words.
 * @property {string} [value]
 * @property {boolean} [required]
 * @property {(values: Values) => boolean} [shown] Whether it means something now.
 * @property {Record<string, any>} [more] More attributes.
 */

/** @typedef {Record<string, string>} Values */

let fields = 0;

/**
 * A labelled field.
 * @param {Field} field
 */
export function fieldOf(field) {
  fields += 1;
  const id = `field-${fields}`;
  const attributes = {
    id, name: field.name, required: field.required, "aria-describedby": field.hint ? `${id}-hint` : undefined,
    autocomplete: "off", spellcheck: "false", ...field.more,
  };
  return element("div", { class: "field", "data-name": field.name },
    element("label", { for: id }, field.label),
    input(field, attributes),
    field.hint ? element("span", { id: `${id}-hint`, class: "hint" }, field.hint) : null);
}

/**
 * @param {Field} field
 * @param {Record<string, any>} attributes
 */
function input(field, attributes) {
  if (Array.isArray(field.type)) {
    return element("select", attributes, field.type.map(([value, words]) =>
      element("option", { value, selected: value === field.value }, words)));
  }
  if (field.type === "area") return element("textarea", { rows: 6, ...attributes }, field.value ?? "");
  const step = field.type === "datetime-local" ? "1" : field.type === "number" ? "any" : undefined;
  return element("input", { type: field.type ?? "text", value: field.value, step, ...attributes });
}

/**
 * What is in a form; what is hidden or empty is left out.
 * @param {HTMLFormElement} form
 * @returns {Values}
 */
export function valuesOf(form) {
  /** @type {Values} */
  const values = {};
  for (const [name, value] of new FormData(form)) {
    const hidden = form.querySelector(`[data-name="${CSS.escape(name)}"]`)?.hasAttribute("hidden");
    if (!hidden && typeof value === "string" && value !== "") values[name] = value;
  }
  return values;
}

/**
 * Shows the fields that mean something now, and hides the others.
 * @param {HTMLFormElement} form
 * @param {Field[]} fields
 */
export function showMeant(form, fields) {
  for (const field of fields) {
    if (!field.shown) continue;
    const place = form.querySelector(`[data-name="${CSS.escape(field.name)}"]`);
    place?.toggleAttribute("hidden", !field.shown(valuesOf(form)));
  }
}

/** Fields that say when something is due: `now` is offered when it means something. @param {boolean} now */
export function dueFields(now) {
  /** @type {[string, string][]} */
  const choices = [["delay", "After a delay"], ["due_at", "At a time"]];
  if (now) choices.unshift(["now", "At once"]);
  return /** @type {Field[]} */ ([
    { name: "when", label: "Due", type: choices },
    { name: "delay", label: "Delay", hint: "30s, 1h30m, 2d", shown: ({ when }) => when === "delay" },
    { name: "due_at", label: "Time", type: "datetime-local", hint: "In your time zone", shown: ({ when }) => when === "due_at" },
  ]);
}

/**
 * The time of a field in RFC 3339, which the API takes.
 * @param {string | undefined} local
 */
export function utc(local) {
  if (!local) return undefined;
  const time = new Date(local);
  return Number.isNaN(time.getTime()) ? local : time.toISOString();
}

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {any} [body] What it will do.
 * @property {Field[]} [fields]
 * @property {(values: Values) => string[]} [ids] The messages that it is about, if they are known one by one.
 * @property {string} confirm The word on the button.
 * @property {boolean} [danger] It cannot be undone.
 * @property {(values: Values) => string} [line] The line of the shell that does the same.
 * @property {(values: Values, dialog: {said: (text: string) => void, signal: AbortSignal}) => Promise<any[]>} run Does it, and
 *   gives what is said then; what it throws is shown, and the dialog stays.
 * @property {(values: Values) => string} [next] The place that is shown once it is done.
 */

/** Ids that a dialog shows at once. */
const FEW = 3;

/**
 * How many messages it is about, and the first of them; the others on demand.
 * @param {string[]} ids
 */
function idsOf(ids) {
  const mono = (/** @type {string[]} */ some) => some.flatMap((id, at) => [at ? ", " : "", element("bdi", { class: "mono" }, id)]);
  if (ids.length === 0) return null;
  const first = element("p", {}, `${counted(ids.length, "message")}: `, mono(ids.slice(0, FEW)), ids.length > FEW ? ` and ${number(ids.length - FEW)} more.` : ".");
  if (ids.length <= FEW) return first;
  const all = element("ul", { class: "ids", tabindex: "0", role: "list", "aria-label": "All ids" }, ids.map((id) => element("li", {}, element("bdi", { class: "mono" }, id))));
  return [first, element("details", { "data-key": "all-ids" }, element("summary", {}, `All ${number(ids.length)} ids`), all)];
}

/**
 * The line of the shell; one that names many messages is folded.
 * @param {string} text
 * @param {string[]} ids
 */
function lineOf(text, ids) {
  if (ids.length <= FEW || !text.includes(ids[FEW])) return shell(text);
  return element("details", { "data-key": "line" }, element("summary", {}, `Same on the command line, with ${number(ids.length)} ids`), shell(text, "All of it"));
}

/**
 * Asks, and does it when the answer is yes.
 * @param {Question} question
 * @returns {Promise<boolean>} Whether it was done.
 */
export function ask(question) {
  const ending = new AbortController();
  const said = element("p", { role: "status", class: "progress" });
  const failed = element("div", { role: "alert" });
  const line = element("div", {});
  const confirm = element("button", { type: "submit", class: question.danger ? "danger" : "primary" }, question.confirm);
  const cancel = button("Cancel", () => dialog.close());
  const fields = question.fields ?? [], named = element("div", { class: "named" });
  /** @type {any[]} */
  let result = [];
  /** @type {string | undefined} */
  let next;
  const form = element("form", { onsubmit: submitted, oninput: changed, onchange: changed },
    question.body ? element("div", { class: "about" }, question.body) : null, named,
    element("div", { class: fields.length > 4 ? "columns" : undefined }, fields.map(fieldOf)), line, failed, said,
    element("div", { class: "buttons" }, cancel, confirm));
  const dialog = element("dialog", { class: fields.length > 4 ? "wide" : undefined, "aria-labelledby": "dialog-title" },
    element("h2", { id: "dialog-title" }, question.title), form);

  function changed() {
    showMeant(form, fields);
    const values = valuesOf(form), ids = question.ids?.(values) ?? [];
    draw(named, idsOf(ids));
    if (question.line) draw(line, lineOf(question.line(values), ids));
  }

  /** @param {Event} event */
  async function submitted(event) {
    event.preventDefault();
    draw(failed);
    confirm.disabled = true;
    const values = valuesOf(form);
    try {
      result = await question.run(values, { said: (text) => draw(said, text), signal: ending.signal });
      next = question.next?.(values);
      dialog.returnValue = "done";
      dialog.close();
    } catch (error) {
      if (ending.signal.aborted) return;
      draw(said);
      draw(failed, problem(error));
      confirm.disabled = false;
    }
  }

  document.body.append(dialog);
  changed();
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", async () => {
      ending.abort();
      dialog.remove();
      if (next !== undefined) await go(next);
      // Not before: what is behind a dialog is not read out, and a new page begins without what was said on the last.
      if (result.length) say(...result);
      resolve(dialog.returnValue === "done");
    });
  });
}
