// What the server has said and the screen does not show yet. No DOM here.
// Invariant: taking everything out, in any pieces, shows what applying every frame in order would
// have shown; of a field only its newest value waits; and `shown()` names a frame only when nothing
// of it, or of one before it, is still waiting.
const OVERDUE_FRAMES = 2; // so many frames on, what waits goes before what is worse

export class Pending {
  constructor() {
    this.cards = new Map(); // id -> {fields, whole, turn}; whole: what it does not name is taken back
    this.gone = new Set();
    this.first = null; // what is shown before any card: strip, titles, density, gateways
    this.snapshot = false; // what is not in it is taken away
    this.turn = 0;
    this.heads = []; // [turn, at] of what may be said to be shown, oldest first
  }

  get size() {
    return this.cards.size + this.gone.size + (this.first === null ? 0 : 1);
  }

  add(frame) {
    this.turn += 1;
    if (frame.type === "snapshot") {
      this.cards.clear();
      this.gone.clear();
      this.first = null;
      this.snapshot = true;
    }
    this.first ??= { turn: this.turn, strip: {}, titles: {}, gateways: {}, gateways_gone: [] };
    const { first } = this;
    Object.assign(first.strip, frame.strip);
    Object.assign(first.titles, frame.titles);
    if (frame.density) first.density = frame.density;
    for (const [id, fields] of Object.entries(frame.gateways ?? {})) {
      first.gateways[id] = { ...first.gateways[id], ...fields };
    }
    for (const id of frame.gateways_gone ?? []) {
      delete first.gateways[id];
      first.gateways_gone.push(id); // taken away before any comes: one that comes again is a new one
    }
    for (const [id, fields] of Object.entries(frame.cards ?? {})) this.change(id, fields, frame.type === "snapshot");
    for (const id of frame.cards_gone ?? []) {
      this.cards.delete(id);
      this.gone.add(id);
    }
    this.heads.push([this.turn, frame.at]);
  }

  change(id, fields, isWhole) {
    const waits = this.cards.get(id);
    // One that went and came again has nothing of what it was.
    const whole = isWhole || this.gone.delete(id) || (waits?.whole ?? false);
    this.cards.set(id, { fields: { ...waits?.fields, ...fields }, whole, turn: waits?.turn ?? this.turn });
  }

  // Nothing changed, and it is this late.
  still(at) {
    this.heads.push([this.turn, at]);
  }

  // The worst circuits first, but before them whatever has waited for long.
  ids(rank) {
    const late = this.turn - OVERDUE_FRAMES;
    return [...this.cards]
      .map(([id, { turn }]) => [id, turn <= late ? turn - this.turn : 1, rank.get(id) ?? Infinity])
      .sort((a, b) => a[1] - b[1] || (a[2] < b[2] ? -1 : a[2] > b[2] ? 1 : 0))
      .map(([id]) => id);
  }

  take(id) {
    const waits = this.cards.get(id);
    this.cards.delete(id);
    return waits;
  }

  takeFirst() {
    const found = this.first;
    if (found === null) return null;
    const taken = { ...found, snapshot: this.snapshot ? new Set(this.cards.keys()) : null, gone: this.gone };
    this.first = null;
    this.gone = new Set();
    this.snapshot = false;
    return taken;
  }

  // The newest time up to which all is on screen; null: not newer than was said before.
  shown() {
    let oldest = this.first?.turn ?? Infinity;
    for (const { turn } of this.cards.values()) oldest = Math.min(oldest, turn);
    let at = null;
    while (this.heads.length > 0 && this.heads[0][0] < oldest) at = this.heads.shift()[1];
    return at;
  }
}
