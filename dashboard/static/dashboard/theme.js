// Before the first paint: the stored theme, else the system's (no attribute).
try {
  const stored = localStorage.getItem("switchgear-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch {
  // Storage is off: the system's theme it is.
}
