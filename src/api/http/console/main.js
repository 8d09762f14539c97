// @ts-check
// Begins here: which page is shown, the head of the console, the token.

import { Problem, askForToken, call, keepToken, token } from "./api.js";
import { dead } from "./dead.js";
import { ask } from "./dialog.js";
import { draw, element } from "./dom.js";
import { ZONE, clock } from "./format.js";
import { find } from "./find.js";
import { fleet } from "./fleet.js";
import { message } from "./message.js";
import { messages } from "./messages.js";
import { complain, hush } from "./notice.js";
import { overview } from "./overview.js";
import { button, chip, empty, link } from "./parts.js";
import { MAY_CHANGE, go, placeOf, to } from "./place.js";
import { push } from "./push.js";
import { Refresh } from "./refresh.js";
import { cron } from "./cron.js";
import { topic } from "./topic.js";

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const refresh = new Refresh((at) => (part("updated").textContent = `Updated ${clock(at)}`));

let leaving = new AbortController();

/** Whether the reader has gone from one page to another. */
let moved = false;

/**
 * @param {import("./place.js").Place} place
 * @param {import("./frame.js").Page} page
 * @returns {import("./frame.js").Heading}
 */
function shown(place, page) {
  const [root, name, kind, id, ...more] = place.parts;
  if (root === undefined) return overview(place, page);
  if (root === "brokers" && name === undefined) return fleet(place, page);
  if (root === "find" && name === undefined) return find(place, page);
  if (root === "topics" && name !== undefined && more.length === 0) {
    if (kind === undefined) return topic(name, place, page);
    if (kind === "messages") return id === undefined ? messages(name, place, page) : message(name, id, place, page);
    if (kind === "push" && MAY_CHANGE && id === undefined) return push(name, place, page);
    if (kind === "dead" && id === undefined) return dead(name, place, page);
    if (kind === "cron" && id === undefined) return cron(name, place, page);
  }
  page.body.append(empty("There is no such page.", link(to([]), "To the overview")));
  return { title: "Not found", plain: "Not found", crumbs: [["Overview", to([])]] };
}

/** Shows the page of the address. */
function show() {
  leaving.abort();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  leaving = new AbortController();
  const { signal } = leaving;
  const body = element("div", {});
  /** @param {() => Promise<void>} reading */
  const once = async (reading) => {
    try {
      await reading();
      return true;
    } catch (error) {
      if (!signal.aborted) complain(error);
      return false;
    }
  };
  let followed = false;
  let well = true;
  const follow = (/** @type {(health: any) => Promise<void>} */ reading) => {
    followed = true;
    refresh.follow(async () => {
      const before = well;
      well = await once(async () => reading(await health(signal)));
      // What was wrong with the reading is over.
      if (well && !before) hush();
    });
  };
  const place = placeOf(location.hash) ?? { parts: ["?"], given: {} };
  hush();
  const heading = shown(place, { body, signal, once, follow, again: () => void refresh.now() });
  if (!followed) follow(async () => {});
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
    draw(part("health"), chip("down"));
    if (!(error instanceof Problem && error.status === 503)) throw error;
    said = { status: "down", detail: error.detail };
  }
  draw(part("health"), chip(said.status));
  return said;
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
  part("reload").onclick = () => void refresh.now();
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
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.matches("input, textarea, select, dialog *");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    search.focus();
    search.select();
  });
  part("zone").textContent = ZONE;
  tokenOffer();
}

/** Offers to give a token when one is missed, and to forget the one that there is. */
function tokenOffer() {
  const forget = () => {
    keepToken(null);
    tokenOffer();
    show();
  };
  const give = () => {
    refused = false;
    show();
  };
  const offer = refused ? button("Give a token", give, { class: "small" })
    : token() === null ? null : button("Forget the token", forget, { class: "small" });
  draw(part("token"), offer);
}

/** @type {Promise<string | null> | undefined} */
let asking;

/** Whether the reader had none to give: the question is not asked again and again. */
let refused = false;

/** One question for all requests that need a token. @param {string} why */
async function givenToken(why) {
  if (refused) return null;
  asking ??= asked(why).finally(() => (asking = undefined));
  return asking;
}

/** @param {string} why */
async function asked(why) {
  keepToken(null);
  let given = null;
  await ask({
    title: "Token required",
    body: [element("p", {}, "This broker answers only requests with a token. It is kept in this tab until you close it, and sent to this broker alone."),
      why ? element("p", { class: "note warn" }, why) : null],
    fields: [{ name: "token", label: "Token", type: "password", required: true }],
    confirm: "Use it",
    run: async (values) => {
      given = values.token.trim();
      keepToken(given);
      return [];
    },
  });
  refused = given === null;
  tokenOffer();
  return given;
}

askForToken(givenToken);
head();
addEventListener("hashchange", show);
show();
