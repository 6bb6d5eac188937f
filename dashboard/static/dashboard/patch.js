// Places fields into existing nodes: data-t="field" is text, data-a="attr=field …" are attributes.
// Invariant: text only ever becomes textContent and attributes of templates that the server wrote,
// and href only takes a path of this site or a glyph, so a hostile name stays a name.
import { areRelative, worded } from "./words.js";

const fieldsOf = new WeakMap();

export function known(root) {
  return fieldsOf.get(root) ?? {};
}

function safe(attribute, value) {
  if (attribute === "href" || attribute === "hx-get") {
    return (value.startsWith("/") && !value.startsWith("//")) || value.startsWith("#") ? value : "";
  }
  return value;
}

export function patch(root, fields, now) {
  const merged = { ...known(root), ...fields };
  fieldsOf.set(root, merged);
  for (const node of [root, ...root.querySelectorAll("[data-t], [data-a]")]) {
    const text = node.dataset.t;
    if (text !== undefined && text in fields) setText(node, fields[text] ?? "", now);
    const attributes = node.dataset.a;
    if (attributes === undefined) continue;
    for (const pair of attributes.split(" ")) {
      const [attribute, name] = pair.split("=");
      if (!(name in fields)) continue;
      const value = safe(attribute, fields[name] ?? "");
      if (node.getAttribute(attribute) !== value) node.setAttribute(attribute, value);
    }
  }
}

function setText(node, value, now) {
  if (node.dataset.f !== undefined) {
    node.setAttribute("datetime", value);
    say(node, value === "" ? "" : worded(node.dataset.f, Date.parse(value), now));
  } else {
    say(node, value);
  }
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Every time element that moves by itself.
export function tick(now) {
  for (const node of document.querySelectorAll(areRelative() ? "time[data-f]" : "time[data-f]:not([data-f='clock'])")) {
    const at = node.getAttribute("datetime");
    if (at) say(node, worded(node.dataset.f, Date.parse(at), now));
  }
}
