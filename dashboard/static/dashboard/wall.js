// The wall: patches what the server's frames say, keeps the order still under the reader's hand,
// and says at once when what it shows is not now.
import { listen } from "./standing.js";
import { known, patch, say } from "./patch.js";
import { clock } from "./words.js";
import { serverNow, typing } from "./page.js";

const body = document.body;
const wall = document.getElementById("wall");
const zones = { card: document.getElementById("attention"), tile: document.getElementById("healthy") };
const cards = new Map([...wall.querySelectorAll("[data-id]")].map((node) => [node.dataset.id, node]));
const gateways = new Map([...document.querySelectorAll(".gateway[data-id]")].map((n) => [n.dataset.id, n]));
for (const [id, node] of cards) patch(node, { id, kind: node.className.split(" ")[0] }, serverNow());

let order = null; // the newest order that was sent
let by = "worst";

// ---- frames

function apply(frame) {
  const now = serverNow();
  if (frame.type === "snapshot") takeAway(cards, Object.keys(frame.cards));
  if (frame.type === "snapshot") takeAway(gateways, Object.keys(frame.gateways));
  if (frame.strip) {
    patchAll("strip", frame.strip, now);
    hands();
  }
  if (frame.titles) patchAll("titles", frame.titles, now);
  if (frame.density) wall.dataset.density = frame.density;
  for (const [id, fields] of Object.entries(frame.gateways ?? {})) place(gateways, "gateway", id, fields, now);
  for (const [id, fields] of Object.entries(frame.cards ?? {})) {
    update(id, frame.type === "snapshot" ? whole(id, fields) : fields, now);
  }
  for (const id of frame.cards_gone ?? []) remove(cards, id);
  for (const id of frame.gateways_gone ?? []) remove(gateways, id);
  if (frame.order) order = frame.order;
  if (order && !frozen()) arrange();
  else if (order) offer();
  filter();
}

// A snapshot is everything: what a card has no more is taken back.
function whole(id, fields) {
  const none = Object.keys(cards.has(id) ? known(cards.get(id)) : {}).map((name) => [name, null]);
  return { ...Object.fromEntries(none), ...fields };
}

function patchAll(name, fields, now) {
  for (const root of document.querySelectorAll(`[data-fields="${name}"]`)) patch(root, fields, now);
  if (name === "titles" && fields.page) document.title = `${fields.page} · Switchgear`;
}

// Who has the incident, and whether something of mine is in force: each person's own view of it.
function hands() {
  const me = body.dataset.user;
  const claim = document.getElementById("claim");
  const holder = claim.querySelector('[data-t="claim"]').textContent;
  claim.dataset.holder = holder === "" ? "nobody" : holder === me ? "me" : "another";
  const mine = document.querySelector(".release-mine");
  const forced = document.getElementById("strip").dataset.forcedBy ?? "";
  if (mine) mine.hidden = !forced.split("\n").includes(me);
}
hands();

function remove(map, id) {
  map.get(id)?.remove();
  map.delete(id);
}

function takeAway(map, present) {
  const stays = new Set(present);
  for (const id of map.keys()) if (!stays.has(id)) remove(map, id);
}

function made(kind, id, fields, now) {
  const node = document.getElementById(`${kind}-template`).content.firstElementChild.cloneNode(true);
  patch(node, { ...fields, id }, now);
  window.htmx?.process(node);
  return node;
}

function place(map, kind, id, fields, now) {
  let node = map.get(id);
  if (node) return patch(node, fields, now);
  node = made(kind, id, fields, now);
  map.set(id, node);
  document.getElementById("gateways").append(node);
}

