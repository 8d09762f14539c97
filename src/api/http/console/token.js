// @ts-check
// The token of this tab: it is asked for when a request needs one, and forgotten when the reader says so.

import { keepToken, token } from "./api.js";
import { ask } from "./dialog.js";
import { draw, element } from "./dom.js";
import { button } from "./parts.js";

/** Shows the page anew. */
let changed = () => {};

/** Says what shows the page anew once a token is given or forgotten. @param {() => void} show */
export function whenGiven(show) {
  changed = show;
  tokenOffer();
}

/** Offers to give a token when one is missed, and to forget the one that there is. */
function tokenOffer() {
  const forget = () => {
    keepToken(null);
    tokenOffer();
    changed();
  };
  const give = () => {
    refused = false;
    changed();
  };
  const offer = refused ? button("Give a token", give, { class: "small" })
    : token() === null ? null : button("Forget the token", forget, { class: "small" });
  draw(/** @type {HTMLElement} */ (document.getElementById("token")), offer);
}

/** @type {Promise<string | null> | undefined} */
let asking;

/** Whether the reader had none to give: the question is not asked again and again. */
let refused = false;

/** One question for all requests that need a token. @param {string} why */
export async function givenToken(why) {
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
