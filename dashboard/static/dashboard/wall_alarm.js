// Rings when a circuit opens by itself: one short sound, and a notification when the page is hidden.
// Invariant: only who has switched it on hears it, at most once in ten seconds, and never while
// somebody has the incident; what a hand has opened is no news. Nothing is fetched for it.
const RING_MS = 10000;
const NAMED = 3;
const STORED = "switchgear-alarm";
const button = document.getElementById("alarm");

let isOn = false;
let audio = null;
let rung = -Infinity;
let timer = null;
const opened = new Map(); // since the last ring: id -> name

// A browser lets a page sound only once a person has touched it.
const isMuted = () => navigator.userActivation?.hasBeenActive === false;

function show() {
  button.setAttribute("aria-pressed", String(isOn));
  button.textContent = !isOn ? "Alarm off" : isMuted() ? "Alarm waits for a click" : "Alarm on";
}

function keep() {
  try {
    localStorage.setItem(STORED, isOn ? "on" : "off");
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
}

function wake() {
  if (!isOn || isMuted()) return;
  audio ??= new AudioContext();
  if (audio.state === "suspended") audio.resume();
  show();
}

function sound() {
  if (isMuted()) return; // it would sound when it is no news any more
  audio ??= new AudioContext();
  const now = audio.currentTime;
  const level = audio.createGain();
  level.connect(audio.destination);
  level.gain.setValueAtTime(0.0001, now);
  level.gain.exponentialRampToValueAtTime(0.2, now + 0.02);
  level.gain.exponentialRampToValueAtTime(0.0001, now + 0.5);
  const tone = audio.createOscillator();
  tone.frequency.setValueAtTime(660, now);
  tone.frequency.setValueAtTime(520, now + 0.2);
  tone.connect(level);
  tone.start(now);
  tone.stop(now + 0.5);
}

function notify(names) {
  if (document.visibilityState !== "hidden" || window.Notification?.permission !== "granted") return;
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  const told = new Notification(`Open: ${names.slice(0, NAMED).join(", ")}${more}`, { tag: "switchgear-open" });
  told.addEventListener("click", () => window.focus());
}

const isClaimed = () => ["me", "another"].includes(document.getElementById("claim").dataset.holder);

function ring() {
  timer = null;
  const names = [...opened.values()];
  opened.clear();
  if (!isOn || names.length === 0 || isClaimed()) return;
  rung = performance.now();
  sound();
  notify(names);
}

// A circuit is Open that was not. Those of one frame, and of ten seconds, ring together.
export function opens(fields) {
  if (!isOn || (fields.desired ?? "Auto") !== "Auto") return;
  opened.set(fields.id, `${fields.model} ${fields.region}`.trim());
  timer ??= setTimeout(ring, Math.max(0, rung + RING_MS - performance.now()));
}

button.addEventListener("click", () => {
  isOn = !isOn;
  keep();
  show();
  if (!isOn) return;
  wake();
  sound(); // so that one knows it when it rings
  if (window.Notification?.permission === "default") Notification.requestPermission();
});
for (const touch of ["pointerdown", "keydown"]) document.addEventListener(touch, wake);

try {
  isOn = localStorage.getItem(STORED) === "on";
} catch {
  // Storage is off: it begins silent.
}
show();