function update(id, fields, now) {
  const node = cards.get(id);
  if (!node) {
    const fresh = made(fields.kind ?? "tile", id, fields, now);
    cards.set(id, fresh);
    // Its place comes with the order; until then it stands at the end of its zone.
    if (fresh.matches(".card")) zones.card.append(fresh);
    else groupOf(fields.provider).querySelector(".tiles").append(fresh);
    return;
  }
  const before = known(node);
  const changed = ["state", "desired", "count", "why_strong"].some((f) => f in fields && f in before && fields[f] !== before[f]);
  patch(node, fields, now);
  if (changed) {
    glow(node);
    announce({ ...before, ...fields });
  }
}

function glow(node) {
  node.classList.remove("glow");
  void node.offsetWidth;
  node.classList.add("glow");
}
wall.addEventListener("animationend", (event) => event.target.classList.remove("glow"));

// ---- order: still while a pointer or the focus is on the cards

let hovering = false;
for (const zone of Object.values(zones)) {
  zone.addEventListener("pointerenter", () => { hovering = true; });
  zone.addEventListener("pointerleave", () => { hovering = false; if (order && !frozen()) arrange(); });
  zone.addEventListener("focusout", () => setTimeout(() => { if (order && !frozen()) arrange(); }));
}

function frozen() {
  return hovering || zones.card.contains(document.activeElement) || zones.tile.contains(document.activeElement);
}

function groupOf(provider, note) {
  let group = [...zones.tile.children].find((g) => g.dataset.provider === provider);
  if (!group) {
    group = document.getElementById("group-template").content.firstElementChild.cloneNode(true);
    group.dataset.provider = provider;
    group.querySelector("b").textContent = provider;
    zones.tile.append(group);
  }
  if (note !== undefined) say(group.querySelector("header .quiet"), note);
  return group;
}

function wanted() {
  const ids = [...order.attention];
  if (by !== "worst") ids.sort((a, b) => groupName(a).localeCompare(groupName(b)));
  return ids;
}

function groupName(id) {
  return known(cards.get(id) ?? wall)[by] ?? "";
}

// By provider or by gateway the cards stand under headings: a circuit under the gateway that has most of its trouble.
const headings = new Map();
function headed(ids) {
  if (by === "worst") return ids.map((id) => cards.get(id));
  const nodes = [];
  let last = null;
  for (const id of ids) {
    const name = groupName(id);
    if (name !== last) nodes.push(heading(name, ids.filter((other) => groupName(other) === name).length));
    last = name;
    nodes.push(cards.get(id));
  }
  return nodes;
}

function heading(name, number) {
  if (!headings.has(name)) headings.set(name, document.getElementById("heading-template").content.firstElementChild.cloneNode(true));
  const node = headings.get(name);
  say(node.querySelector("b"), name || "no gateway in contact");
  say(node.querySelector("span"), String(number));
  return node;
}

function ofKind(id, kind) {
  let node = cards.get(id);
  if (node && !node.classList.contains(kind)) {
    const fields = known(node);
    const fresh = made(kind, id, fields, serverNow());
    node.replaceWith(fresh);
    cards.set(id, fresh);
    node = fresh;
    glow(node);
  }
  return node;
}

