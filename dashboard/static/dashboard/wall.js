// The wall: shows what the server's frames say, a few cards between two paints and the worst first,
// keeps the order still under the reader's hand, and says at once when what it shows is not now.
import { listen, live } from "./standing.js";
import { known, patch, remember, say } from "./patch.js";
import { clock } from "./words.js";
import { serverNow, typing } from "./page.js";
import { opens } from "./wall_alarm.js";
import { announce, glow, glowing } from "./wall_changed.js";
import { Order } from "./wall_order.js";
import { Pending } from "./wall_pending.js";
import { slices } from "./wall_slices.js";

const body = document.body;
const wall = document.getElementById("wall");
const zones = { card: document.getElementById("attention"), tile: document.getElementById("healthy") };
const cards = new Map([...wall.querySelectorAll("[data-id]")].map((node) => [node.dataset.id, node]));
const gateways = new Map([...document.querySelectorAll(".gateway[data-id]")].map((n) => [n.dataset.id, n]));
for (const [id, node] of cards) remember(node, { id, kind: node.className.split(" ")[0] });

// ---- frames: what is received waits until a slice shows it

const pending = new Pending();
const order = new Order(cards, zones, remade);
const showing = slices(showOne, (all) => {
  glowing();
  if (all && order.by !== "worst") filter(); // a heading over nothing is not shown
  const at = pending.shown();
  if (at !== null) live(at);
});
order.onFree = showing.ask;

function receive(frame) {
  pending.add(frame);
  if (frame.order) order.take(frame.order);
  waiting = null;
  showing.ask();
}

let waiting = null; // ids in the order in which they are shown; null: to be sorted anew
const unseen = new WeakSet(); // cards outside the window, which the browser neither lays out nor paints
wall.addEventListener("contentvisibilityautostatechange", ({ target, skipped }) => {
  if (skipped) unseen.add(target);
  else unseen.delete(target);
}, true);

// One unit of a slice.
function showOne() {
  if (pending.first !== null) {
    showFirst(pending.takeFirst());
    return 1;
  }
  if (pending.cards.size === 0) return order.step(performance.now()) ? 1 : null;
  waiting ??= pending.ids(order.rank).reverse();
  const id = waiting.pop();
  return showCard(id) && !unseen.has(cards.get(id)) ? 1 : 0;
}

function showFirst(first) {
  const now = serverNow();
  const isWhole = first.snapshot !== null;
  if (isWhole) {
    takeAway(cards, first.snapshot);
    takeAway(gateways, new Set(Object.keys(first.gateways)));
  }
  for (const id of first.gone) remove(cards, id);
  for (const id of first.gateways_gone) remove(gateways, id);
  for (const name of ["strip", "titles"]) {
    for (const root of document.querySelectorAll(`[data-fields="${name}"]`)) {
      patch(root, isWhole ? whole(root, first[name]) : first[name], now);
    }
  }
  hands();
  chosen();
  if (first.titles.page) document.title = `${first.titles.page} · Switchgear`;
  if (first.density) wall.dataset.density = first.density;
  for (const [id, fields] of Object.entries(first.gateways)) place(id, fields, isWhole, now);
}

// A snapshot is everything: what a node has no more is taken back.
function whole(node, fields) {
  return { ...Object.fromEntries(Object.keys(known(node)).map((name) => [name, null])), ...fields };
}

function showCard(id) {
  const { fields, whole: isWhole } = pending.take(id);
  return update(id, isWhole && cards.has(id) ? whole(cards.get(id), fields) : fields);
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
  order.unsettle();
}

function takeAway(map, present) {
  for (const id of map.keys()) if (!present.has(id)) remove(map, id);
}

function made(kind, id, fields) {
  const node = document.getElementById(`${kind}-template`).content.firstElementChild.cloneNode(true);
  patch(node, { ...fields, id }, serverNow());
  return node;
}

// A circuit's node as a card or a tile: another node, and the same circuit.
function remade(kind, id) {
  const node = made(kind, id, known(cards.get(id)));
  cards.set(id, node);
  narrow(node);
  glow(node);
  return node;
}

function place(id, fields, isWhole, now) {
  let node = gateways.get(id);
  if (node) return patch(node, isWhole ? whole(node, fields) : fields, now);
  node = made("gateway", id, fields);
  gateways.set(id, node);
  return document.getElementById("gateways").append(node);
}

// True when something was written.
function update(id, fields) {
  const node = cards.get(id);
  if (!node) {
    const fresh = made(fields.kind ?? "tile", id, fields);
    cards.set(id, fresh);
    narrow(fresh);
    // Its place comes with the order; until then it stands at the end of its zone.
    if (fresh.matches(".card")) zones.card.append(fresh);
    else order.groupOf(fields.provider).querySelector(".tiles").append(fresh);
    order.unsettle();
    return true;
  }
  const before = known(node);
  const changed = ["state", "desired", "count", "why_strong"].some((f) => f in fields && f in before && fields[f] !== before[f]);
  if (changed) announce({ ...before, ...fields });
  if (changed && before.state !== "Open" && fields.state === "Open") opens({ ...before, ...fields });
  if (order.rank.has(id) && node.matches(".tile") && !order.frozen()) {
    remember(node, fields);
    return order.promote(id);
  }
  const wrote = patch(node, fields, serverNow());
  if (changed) glow(node);
  return wrote;
}

// ---- the order, by hand

document.getElementById("moved").addEventListener("click", sortNow);
function sortNow() {
  order.now();
  filter();
}
for (const button of wall.querySelectorAll("[data-by]")) {
  button.addEventListener("click", () => {
    order.by = button.dataset.by;
    for (const each of wall.querySelectorAll("[data-by]")) each.setAttribute("aria-pressed", String(each === button));
    sortNow();
  });
}

// The dialog is asked for here, because every card that comes would else have to be given to htmx.
wall.addEventListener("click", (event) => {
  const link = event.target.closest(".force");
  if (!link || !window.htmx || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  window.htmx.ajax("GET", link.getAttribute("href"), { source: link, target: "#dialog", swap: "innerHTML" });
});

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
let words = [];
function narrow(node) {
  node.classList.toggle("filtered-out", !words.every((word) => fits(node, word)));
}
function filter() {
  words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const node of cards.values()) narrow(node);
  for (const node of order.headings.values()) {
    let next = node.nextElementSibling;
    while (next?.matches(".card.filtered-out")) next = next.nextElementSibling;
    node.classList.toggle("filtered-out", !next?.matches(".card"));
  }
  chosen();
}
function chosen() {
  for (const link of document.querySelectorAll("#providers a")) {
    const is = new URL(link.href).searchParams.get("q")?.toLowerCase() === find.value.toLowerCase() && find.value !== "";
    if (is) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
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
  } else if (event.key === ".") sortNow();
});

listen({
  onFrame: receive,
  onLive: (at) => {
    pending.still(at);
    showing.ask();
  },
  // What was received is shown whole before the page says of when it is.
  onLost: showing.finish,
  onStale: (at) => {
    for (const node of document.querySelectorAll(".asof")) say(node, clock(at, serverNow()));
  },
});
