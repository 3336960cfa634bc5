/** The machine's monotonic clock, which is the same in all processes. */

/** Nanoseconds; a double distinguishes them for a hundred days after the machine's start, and then every second one. */
export function clockNs(): number {
  return Number(process.hrtime.bigint());
}

/** Waits until a time of {@link clockNs}. */
export function sleepUntil(ns: number): Promise<void> {
  const waitMs = (ns - clockNs()) / 1e6;
  return waitMs <= 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, waitMs));
}

export const NS_PER_S = 1e9;
