// Live or not, on every page that updates: the pulse, the banner, the age, the colours that fade.
// Invariant: a page says Live only while the server's word is less than 10 s old and what is shown
// is what the server last said; `stale` on the body is the one sign that everything else obeys.
import { Live } from "./live.js";
import { serverNow } from "./page.js";
import { say } from "./patch.js";
import { age, clock } from "./words.js";

const body = document.body;
const pulse = document.querySelector(".pulse");
const banner = document.getElementById("stale");
let shownAt = Date.parse(body.dataset.at || body.dataset.now); // of the data on screen
let lost = null; // {why, retryAt, act} while it is not now
let begun = false; // the first word has come
let onStale = () => {};

export function live(at) {
  shownAt = Date.parse(at);
  lost = null;
  begun = true;
  pulse.dataset.live = "on";
  body.classList.remove("stale");
  banner.hidden = true;
  state();
}

export function stale(why, retryAt = null, act = "") {
  const first = lost === null;
  lost = { why, retryAt, act };
  begun = true;
  pulse.dataset.live = "lost";
  body.classList.add("stale");
  banner.hidden = false;
  if (first) onStale(shownAt);
  say(document.getElementById("reconnect"), act === "login" ? "Log in again" : act === "reload" ? "Load again" : "Reconnect now");
  state();
}

function state() {
  if (!begun) return;
  const old = age((serverNow() - shownAt) / 1000);
  const aged = document.getElementById("age");
  if (aged) say(aged, old);
  if (lost === null) {
    say(document.getElementById("pulse"), `Live · data ${old} old`);
    return;
  }
  const time = clock(shownAt, serverNow());
  say(document.getElementById("pulse"), `Not live · data as of ${time}`);
  say(document.getElementById("stale-what"), `${lost.why} Data as of ${time}, ${old} ago.`);
  say(document.getElementById("stale-more"), "Nothing below is current. Gateways keep running on their own; overrides still end on time.");
  const seconds = lost.retryAt === null ? 0 : Math.ceil((lost.retryAt - performance.now()) / 1000);
  say(document.getElementById("stale-retry"), seconds > 0 ? `Retry in ${seconds} s.` : lost.act ? "" : "Asking again.");
}

// Opens the page's socket. `onLive` decides what the server's time means for what is shown; `onLost` is
// called before the page says that it is not now, `onStale` when it has begun to say so.
export function listen({ onFrame, onLive = live, onLost = () => {}, onStale: told = () => {}, onRetry = () => {} }) {
  onStale = told;
  const lose = (...given) => {
    onLost();
    stale(...given);
  };
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const connection = new Live(`${scheme}//${location.host}${body.dataset.socket}`, { onFrame, onLive, onLost: lose });
  document.getElementById("reconnect").addEventListener("click", () => {
    if (lost?.act) location.reload();
    else connection.connect();
    onRetry();
  });
  setInterval(state, 500);
}
