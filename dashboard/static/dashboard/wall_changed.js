// What has changed is seen and heard: its card glows for 1.2 s, and the live region says it.
// Invariant: the glow is two stages, not sixty paints a second, and always ends; what a screen reader
// hears comes at most once a second, the worst first.
import { say } from "./patch.js";

const GLOW_MS = 600; // each of two stages
const SAID = 5; // circuits by name, in one announcement

let lit = [];
const litAt = new WeakMap();
export function glow(node) {
  lit.push(node);
}

// What a slice has lit.
export function glowing() {
  if (lit.length === 0) return;
  const [nodes, since] = [lit, {}];
  lit = [];
  for (const node of nodes) {
    litAt.set(node, since);
    node.classList.remove("fading");
    node.classList.add("glow");
  }
  const each = (change) => () => {
    for (const node of nodes) if (litAt.get(node) === since) change(node.classList);
  };
  setTimeout(each((classes) => classes.add("fading")), GLOW_MS);
  setTimeout(each((classes) => classes.remove("glow", "fading")), 2 * GLOW_MS);
}

const said = new Map();
export function announce(fields) {
  said.set(fields.id, `${fields.model ?? ""} ${fields.region ?? ""} ${fields.state ?? ""} ${fields.count ?? ""}`.trim());
}
setInterval(() => {
  if (said.size === 0) return;
  const more = said.size > SAID ? `; ${said.size - SAID} more changed` : "";
  say(document.getElementById("say"), [...said.values()].slice(0, SAID).join("; ") + more);
  said.clear();
}, 1000);
