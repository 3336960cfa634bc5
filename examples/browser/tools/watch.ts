/** Watches a page of the price table from inside: frames, long tasks, and how often the table changes in a frame. */

export interface Watched {
  seconds: number;
  frames: number;
  /** Frames in which the table was changed more than once. Late frames do not count: a timer takes their place. */
  doubled: number;
  /** Times that the table was changed. */
  renders: number;
  /** Tasks of the main thread of 50 ms and more. */
  longTasks: number;
  longestTaskMs: number;
  /** The number of the newest update that is shown, at the start and at the end. */
  newest: [number, number];
}

/** To be run in the page. */
export function watchTable(seconds: number): Promise<Watched> {
  return new Promise((resolve) => {
    /** After this time without a frame @tidewire/react renders by a timer. */
    const FRAME_MS_MAX = 100;
    const body = document.querySelector("tbody")!;
    const newest = () => Math.max(0, ...Array.from(body.rows, (row) => Number(row.cells[2]?.textContent)));
    const watched = { seconds, frames: 0, doubled: 0, renders: 0, longTasks: 0, longestTaskMs: 0 };
    const first: number = newest();
    let inFrame = 0;
    let frameMs = performance.now();
    // React changes the document in one go; the observer is called once after each.
    const changes = new MutationObserver(() => {
      watched.renders += 1;
      inFrame += 1;
      if (inFrame === 2 && performance.now() - frameMs < FRAME_MS_MAX) watched.doubled += 1;
    });
    changes.observe(body, { subtree: true, childList: true, characterData: true });
    const tasks = new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) {
        watched.longTasks += 1;
        watched.longestTaskMs = Math.max(watched.longestTaskMs, duration);
      }
    });
    tasks.observe({ type: "longtask" });
    const startMs = performance.now();
    const frame = () => {
      watched.frames += 1;
      inFrame = 0;
      frameMs = performance.now();
      if (performance.now() - startMs < seconds * 1000) return void requestAnimationFrame(frame);
      changes.disconnect();
      tasks.disconnect();
      watched.seconds = (performance.now() - startMs) / 1000;
      resolve({ ...watched, newest: [first, newest()] as [number, number] });
    };
    requestAnimationFrame(frame);
  });
}
