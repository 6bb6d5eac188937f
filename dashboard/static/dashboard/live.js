// The wall's socket. Invariant: whatever is on screen is either at most 10 s old, by the age that the
// server gives its data and the time since it did, or `onLost` has been called; a frame is handed on
// only if it is newer than what is shown. Whom the server has shut out (logged out, another role)
// stays so until the page is loaded again.
const SILENCE_MS = 10000;
const OLD_DATA_MS = 10000;
const CANNOT_READ = "The server cannot read its database.";
const IS_OLD = "What the server reads is more than 10 s old.";
const WAITS_MS = [1000, 2000, 4000, 8000, 15000];

export class Live {
  constructor(url, { onFrame, onLive, onLost }) {
    Object.assign(this, { url, onFrame, onLive, onLost });
    this.socket = null;
    this.heard = performance.now();
    this.born = null; // when what is shown was read, on this clock; null: it is said to be old
    this.failures = 0;
    this.retryAt = null;
    this.shown = null; // {epoch, version, at} of what was handed on, to be on screen at once or soon
    this.based = false; // this connection's patches continue what is on screen
    this.ended = false; // shut out: this page was made for who may no longer look, or for another role
    setInterval(() => this.watch(), 500);
    document.addEventListener("visibilitychange", () => this.seen());
    window.addEventListener("offline", () => this.drop("This computer is offline."));
    window.addEventListener("online", () => this.connect());
    this.connect();
  }

  connect() {
    if (this.ended || (this.socket && this.socket.readyState <= WebSocket.OPEN)) return;
    this.retryAt = null;
    this.heard = performance.now();
    this.based = false;
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.addEventListener("message", (event) => {
      if (socket === this.socket) this.receive(event.data);
    });
    socket.addEventListener("close", (event) => {
      if (socket === this.socket) this.closed(event.code);
    });
  }

  receive(text) {
    this.heard = performance.now();
    const frame = JSON.parse(text);
    if (frame.type === "ping") {
      if (frame.lost || this.based) this.said(frame);
      return;
    }
    if (frame.type !== "patch") this.based = !this.older(frame);
    if (!this.based) {
      // This server has seen less than what is on screen: ask again until it has caught up.
      setTimeout(() => this.resync(), 1000);
      return;
    }
    this.onFrame(frame);
    this.said(frame);
  }

  // The server is there, but its data may be old: what was received is shown, and not as the present.
  said(frame) {
    if (this.based) this.shown = { epoch: frame.epoch, version: frame.version, at: frame.at };
    this.born = this.heard - frame.age_s * 1000;
    if (frame.lost) this.old(CANNOT_READ);
    else if (performance.now() - this.born > OLD_DATA_MS) this.old(IS_OLD);
    else this.live(frame.at);
  }

  live(at) {
    this.failures = 0;
    this.onLive(at);
  }

  old(why) {
    this.born = null;
    this.onLost(why, null);
  }

  older(frame) {
    const shown = this.shown;
    if (!shown || shown.epoch !== frame.epoch) return false;
    return frame.version < shown.version || (frame.version === shown.version && frame.at < shown.at);
  }

  resync() {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send('{"type":"resync"}');
  }

  closed(code) {
    this.ended = code === 4401 || code === 4403;
    if (code === 4401) return this.onLost("You are logged out.", null, "login");
    if (code === 4403) return this.onLost("Your role has changed.", null, "reload");
    const wait = WAITS_MS[Math.min(this.failures, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2);
    this.failures += 1;
    this.born = null;
    this.retryAt = performance.now() + wait;
    this.onLost("Live connection lost.", this.retryAt);
  }

  drop(why) {
    if (this.ended) return; // what has been said says more
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.failures += 1;
    this.born = null;
    this.retryAt = performance.now() + WAITS_MS[0];
    this.onLost(why, this.retryAt);
  }

  watch() {
    if (this.ended) return;
    const now = performance.now();
    if (this.retryAt !== null && now >= this.retryAt) this.connect();
    else if (this.socket && now - this.heard > SILENCE_MS) this.drop("The server has been silent for 10 s.");
    else if (this.retryAt === null && this.born !== null && now - this.born > OLD_DATA_MS) this.old(IS_OLD);
  }

  // A hidden tab's timers and sockets sleep: what it shows on return is asked for anew.
  seen() {
    if (document.visibilityState !== "visible") return;
    this.watch();
    if (this.socket?.readyState === WebSocket.OPEN) this.resync();
    else this.connect();
  }
}
