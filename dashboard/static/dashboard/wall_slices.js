// Runs work in slices between two paints, so that a frame of two hundred cards is never one long task:
// what a slice writes is styled, laid out and painted in the same task.
// Invariant: work that has begun goes on until it says that nothing is left; in a page that nobody
// sees, or whose frames do not come, too. `finish()` does what is left at once.
const SLICE_MS = 6; // about as long again is spent on style, layout and paint of it
const LEAST = 4; // units of a slice that a busy machine has interrupted
const MOST = 10; // units that the browser has to lay out and paint
const UNSEEN_MS = 250; // without a frame for so long

// `work()` does one unit and answers what it leaves to the browser, 0 or 1; null when nothing is left.
// `ended(all)` follows each slice.
export function slices(work, ended) {
  let frame = 0;
  let timer = 0;

  function run(until, most) {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = timer = 0;
    let weight = 0;
    for (let units = 0; weight < most && (units < LEAST || performance.now() < until); units += 1) {
      const left = work();
      if (left === null) return ended(true);
      weight += left;
    }
    ask();
    return ended(false);
  }

  function slice() {
    if (document.visibilityState === "hidden") finish();
    else run(performance.now() + SLICE_MS, MOST);
  }

  function ask() {
    if (timer !== 0) return;
    frame = requestAnimationFrame(slice);
    timer = setTimeout(slice, UNSEEN_MS);
  }

  function finish() {
    run(Infinity, Infinity);
  }

  return { ask, finish };
}
