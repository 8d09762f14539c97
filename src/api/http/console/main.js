// @ts-check
// Begins here: shows the page of the address, and the head of the console.

import { begin, showStatus, wasNotRead, wasRead, watchAge } from "./age.js";
import { Problem, askForToken, call } from "./api.js";
import { draw, element } from "./dom.js";
import { ZONE } from "./format.js";
import { tabNames } from "./frame.js";
import { listen } from "./keys.js";
import { complain, hush } from "./notice.js";
import { empty, link } from "./parts.js";
import { MAY_CHANGE, go, placeOf, to } from "./place.js";
import { Refresh } from "./refresh.js";
import { watchTips } from "./tip.js";
import { givenToken, whenGiven } from "./token.js";
import { isOfTopicThatIs, viewOf } from "./view.js";

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const refresh = new Refresh();

/** Reads what a page is about that is not followed. @type {() => Promise<boolean>} */
let reread = async () => true;

let leaving = new AbortController();

/** Whether the reader has gone from one page to another. */
let moved = false;

/**
 * What is shown of a topic that is not there. Whether it is, is looked up in the list of topics: that is no error.
 * @param {string} topic
 * @param {HTMLElement} body
 */
function unknown(topic, body) {
  // It keeps the focus while it is looked up again and again.
  if (body.hasAttribute("data-gone")) return;
  body.setAttribute("data-gone", "");
  body.replaceChildren(empty(`There is no topic ${topic}.`, element("p", {}, "It was deleted, or never created. The first push to a topic creates it."),
    element("div", { class: "actions" }, link(to([]), "All topics"), MAY_CHANGE ? link(to(["topics", topic, "push"]), "Push a first message") : null)));
}

/**
 * Whether a place is of a topic that is not there.
 * @param {import("./place.js").Place} place
 * @param {AbortSignal} signal
 */
async function isGone(place, signal) {
  if (!isOfTopicThatIs(place)) return false;
  const topic = place.parts[1];
  try {
    return !(await call("GET", "/v1/topics", { signal })).topics.includes(topic);
  } catch {
    // What the page itself reads says what is wrong.
    return false;
  }
}

/** Shows the page of the address. */
function show() {
  leaving.abort();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  leaving = new AbortController();
  const { signal } = leaving;
  const body = element("div", {});
  const place = placeOf(location.hash) ?? { parts: ["?"], given: {} };
  let gone = isGone(place, signal);
  begin();
  /** Nothing when there is nothing to read any more. @param {() => Promise<void>} reading */
  const once = async (reading) => {
    try {
      if (await gone) unknown(place.parts[1], body);
      else await reading();
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      const missing = error instanceof Problem && error.body.missing;
      if (missing && missing.topic === place.parts[1] && !missing.group && !missing.cron) {
        gone = Promise.resolve(true);
        unknown(missing.topic, body);
        return true;
      }
      complain(error);
      return false;
    }
  };
  let followed = false;
  let well = true;
  // Of a page that is not followed.
  let unread = false;
  const reads = async (/** @type {() => Promise<void>} */ reading) => {
    reread = async () => {
      unread = !(await once(reading));
      if (!signal.aborted) (unread ? wasNotRead : () => wasRead(false))();
      return !unread;
    };
    return reread();
  };
  reread = async () => true;
  const follow = (/** @type {(health: any) => Promise<void>} */ reading) => {
    followed = true;
    refresh.follow(async () => {
      if (await gone) {
        gone = isGone(place, signal);
        // It is there again.
        if (!(await gone) && !signal.aborted) return show();
        if (!signal.aborted) await health(signal).catch(complain);
      }
      const before = well;
      well = await once(async () => reading(await health(signal)));
      // What was wrong with the reading is over.
      if (well && !before) {
        hush();
        if (!followed) await reread();
      }
      if (!signal.aborted && !well) wasNotRead();
      else if (!signal.aborted && followed) wasRead(true);
    });
  };
  hush();
  const heading = viewOf(place)(place, { body, signal, once, reads, follow, again: () => void refresh.now() });
  if (!followed) {
    // What could not be read is read once the broker answers again.
    follow(async () => { if (unread) await reread(); });
    followed = false;
  }
  for (const [id, root] of [["to-overview", undefined], ["to-fleet", "brokers"]]) {
    if (place.parts[0] === root) part(/** @type {string} */ (id)).setAttribute("aria-current", "page");
    else part(/** @type {string} */ (id)).removeAttribute("aria-current");
  }
  const crumbs = heading.crumbs.map(([words, hash]) => element("li", {}, link(hash, words)));
  const title = element("h1", { tabindex: "-1" }, heading.title);
  const above = element("nav", { "aria-label": "Breadcrumb", class: "crumbs" }, element("ol", {}, crumbs));
  part("main").replaceChildren(...(crumbs.length ? [above] : []), title, body);
  document.title = `${heading.plain} · dwell`;
  if (moved) {
    title.focus();
    scrollTo(0, 0);
  }
  moved = true;
}

/**
 * Shows how the broker is, and gives it.
 * @param {AbortSignal} signal
 */
async function health(signal) {
  let said;
  try {
    said = await call("GET", "/readyz", { signal });
    if (said.status === "ready") said.status = "up";
  } catch (error) {
    if (signal.aborted) throw error;
    showStatus("down");
    if (!(error instanceof Problem && error.status === 503)) throw error;
    said = { status: "down", detail: error.detail };
  }
  showStatus(said.status);
  return said;
}

/** The parts of a topic, as its page shows them. */
const TABS = tabNames();

/** Goes to a part of the topic that is shown. @param {number} at */
function tabAt(at) {
  const tabs = [...document.querySelectorAll(".tabs a")].find((tab) => tab.textContent === TABS[at]);
  if (tabs instanceof HTMLElement) tabs.click();
}

/** Lets the reader stop the reading again and again, and choose the colours. */
function head() {
  part("skip").onclick = (event) => {
    event.preventDefault();
    part("main").focus();
  };
  const stop = part("stop");
  stop.onclick = () => {
    const stopped = stop.getAttribute("aria-pressed") !== "true";
    stop.setAttribute("aria-pressed", String(stopped));
    refresh.stop(stopped);
  };
  part("reload").onclick = () => {
    void reread();
    void refresh.now();
  };
  const theme = /** @type {HTMLSelectElement} */ (part("theme"));
  theme.value = localStorage.getItem("dwell-theme") ?? "auto";
  const coloured = () => {
    document.documentElement.dataset.theme = theme.value;
    localStorage.setItem("dwell-theme", theme.value);
  };
  theme.onchange = coloured;
  coloured();
  const search = /** @type {HTMLInputElement} */ (part("q"));
  part("find").onsubmit = (event) => {
    event.preventDefault();
    void go(to(["find"], { q: search.value.trim() }));
  };
  const toSearch = () => {
    search.focus();
    search.select();
  };
  part("keys").onclick = listen([
    { key: "/", words: "Find a topic, an id, a key or a text", run: toSearch },
    { key: "r", words: "Refresh the page", run: () => part("reload").click() },
    { key: "s", words: "Stop refreshing, and begin again", run: () => stop.click() },
    { key: "o", words: "To the overview", run: () => void go(to([])) },
    { key: "f", words: "To the fleet", run: () => void go(to(["brokers"])) },
    ...TABS.map((tab, at) => ({ key: String(at + 1), words: `Of a topic: ${tab.toLowerCase()}`, run: () => tabAt(at) })),
  ]);
  watchTips();
  watchAge();
  part("zone").textContent = ZONE;
}

askForToken(givenToken);
whenGiven(show);
head();
addEventListener("hashchange", show);
show();
