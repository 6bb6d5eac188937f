// Makes a shown part of the page say what a newly read one says, node by node, so that focus,
// selection, scroll and open details stay where they are.
// Invariant: what a person is writing is never touched: a form with a changed field stays as it is,
// and so does a field that has the focus. Nodes with `data-keep` are the scripts' own.

const FIELDS = "input, select, textarea";

// The forms that were left alone, each beside its newly read twin.
export function morph(old, fresh) {
  const left = [];
  children(old, fresh, left);
  return left;
}

export function isEdited(form) {
  return [...form.querySelectorAll(FIELDS)].some((field) => {
    if (field.type === "hidden") return false;
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.matches("select")) return changed(field);
    return field.value !== field.defaultValue;
  });
}

// A select without a chosen option in the page shows its first one.
function changed(select) {
  const options = [...select.options];
  const chosen = options.findIndex((option) => option.defaultSelected);
  return select.selectedIndex !== (chosen === -1 && !select.multiple ? 0 : chosen);
}

function kept(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.dataset?.keep !== undefined;
}

// htmx reads a node's address once: one whose address has changed is a new node.
function same(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) return false;
  if (a.nodeType !== Node.ELEMENT_NODE) return true;
  if (a.id !== b.id) return false;
  return ["hx-get", "hx-post", "hx-trigger"].every((name) => a.getAttribute(name) === b.getAttribute(name));
}

function children(old, fresh, left) {
  let next = old.firstChild;
  for (const wanted of fresh.childNodes) {
    if (kept(wanted)) continue;
    while (next && kept(next)) next = next.nextSibling;
    const found = next && same(next, wanted) ? next : ahead(next, wanted);
    if (!found) {
      old.insertBefore(document.importNode(wanted, true), next);
      continue;
    }
    // What stands between has gone.
    while (next !== found) {
      const after = next.nextSibling;
      if (!kept(next)) next.remove();
      next = after;
    }
    next = found.nextSibling;
    node(found, wanted, left);
  }
  while (next) {
    const after = next.nextSibling;
    if (!kept(next)) next.remove();
    next = after;
  }
}

// A named node is looked for further on; what has no name is taken as it comes.
function ahead(from, wanted) {
  if (wanted.nodeType !== Node.ELEMENT_NODE || wanted.id === "") return null;
  for (let node = from; node; node = node.nextSibling) if (same(node, wanted)) return node;
  return null;
}

function node(old, fresh, left) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.matches("form") && isEdited(old)) {
    left.push([old, fresh]);
    return;
  }
  if (old.matches(FIELDS) && old === document.activeElement) return;
  attributes(old, fresh);
  if (!old.matches(".chart")) children(old, fresh, left);
  if (old.matches("input:not([type=checkbox], [type=radio]), textarea")) old.value = fresh.defaultValue;
  if (old.matches("[type=checkbox], [type=radio]")) old.checked = fresh.defaultChecked;
}

function attributes(old, fresh) {
  for (const name of old.getAttributeNames()) {
    if (!fresh.hasAttribute(name) && !own(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!own(old, name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

// What the person or a script has set on a node of the page.
function own(node, name) {
  return (name === "open" && node.matches("details")) || (node.matches(".chart") && (name === "class" || name === "style"));
}
