// What every page does: the theme, ticking times, the dialog, the find key.
import { age, today, useTimes, worded, zoneWord } from "./words.js";
import { morph } from "./morph.js";
import { say, tick } from "./patch.js";

const body = document.body;
const zone = body.dataset.zone || "UTC";
const MODES = ["zone", "utc", "age"];
let times = stored("switchgear-times", MODES) ?? "zone";
useTimes(times, zone);

// What this browser remembers; storage may be off, then each page begins anew.
function stored(name, known) {
  try {
    return known.find((value) => value === localStorage.getItem(name));
  } catch {
    return undefined;
  }
}

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

// Every clock time again, when they are to be read in another way.
function showTimes() {
  useTimes(times, zone);
  const now = serverNow();
  for (const node of document.querySelectorAll("time[data-f='clock']")) {
    const at = node.getAttribute("datetime");
    if (at) say(node, worded("clock", Date.parse(at), now));
  }
  for (const node of document.querySelectorAll("[data-zone-name]")) say(node, times === "utc" ? "UTC" : zone);
  const button = document.getElementById("times");
  if (!button) return;
  button.hidden = false;
  say(button, zoneWord(now));
  button.setAttribute("aria-label", `Times are shown ${{ zone: `in ${zone}`, utc: "in UTC", age: "as ages" }[times]}. Change it`);
}
if (body.dataset.past === undefined) {
  showTimes();
  // What was read anew came in the person's zone.
  document.addEventListener("switchgear:read", showTimes);
  document.getElementById("times")?.addEventListener("click", () => {
    times = MODES[(MODES.indexOf(times) + 1) % MODES.length];
    try {
      localStorage.setItem("switchgear-times", times);
    } catch {
      // Storage is off: the choice lasts as long as the page.
    }
    showTimes();
  });
}

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
// A section that asks for itself again is changed node by node: the focus and a chosen time stay. Its
// answer may come after the dialog was closed, and must not open it again.
body.addEventListener("htmx:beforeSwap", (event) => {
  const { target, requestConfig, serverResponse } = event.detail;
  if (target !== dialog || !requestConfig.elt.matches("[hx-trigger^=every]")) return;
  event.detail.shouldSwap = false;
  if (!dialog.contains(requestConfig.elt)) return;
  morph(dialog, new DOMParser().parseFromString(serverResponse, "text/html").body);
  window.htmx.process(dialog);
});
body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== dialog) return;
  if (!dialog.open) {
    dialog.showModal();
    // Where nothing is chosen yet, that is the question; else it is why.
    dialog.querySelector("select:invalid, #reason")?.focus();
  } else if (document.activeElement === body || document.activeElement === dialog) {
    // What had the focus is gone: what is said now has it, and Tab goes on from there.
    const said = dialog.querySelector("[role=alert], #dialog-title");
    said?.setAttribute("tabindex", "-1");
    said?.focus();
  }
});
// A form that was refused answers 4xx on a page of its own; in the dialog its words are shown.
body.addEventListener("htmx:responseError", (event) => {
  if (aside(event)) return;
  const gone = event.detail.xhr.status === 403 || event.detail.xhr.redirected;
  fail(gone ? "This was refused. Log in again and repeat it." : `The server answered ${event.detail.xhr.status}. Nothing is known to have changed.`);
});
body.addEventListener("htmx:sendError", (event) => {
  if (!aside(event)) fail("The server cannot be reached. Nothing is known to have changed.");
});

// What is told beside a form is no act: where it cannot be asked, it says so there and stops nobody.
function aside(event) {
  const place = event.detail.elt.closest("[data-aside]");
  if (place) place.textContent = place.dataset.aside;
  return place !== null;
}

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
const labels = new WeakMap();
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  const text = source.value ?? source.textContent;
  const done = await (navigator.clipboard?.writeText(text).then(() => true, () => false)) || copied(text, button);
  if (!labels.has(button)) labels.set(button, [...button.childNodes]);
  button.replaceChildren(done ? "Copied" : "Not copied");
  setTimeout(() => {
    if (labels.has(button)) button.replaceChildren(...labels.get(button));
    labels.delete(button);
  }, 1500);
});

// Without https a page has no clipboard of its own, and what is copied may not be on the page to be selected.
function copied(text, button) {
  const area = document.createElement("textarea");
  area.className = "unseen";
  area.value = text;
  (button.closest("dialog") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  button.focus();
  return done;
}

const ROOMS = { w: "/", i: "/incident", c: "/circuits", g: "/gateways", o: "/overrides", b: "/budgets", p: "/providers", r: "/report", a: "/audit" };
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
  } else if (event.key === "?") help();
  else if (event.key === "t") document.getElementById("times")?.click();
  else if ((event.key === "j" || event.key === "k") && !document.getElementById("wall")) step(event.key === "j" ? 1 : -1);
  else press(event);
  going = event.key === "g" ? performance.now() : -Infinity;
});

// The keys of this page alone stand on what they press, so that the help cannot say another thing.
function press(event) {
  const node = [...document.querySelectorAll("[data-key]")].find((each) => each.dataset.key === event.key && !each.disabled);
  if (!node) return;
  event.preventDefault();
  node.closest("details")?.setAttribute("open", "");
  node.click();
}

// j and k go through the links of what is listed; Enter follows one.
function step(by) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.offsetParent !== null);
  const links = rows.map((row) => row.querySelector("a[href]")).filter(Boolean);
  const at = links.indexOf(document.activeElement);
  links[at === -1 ? 0 : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

function help() {
  const keys = document.getElementById("keys");
  if (!keys) return;
  const own = keys.querySelector("#own-keys");
  const lines = [...document.querySelectorAll("[data-key][data-says]")].filter((each) => !each.disabled).map((each) => {
    const term = document.createElement("dt");
    const key = document.createElement("kbd");
    key.textContent = each.dataset.key;
    term.append(key);
    const says = document.createElement("dd");
    says.textContent = each.dataset.says;
    return [term, says];
  });
  own.replaceChildren(...lines.flat());
  own.previousElementSibling.hidden = own.hidden = lines.length === 0;
  keys.showModal();
}

export function typing(node) {
  return node.closest?.("input, textarea, select, [contenteditable]") !== null || dialog.open;
}

export { age };
