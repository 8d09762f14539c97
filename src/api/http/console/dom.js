// @ts-check
// Elements from names, attributes and text. Text is only ever text: nothing here reads markup, so whatever a producer put
// into a key or a payload is shown and never run.

/** @typedef {Node | string | number | null | undefined | false} Child */

/** Handlers that are carried over when a drawn element stands for an older one. */
const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange"];

/**
 * @param {Element} node
 * @param {Record<string, any>} attributes Functions are handlers; `false`, `null` and `undefined` are left out.
 * @param {Child[]} children
 */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter(present).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

/** @param {any} child */
function present(child) {
  return child !== null && child !== undefined && child !== false;
}

/**
 * An HTML element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, /** @type {Child[]} */ (children));
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function drawing(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, /** @type {Child[]} */ (children));
}

/**
 * Draws `children` in `region`, and keeps every element that is there already: focus, selection and scroll stay.
 * @param {Element} region
 * @param {...(Child | Child[])} children
 */
export function draw(region, ...children) {
  const focused = document.activeElement;
  const key = focused instanceof HTMLElement && region.contains(focused) ? focused.dataset.key : undefined;
  const fresh = filled(document.createElement("div"), {}, /** @type {Child[]} */ (children));
  renewChildren(region, fresh);
  if (key !== undefined && document.activeElement !== focused) {
    const again = [...region.querySelectorAll("[data-key]")].find((node) => node.getAttribute("data-key") === key);
    if (again instanceof HTMLElement) again.focus();
  }
}

/**
 * @param {Node} old
 * @param {Node} fresh
 */
function renewChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  wanted.forEach((node, at) => {
    const there = old.childNodes[at];
    if (!there) old.appendChild(node);
    else if (isSame(there, node)) renew(there, node);
    else old.replaceChild(node, there);
  });
  while (old.childNodes.length > wanted.length && old.lastChild) old.removeChild(old.lastChild);
}

/**
 * Whether one may stand for the other.
 * @param {Node} old
 * @param {Node} fresh
 */
function isSame(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return false;
  if (!(old instanceof Element && fresh instanceof Element)) return true;
  return old.getAttribute("data-key") === fresh.getAttribute("data-key");
}

/**
 * @param {any} old
 * @param {any} fresh
 */
function renew(old, fresh) {
  if (!(old instanceof Element)) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // What the reader has unfolded stays unfolded.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) old[name] = fresh[name];
  renewChildren(old, fresh);
}
