// A page other than the wall, live: the feed says that there is news, the page reads itself anew and
// takes over what differs. Invariant: between a word of the feed and the reading that answers it the
// page is never said to be current; a reading begins after the word, so nothing falls between two.
import { isEdited, morph } from "./morph.js";
import { listen, live, stale } from "./standing.js";

const APART_MS = 2000;
const SHARE = 4; // a slow server is asked less often, but at least every
const LONGEST_MS = 8000;
const ANSWER_MS = 8000;
const BEHIND_MS = 10000;

const body = document.body;
const main = document.getElementById("main");
let newest = null; // the feed's newest word
let shown = null; // the word that the page on screen has answered
let currentAt = body.dataset.now; // up to when what is shown is known to be so
let reading = false;
let due = 0;
let behindSince = null;
let connected = false;
let ended = false; // logged out, or the thing is gone: there is nothing to read

function word(frame) {
  return `${frame.epoch} ${frame.version}`;
}

function heard(frame) {
  newest = frame;
  if (behindSince === null && word(frame) !== shown) behindSince = performance.now();
  pump();
}

function current(at) {
  connected = true;
  if (newest !== null && word(newest) === shown) live((currentAt = at));
  else if (document.hidden || body.classList.contains("stale")) return; // until it has been read
  else if (behindSince === null || performance.now() - behindSince < BEHIND_MS) live(currentAt);
  else stale("The server is too slow to keep this page current.");
}

async function pump() {
  if (reading || ended || document.hidden || newest === null || word(newest) === shown) return;
  const wait = due - performance.now();
  reading = true;
  if (wait > 0) await new Promise((resolve) => { setTimeout(resolve, wait); });
  const asked = word(newest);
  const began = performance.now();
  try {
    const fresh = await read();
    take(fresh);
    shown = asked;
    currentAt = fresh.body.dataset.now;
    behindSince = word(newest) === asked ? null : performance.now();
    if (connected) live(currentAt);
  } catch (error) {
    ended = error.act !== undefined;
    if (ended) stale(error.message, null, error.act);
  }
  due = performance.now() + Math.min(LONGEST_MS, Math.max(APART_MS, (performance.now() - began) * SHARE));
  reading = false;
  pump();
}

async function read() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(ANSWER_MS) });
  if (answer.redirected) throw Object.assign(new Error("You are logged out."), { act: "login" });
  if (answer.status === 404) throw Object.assign(new Error("This is not there any more."), { act: "reload" });
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

function take(fresh) {
  // A chart that was not there needs its scripts.
  if (fresh.getElementById("figure") && !document.getElementById("figure") && !document.querySelector("dialog[open]") && ![...main.querySelectorAll("form")].some(isEdited)) {
    location.reload();
    return;
  }
  const left = morph(main, fresh.getElementById("main"));
  for (const where of [".crumbs", "title", ".rail"]) {
    const [old, now] = [document.querySelector(where), fresh.querySelector(where)];
    if (old && now && old.innerHTML !== now.innerHTML) morph(old, now);
  }
  for (const [form, twin] of left) changedUnder(form, twin);
  window.htmx?.process(main);
  document.dispatchEvent(new Event("switchgear:read"));
}

// Somebody saved what is being edited here: that is said at once, and saving will show both.
function changedUnder(form, twin) {
  const [ours, theirs] = [form, twin].map((one) => one.querySelector('input[name="version"]')?.getAttribute("value"));
  if (ours === undefined || ours === theirs || form.querySelector(".changed-under")) return;
  const line = document.createElement("p");
  line.className = "note changed-under";
  line.dataset.keep = "";
  line.setAttribute("role", "alert");
  line.textContent = "Somebody saved a change while you were editing. Yours is kept here; Save shows both side by side before anything is overwritten.";
  form.prepend(line);
}

// A form on a page that is not current is read again before it is sent.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!body.classList.contains("stale") || !main.contains(form) || form.method !== "post" || form.dataset.reread !== undefined) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  try {
    take(await read());
    form.dataset.reread = "";
    form.requestSubmit(event.submitter);
  } catch {
    stale("Nothing was sent: this page cannot be read again.");
  } finally {
    delete form.dataset.reread;
  }
}, true);

document.addEventListener("visibilitychange", () => {
  behindSince = performance.now();
  pump();
});
listen({ onFrame: heard, onLive: current, onStale: () => { connected = false; }, onRetry: pump });
