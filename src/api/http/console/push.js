// @ts-check
// The push form.

import { Problem, call, path, query } from "./api.js";
import { command } from "./command.js";
import { dueFields, fieldOf, showMeant, utc, valuesOf } from "./dialog.js";
import { draw, element } from "./dom.js";
import { headingOf, tabs } from "./frame.js";
import { placeOfMessage } from "./messages.js";
import { problem } from "./notice.js";
import { chip, facts, link, section, shell, time } from "./parts.js";

/** What each status of an answer means. @type {Record<string, string>} */
const MEANING = {
  stored: "It is in the store.",
  journaled: "It is in the store, and for a while on this broker's disk as well.",
  buffered: "Redis is away: it is on this broker's disk, and goes to Redis by itself.",
  duplicate: "A message with this id was there, or was acked a short time ago: nothing changed.",
  replaced: "It has taken the place of the message with this id.",
  debounced: "The message with this id got this due time, and is otherwise as it was.",
};

/** @type {import("./dialog.js").Field[]} */
const FIELDS = [
  { name: "payload", label: "Payload", type: "area", hint: "The body of the message, as it is; may be empty" },
  { name: "key", label: "Key", hint: "Equal keys share a partition" },
  { name: "id", label: "Id", hint: "Makes the push repeatable; empty: dwell makes one" },
  ...dueFields(true),
];

/** @type {import("./dialog.js").Field[]} */
const MORE = [
  { name: "spread", label: "Spread", hint: "The due time moves by up to this, as the id decides: 10m" },
  { name: "content_type", label: "Content type", value: "text/plain; charset=utf-8" },
  { name: "ttl", label: "Time to live", hint: "From the due time: 1h, 30m" },
  { name: "max_attempts", label: "Max attempts", type: "number", more: { min: 0, max: 1_000, step: 1 } },
  { name: "priority", label: "Priority", type: "number", more: { min: 0, max: 9, step: 1 } },
  { name: "conflict", label: "If the id is there", type: [["", "keep what is there"], ["reject", "reject"], ["replace", "replace it"],
    ["debounce", "debounce: only move its due time"], ["after", "after: follow one that is in flight"]] },
  { name: "debounce_max", label: "Debounce at most", hint: "With debounce: due this long after the first push at the latest" },
];

/**
 * @param {string} topic
 * @param {import("./place.js").Place} _place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
export function push(topic, _place, page) {
  const answer = element("div", { role: "status" }), failed = element("div", { role: "alert" }), line = element("div", {});
  const submit = element("button", { type: "submit", class: "primary" }, "Push");
  const form = element("form", { class: "stacked", onsubmit: submitted, oninput: changed, onchange: changed },
    FIELDS.map(fieldOf), element("details", {}, element("summary", {}, "More"), MORE.map(fieldOf)),
    line, failed, element("div", { class: "buttons" }, submit));
  page.body.append(tabs(topic, "New message"), section("Message", form), section("Answer", answer));
  draw(answer, element("p", { class: "quiet" }, "What dwell answers to the push is shown here."));
  changed();

  function changed() {
    showMeant(form, FIELDS);
    draw(line, shell(lineOf(topic, valuesOf(form))));
  }

  /** @param {Event} event */
  async function submitted(event) {
    event.preventDefault();
    submit.disabled = true;
    draw(failed);
    try {
      const pushed = await pushed_(topic, valuesOf(form), page.signal);
      const { durability } = await store(page.signal);
      draw(answer, answered(topic, valuesOf(form).key, pushed, durability));
    } catch (error) {
      if (page.signal.aborted) return;
      draw(answer);
      draw(failed, problem(error), error instanceof Problem ? repeatable(form, error) : null);
    } finally {
      submit.disabled = false;
    }
  }

  return headingOf(topic, "New message");
}

/**
 * @param {string} topic
 * @param {import("./dialog.js").Values} values
 */
function lineOf(topic, { payload = "", key, id, delay, due_at, spread, ttl, max_attempts, priority, conflict, debounce_max, content_type }) {
  return command("push", [topic, payload], { key, id, delay, at: utc(due_at), spread, ttl, "max-attempts": max_attempts, priority, conflict, "debounce-max": debounce_max, "content-type": content_type });
}

/**
 * @param {string} topic
 * @param {import("./dialog.js").Values} values
 * @param {AbortSignal} signal
 */
function pushed_(topic, { payload = "", key, id, delay, due_at, spread, ttl, max_attempts, priority, conflict, debounce_max, content_type }, signal) {
  const behind = query({ key, id, delay, due_at: utc(due_at), spread, ttl, max_attempts, priority, conflict, debounce_max });
  // Without a content type the browser would say one of its own.
  const headers = { "Dwell-Raw": "true", "Content-Type": content_type ?? "text/plain; charset=utf-8" };
  return call("POST", `${path`/v1/topics/${topic}/messages`}${behind}`, { payload, headers, signal });
}

/** @param {AbortSignal} signal */
async function store(signal) {
  try {
    return (await call("GET", "/readyz", { signal })).store;
  } catch {
    return {};
  }
}

/**
 * @param {string} topic
 * @param {string | undefined} key
 * @param {any} pushed
 * @param {string | undefined} durability
 */
function answered(topic, key, pushed, durability) {
  const lasts = pushed.status === "stored" && durability ? ` ${durability[0].toUpperCase()}${durability.slice(1)}` : "";
  return facts([
    ["Status", chip(pushed.status)],
    ["Id", link(placeOfMessage(topic, { id: pushed.id, key }), element("span", { class: "mono" }, pushed.id))],
    ["Due at", time(pushed.due_at)],
    ["Partition", String(pushed.partition)],
    ["Durability", `${MEANING[pushed.status] ?? ""}${lasts}`],
  ]);
}

/**
 * When the outcome is not known, the error has the id to repeat the push with.
 * @param {HTMLFormElement} form
 * @param {Problem} failed
 */
function repeatable(form, failed) {
  const field = form.elements.namedItem("id");
  if (!failed.body.id || !(field instanceof HTMLInputElement)) return null;
  field.value = failed.body.id;
  return element("p", {}, "It may have been pushed. The form has its id now: push again, and there will be one message.");
}
