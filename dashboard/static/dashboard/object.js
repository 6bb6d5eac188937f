// The tabs of an object's page: anchors, so that each is an address; CSS shows the one that is named.
const tabs = [...document.querySelectorAll(".tabs a")];

function mark(seen = true) {
  const named = tabs.find((tab) => tab.hash === location.hash) ?? tabs[0];
  for (const tab of tabs) {
    if (tab === named) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  // A chart that was drawn while it could not be seen has no width yet.
  if (seen) window.dispatchEvent(new Event("resize"));
}

for (const tab of [...tabs, ...document.querySelectorAll("[data-tab]")]) {
  tab.addEventListener("click", (event) => {
    event.preventDefault();
    location.replace(tab.hash);
    scrollTo(0, 0); // the anchor alone would scroll the head of the page away
  });
}
addEventListener("hashchange", () => mark());
mark();

// Instances of one kind alone.
let kind = "";
function narrow() {
  for (const each of document.querySelectorAll("[data-show]")) each.setAttribute("aria-pressed", String(each.dataset.show === kind));
  for (const row of document.querySelectorAll("[data-sync]")) row.hidden = kind !== "" && row.dataset.sync !== kind;
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-show]");
  if (!button) return;
  kind = button.dataset.show;
  narrow();
});

// A page that was read anew knows nothing of which part is shown, and which instances.
document.addEventListener("switchgear:read", () => {
  mark(false);
  narrow();
});

// A menu closes when one looks elsewhere.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
