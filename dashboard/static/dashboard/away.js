// The page that stands while the database is away asks whether it is back, and then loads itself.
const SECONDS = 3;

async function back() {
  try {
    return (await fetch("/readyz", { cache: "no-store" })).ok;
  } catch {
    return false; // The web process is away too.
  }
}

async function wait() {
  if (await back()) location.reload();
  else setTimeout(wait, SECONDS * 1000 * (1 + Math.random() / 2));
}
setTimeout(wait, SECONDS * 1000);
