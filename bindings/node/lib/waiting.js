"use strict";

// Promises of what happens later.

/** The longest time of a timer of Node. */
const TIMER_MAX_MS = 2_147_483_647;

function deferred() {
  let resolve;
  const promise = new Promise((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a promise, at most for some time. */
async function within(promise, ms) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([promise, late]);
  clearTimeout(timer);
}

module.exports = { deferred, pause, TIMER_MAX_MS, turn, within };
