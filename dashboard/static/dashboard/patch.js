// Places fields into existing nodes: data-t="field" is text, data-a="attr=field …" are attributes.
// Invariant: text only ever becomes text nodes and attributes of templates that the server wrote,
// and href only takes a path of this site or a glyph, so a hostile name stays a name. Only what
// differs is written, and nothing is asked that would make the browser lay the page out.
import { areRelative, worded } from "./words.js";

const fieldsOf = new WeakMap();
const placesOf = new WeakMap();

export function known(root) {
  return fieldsOf.get(root) ?? {};
}

// What the server has already placed.
export function remember(root, fields) {
  fieldsOf.set(root, { ...known(root), ...fields });
}

function safe(attribute, value) {
  if (attribute === "href" || attribute === "hx-get") {
    return (value.startsWith("/") && !value.startsWith("//")) || value.startsWith("#") ? value : "";
  }
  return value;
}

// Where each field stands; a template's bindings never change, so they are read once.
function places(root) {
  const known = placesOf.get(root);
  if (known) return known;
  const found = new Map();
  const add = (name, place) => found.has(name) ? found.get(name).push(place) : found.set(name, [place]);
  for (const node of [root, ...root.querySelectorAll("[data-t], [data-a]")]) {
    const text = node.getAttribute("data-t");
    if (text !== null) add(text, { node, attribute: null, form: node.getAttribute("data-f") });
    for (const pair of node.getAttribute("data-a")?.split(" ") ?? []) {
      const [attribute, name] = pair.split("=");
      add(name, { node, attribute });
    }
  }
  placesOf.set(root, found);
  return found;
}

// True when a node was written to.
export function patch(root, fields, now) {
  const before = known(root);
  const all = places(root);
  let wrote = false;
  for (const name of Object.keys(fields)) {
    if (name in before && before[name] === fields[name]) continue;
    const value = fields[name] ?? "";
    for (const { node, attribute, form } of all.get(name) ?? []) {
      if (attribute === null) wrote = setText(node, form, value, now) || wrote;
      else wrote = setAttribute(node, attribute, safe(attribute, value)) || wrote;
    }
  }
  fieldsOf.set(root, { ...before, ...fields });
  return wrote;
}

function setAttribute(node, attribute, value) {
  if (node.getAttribute(attribute) === value) return false;
  node.setAttribute(attribute, value);
  return true;
}

function setText(node, form, value, now) {
  if (form === null) return say(node, value);
  const moved = setAttribute(node, "datetime", value);
  return say(node, value === "" ? "" : worded(form, Date.parse(value), now)) || moved;
}

// A text that becomes another stays the same node: nothing is matched or laid out anew but its line.
export function say(node, text) {
  const only = node.firstChild;
  if (only !== null && only.nodeType === Node.TEXT_NODE && only.nextSibling === null && text !== "") {
    if (only.data === text) return false;
    only.data = text;
    return true;
  }
  if (node.textContent === text) return false;
  node.textContent = text;
  return true;
}

// Every time element that moves by itself.
export function tick(now) {
  for (const node of document.querySelectorAll(areRelative() ? "time[data-f]" : "time[data-f]:not([data-f='clock'])")) {
    const at = node.getAttribute("datetime");
    if (at) say(node, worded(node.dataset.f, Date.parse(at), now));
  }
}
