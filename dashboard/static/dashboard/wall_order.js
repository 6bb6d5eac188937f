// Where the cards stand: worst first, by provider or by gateway, tiles below by provider.
// Invariant: nothing moves under a pointer or the focus; what has opened gets its card at once, and
// what only changes its rank moves at most once a second, by the fewest moves, a few at a time.
import { known, say } from "./patch.js";

const SORT_MS = 1000;

export class Order {
  // `made(kind, id)` is a new node for a circuit, known to `cards`.
  constructor(cards, zones, made) {
    Object.assign(this, { cards, zones, made });
    this.newest = null; // {attention, healthy} as it was sent
    this.rank = new Map(); // id -> its place among the worst
    this.by = "worst";
    this.steps = null; // of the sorting that is going on
    this.settled = false; // all stands as it was sent
    this.sorted = -Infinity;
    this.timer = null;
    this.hovering = false;
    this.headings = new Map();
    this.tag = document.getElementById("moved");
    for (const zone of Object.values(zones)) {
      zone.addEventListener("pointerenter", () => { this.hovering = true; });
      zone.addEventListener("pointerleave", () => { this.hovering = false; this.freed(); });
      zone.addEventListener("focusout", () => setTimeout(() => this.freed()));
    }
  }

  onFree() {}

  freed() {
    if (this.newest && !this.frozen()) this.onFree();
  }

  take(order) {
    this.newest = order;
    this.rank = new Map(order.attention.map((id, place) => [id, place]));
    this.unsettle();
    if (this.frozen()) this.offer();
  }

  frozen() {
    const { card, tile } = this.zones;
    return this.hovering || card.contains(document.activeElement) || tile.contains(document.activeElement);
  }

  // One step; false when nothing is to be moved now.
  step(now) {
    if (!this.newest || this.settled || this.frozen()) return false;
    this.steps ??= this.sorting(now);
    return !this.steps.next().done;
  }

  *sorting(now) {
    this.tag.hidden = true;
    for (const id of this.newest.attention) if (this.promote(id)) yield;
    const rest = this.sorted + SORT_MS - now;
    if (rest > 0) {
      this.timer ??= setTimeout(() => { this.timer = null; this.freed(); }, rest);
    } else {
      this.sorted = now;
      yield* this.all();
      this.settled = true;
    }
    this.steps = null;
  }

  // Nodes have come or gone: what was planned with them is planned anew.
  unsettle() {
    this.steps = null;
    this.settled = false;
  }

  // At once, whoever has the pointer or the focus on them.
  now() {
    if (!this.newest) return;
    // A node that moves or is made anew loses the focus; a person's place is the circuit.
    const place = document.activeElement.closest?.("article[data-id]")?.dataset.id;
    this.tag.hidden = true;
    for (const id of this.newest.attention) this.promote(id);
    const steps = this.all();
    while (!steps.next().done);
    this.unsettle();
    this.settled = true;
    if (place !== undefined && document.activeElement === document.body) this.cards.get(place)?.focus({ preventScroll: true });
  }

  // A tile that needs attention becomes a card behind the next worse one. True when it did.
  promote(id) {
    const node = this.cards.get(id);
    const place = this.rank.get(id);
    if (!node || place === undefined || node.parentNode === this.zones.card) return false;
    let before = null;
    for (let i = place - 1; i >= 0 && before === null; i -= 1) {
      const worse = this.cards.get(this.newest.attention[i]);
      if (worse?.parentNode === this.zones.card) before = worse;
    }
    const fresh = this.ofKind(id, "card");
    this.zones.card.insertBefore(fresh, before ? before.nextSibling : this.zones.card.firstChild);
    document.getElementById("calm").hidden = true;
    return true;
  }

