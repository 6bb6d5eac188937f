// Watches the wall from inside the page: frames, long tasks, and when a change was painted.
(() => {
  const now = () => performance.timeOrigin + performance.now();
  const seen = { frames: [], tasks: [] };
  let live = null;
  // Resolves with the milliseconds from the navigation to the first paint that says Live.
  window.__live = new Promise((resolve) => { live = resolve; });
  let wanted = null;
  window.__seen = seen;
  // Resolves with the moment (ms of the epoch) after the paint in which the circuit says Open.
  window.__opens = (id) => new Promise((resolve) => { wanted = { id, resolve }; look(); });

  const Native = window.WebSocket;
  window.WebSocket = class extends Native {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", (event) => seen.frames.push([now(), event.data.length, event.data.slice(9, 13)]));
    }
  };
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) seen.tasks.push([now(), entry.duration]);
  }).observe({ type: "longtask", buffered: true });

  // A message that is posted in a frame's callback is handled once that frame is painted.
  function painted(tell) {
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => tell(now());
      channel.port2.postMessage(null);
    });
  }
  function look() {
    if (live !== null && document.querySelector(".pulse[data-live='on']")) {
      const resolve = live;
      live = null;
      painted((at) => resolve(at - performance.timeOrigin));
    }
    if (wanted === null) return;
    const card = document.querySelector(`.card[data-id="${wanted.id}"]`);
    if (card?.querySelector(".is b").textContent !== "Open") return;
    const { resolve } = wanted;
    wanted = null;
    painted(resolve);
  }
  new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
})();
