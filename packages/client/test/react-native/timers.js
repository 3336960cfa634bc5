// Timers with a clock of their own: those of the program `hermes` run at once, whatever time they are given.
const soon = globalThis.setTimeout;
const timers = [];
let nowMs = 0;
let count = 0;
let isPumping = false;

function pump() {
  isPumping = true;
  soon(() => {
    isPumping = false;
    const [timer] = timers.splice(0, 1);
    if (timer) {
      nowMs = timer.atMs;
      timer.call();
    }
    if (timers.length && !isPumping) pump();
  });
}

globalThis.setTimeout = (call, delayMs = 0) => {
  const timer = { id: ++count, atMs: nowMs + delayMs, call };
  const next = timers.findIndex(({ atMs }) => atMs > timer.atMs);
  timers.splice(next < 0 ? timers.length : next, 0, timer);
  if (!isPumping) pump();
  return timer.id;
};
globalThis.clearTimeout = (id) => {
  const at = timers.findIndex((timer) => timer.id === id);
  if (at >= 0) timers.splice(at, 1);
};
globalThis.performance = { now: () => nowMs };
globalThis.console ??= { assert() {}, error: print, info: print, log: print, warn() {} };