  *all() {
    const nodes = this.headed(this.wanted().filter((id) => this.cards.has(id)));
    for (const node of this.zones.card.querySelectorAll(".heading")) if (!nodes.includes(node)) node.remove();
    yield* inOrder(this.zones.card, nodes);
    for (const group of this.newest.healthy) {
      const tiles = this.groupOf(group.provider, group.note).querySelector(".tiles");
      const there = [];
      for (const id of group.ids) {
        const node = this.cards.get(id);
        if (!node) continue;
        const isTile = node.classList.contains("tile");
        there.push(isTile ? node : this.ofKind(id, "tile"));
        if (!isTile) yield;
      }
      yield* inOrder(tiles, there);
    }
    yield* inOrder(this.zones.tile, this.newest.healthy.map((group) => this.groupOf(group.provider)));
    document.getElementById("calm").hidden = this.newest.attention.length > 0;
  }

  ofKind(id, kind) {
    const node = this.cards.get(id);
    if (node.classList.contains(kind)) return node;
    const fresh = this.made(kind, id);
    node.remove();
    return fresh;
  }

  groupOf(provider, note) {
    const { tile } = this.zones;
    let group = [...tile.children].find((each) => each.dataset.provider === provider);
    if (!group) {
      group = document.getElementById("group-template").content.firstElementChild.cloneNode(true);
      group.dataset.provider = provider;
      group.querySelector("b").textContent = provider;
      tile.append(group);
    }
    if (note !== undefined) say(group.querySelector("header .quiet"), note);
    return group;
  }

  wanted() {
    const ids = [...this.newest.attention];
    if (this.by !== "worst") ids.sort((a, b) => this.groupName(a).localeCompare(this.groupName(b)));
    return ids;
  }

  groupName(id) {
    const node = this.cards.get(id);
    return (node && known(node)[this.by]) ?? "";
  }

  // By provider or by gateway the cards stand under headings: a circuit under the gateway that has most of its trouble.
  headed(ids) {
    if (this.by === "worst") return ids.map((id) => this.cards.get(id));
    const nodes = [];
    let last = null;
    for (const id of ids) {
      const name = this.groupName(id);
      if (name !== last) nodes.push(this.heading(name, ids.filter((other) => this.groupName(other) === name).length));
      last = name;
      nodes.push(this.cards.get(id));
    }
    return nodes;
  }

  heading(name, number) {
    if (!this.headings.has(name)) {
      this.headings.set(name, document.getElementById("heading-template").content.firstElementChild.cloneNode(true));
    }
    const node = this.headings.get(name);
    say(node.querySelector("b"), name || "no gateway in contact");
    say(node.querySelector("span"), String(number));
    return node;
  }

  offer() {
    const shown = [...this.zones.card.querySelectorAll(".card")].map((node) => node.dataset.id);
    const want = this.wanted();
    const moving = new Set([...want.filter((id, i) => shown[i] !== id), ...shown.filter((id, i) => want[i] !== id)]);
    this.tag.hidden = moving.size === 0;
    say(this.tag, `${moving.size} ${moving.size === 1 ? "circuit" : "circuits"} would move, press . to sort`);
  }
}

// Puts nodes in order, yielding after each that had to move: those that stand in order already stay.
export function* inOrder(parent, nodes) {
  const places = new Map([...parent.children].map((node, place) => [node, place]));
  const stays = longestRising(nodes.map((node) => places.get(node) ?? -1));
  let before = null;
  for (const [i, node] of nodes.entries()) {
    const next = before ? before.nextSibling : parent.firstChild;
    before = node;
    if (stays.has(i) || node === next) continue;
    parent.insertBefore(node, next);
    yield;
  }
}

// The indexes of the longest rising row of numbers; those below 0 are in none.
function longestRising(numbers) {
  const tails = []; // tails[n]: the index of the least number that ends a row of n + 1
  const previous = new Map();
  for (const [i, number] of numbers.entries()) {
    if (number < 0) continue;
    let [low, high] = [0, tails.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[tails[middle]] < number) low = middle + 1;
      else high = middle;
    }
    previous.set(i, tails[low - 1]);
    tails[low] = i;
  }
  const found = new Set();
  for (let i = tails.at(-1); i !== undefined; i = previous.get(i)) found.add(i);
  return found;
}