function inOrder(parent, nodes) {
  let next = parent.firstElementChild;
  for (const node of nodes) {
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
}

function arrange() {
  // A node that moves or is made anew loses the focus; a person's place is the circuit.
  const place = document.activeElement.closest?.("article[data-id]")?.dataset.id;
  sort();
  if (place !== undefined && document.activeElement === document.body) cards.get(place)?.focus({ preventScroll: true });
}

function sort() {
  document.getElementById("moved").hidden = true;
  const nodes = headed(wanted().filter((id) => ofKind(id, "card")));
  for (const node of zones.card.querySelectorAll(".heading")) if (!nodes.includes(node)) node.remove();
  inOrder(zones.card, nodes);
  if (by !== "worst") filter();
  for (const group of order.healthy) {
    const tiles = groupOf(group.provider, group.note).querySelector(".tiles");
    inOrder(tiles, group.ids.map((id) => ofKind(id, "tile")).filter(Boolean));
  }
  inOrder(zones.tile, order.healthy.map((group) => groupOf(group.provider)));
  document.getElementById("calm").hidden = order.attention.length > 0;
}

function offer() {
  const shown = [...zones.card.querySelectorAll(".card")].map((node) => node.dataset.id);
  const want = wanted();
  const moving = new Set([...want.filter((id, i) => shown[i] !== id), ...shown.filter((id, i) => want[i] !== id)]);
  const tag = document.getElementById("moved");
  tag.hidden = moving.size === 0;
  say(tag, `${moving.size} ${moving.size === 1 ? "circuit" : "circuits"} would move, press . to sort`);
}
document.getElementById("moved").addEventListener("click", arrange);
for (const button of wall.querySelectorAll("[data-by]")) {
  button.addEventListener("click", () => {
    by = button.dataset.by;
    for (const each of wall.querySelectorAll("[data-by]")) each.setAttribute("aria-pressed", String(each === button));
    if (order) arrange();
  });
}

// ---- find: narrows what is shown

const find = document.getElementById("find");
find.addEventListener("input", filter);
find.form.addEventListener("submit", (event) => {
  // What is on the wall is gone to; anything else is looked for on the page of finding.
  const first = wall.querySelector("[data-id]:not(.filtered-out)");
  if (!first) return;
  event.preventDefault();
  first.focus();
});
// `provider:openai` is that provider alone; any other word may stand anywhere in the name.
function fits(node, word) {
  if (word.startsWith("provider:")) return (node.dataset.provider ?? "").toLowerCase() === word.slice(9);
  return (node.dataset.find ?? "").includes(word);
}
function filter() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const node of cards.values()) node.classList.toggle("filtered-out", !words.every((word) => fits(node, word)));
  for (const node of headings.values()) {
    let next = node.nextElementSibling;
    while (next?.matches(".card.filtered-out")) next = next.nextElementSibling;
    node.classList.toggle("filtered-out", !next?.matches(".card"));
  }
  for (const link of document.querySelectorAll("#providers a")) {
    const chosen = new URL(link.href).searchParams.get("q")?.toLowerCase() === find.value.toLowerCase() && find.value !== "";
    link.toggleAttribute("aria-current", chosen);
    if (chosen) link.setAttribute("aria-current", "true");
  }
}
document.getElementById("providers").addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const asked = new URL(link.href).searchParams.get("q") ?? "";
  find.value = find.value === asked ? "" : asked;
  history.replaceState(null, "", find.value ? `/?q=${encodeURIComponent(find.value)}` : "/");
  filter();
});
filter();

// ---- keys

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && event.target === find) {
    find.value = "";
    filter();
    find.blur();
  }
  if (typing(event.target)) return;
  const current = document.activeElement.closest?.("[data-id]");
  const all = [...wall.querySelectorAll("article:not(.filtered-out)")];
  if (event.key === "j" || event.key === "k") {
    const step = event.key === "j" ? 1 : -1;
    const at = all.indexOf(current);
    all[at === -1 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))]?.focus();
    event.preventDefault();
  } else if (event.key === "Enter" && current === document.activeElement) {
    current?.querySelector(".card-name, .tile-name")?.click();
  } else if (event.key === "o") {
    // For a viewer too: the dialog says who can.
    (current ?? wall.querySelector(".card:hover, .tile:hover"))?.querySelector(".force")?.click();
  } else if (event.key === "." && order) arrange();
});

// ---- what a screen reader hears: at most once a second

const said = new Map();
function announce(fields) {
  said.set(fields.id, `${fields.model ?? ""} ${fields.region ?? ""} ${fields.state ?? ""} ${fields.count ?? ""}`.trim());
}
setInterval(() => {
  if (said.size === 0) return;
  say(document.getElementById("say"), [...said.values()].slice(0, 5).join("; "));
  said.clear();
}, 1000);

listen({
  onFrame: apply,
  onStale: (at) => {
    for (const node of document.querySelectorAll(".asof")) say(node, clock(at, serverNow()));
  },
});
