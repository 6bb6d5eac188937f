// What every page does: the theme, ticking times, the dialog, the find key.
import { age, today, useZone, worded } from "./words.js";
import { say, tick } from "./patch.js";

const body = document.body;
useZone(body.dataset.zone || "UTC");

// Time on screen is the server's: this browser's clock may be wrong by minutes.
const offset = (Date.parse(body.dataset.now) || Date.now()) - Date.now();
export const serverNow = () => Date.now() + offset;

// A page of the past stands still.
if (body.dataset.past === undefined) setInterval(() => {
  tick(serverNow());
  const now = document.getElementById("now");
  if (now) say(now, today(serverNow()));
  const ends = document.querySelector("#force-form [data-ends]:checked");
  if (ends) say(document.getElementById("ends-at"), worded("clock", serverNow() + ends.value * 60e3, serverNow()));
}, 1000);

document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark"
    || (root.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("switchgear-theme", root.dataset.theme);
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
});

const dialog = document.getElementById("dialog");
let opener = null;

body.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.target === dialog && !dialog.open) opener = document.activeElement;
});
body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== dialog) return;
  if (!dialog.open) {
    dialog.showModal();
    dialog.querySelector("#reason")?.focus();
  }
});
// A form that was refused answers 4xx on a page of its own; in the dialog its words are shown.
body.addEventListener("htmx:responseError", (event) => {
  const gone = event.detail.xhr.status === 403 || event.detail.xhr.redirected;
  fail(gone ? "This was refused. Log in again and repeat it." : `The server answered ${event.detail.xhr.status}. Nothing is known to have changed.`);
});
body.addEventListener("htmx:sendError", () => {
  fail("The server cannot be reached. Nothing is known to have changed.");
});

function fail(text) {
  if (!dialog.open) dialog.showModal();
  let line = dialog.querySelector(".fault.sent");
  if (!line) {
    line = document.createElement("p");
    line.className = "fault sent";
    line.setAttribute("role", "alert");
    (dialog.querySelector(".sheet-body") ?? dialog).prepend(line);
  }
  line.textContent = text;
}

dialog.addEventListener("close", () => {
  dialog.replaceChildren();
  opener?.focus?.();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
  const close = event.target.closest("[data-close]");
  if (close) {
    // "Back to the wall" on the wall itself is only closing.
    if (close.tagName !== "A" || new URL(close.href).pathname === location.pathname) {
      event.preventDefault();
      dialog.close();
    }
  }
});
// Asks the dialog's questions again with what is chosen in it.
function preview(form) {
  return window.htmx.ajax("POST", "/overrides/preview", { source: form, target: dialog, swap: "innerHTML", values: Object.fromEntries(new FormData(form)) });
}
document.addEventListener("change", (event) => {
  if (!event.target.matches?.("[data-preview]")) return;
  const form = event.target.form;
  if (window.htmx && dialog.contains(form)) {
    const focus = [event.target.name, event.target.value];
    preview(form).then(() => dialog.querySelector(`[name="${focus[0]}"]:checked, select[name="${focus[0]}"]`)?.focus());
  } else {
    form.action = "/overrides/preview";
    form.submit();
  }
});
// What a hand would do was asked while the page was live; on one that is not it is asked again, and
// the person presses once more, having seen it. (htmx gives a new form the attributes of the old one
// for a moment, so what was asked again is remembered here.)
const asked = new WeakSet();
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.id !== "force-form" || !dialog.contains(form) || !body.classList.contains("stale") || asked.has(form)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  preview(form).then(() => {
    const again = dialog.querySelector("#force-form");
    if (!again || again === form) return;
    asked.add(again);
    fail("Nothing is recorded yet: this page was not live, so what it affects has just been asked again. Press once more to force it.");
  }, () => {});
}, true);

// Copying says that it did, in the button, because a clipboard shows nothing.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Press Ctrl C";
  }
  setTimeout(() => { button.textContent = words; }, 1500);
});

const ROOMS = { w: "/", i: "/incident", c: "/circuits", o: "/overrides", b: "/budgets", a: "/audit" };
// When g was pressed; never, at first: a page is younger than the time that g waits for its second key.
let going = -Infinity;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (performance.now() - going < 1500 && ROOMS[event.key]) {
    event.stopImmediatePropagation();
    location.assign(ROOMS[event.key]);
  } else if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find")?.focus();
  } else if (event.key === "?") document.getElementById("keys")?.showModal();
  going = event.key === "g" ? performance.now() : -Infinity;
});

export function typing(node) {
  return node.closest?.("input, textarea, select, [contenteditable]") !== null || dialog.open;
}

export { age };
