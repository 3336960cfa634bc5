/** Limits of a queue. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";

export interface QueueLimits {
  /** Messages at most. Default 100,000. */
  messagesMax: number;
  /** Bytes of their payloads at most. Default 64 MiB. */
  bytesMax: number;
  /** How long a message is kept that was not sent, in milliseconds; 0 for ever. Default a day. */
  ageMaxMs: number;
  /** Messages that may be without an acknowledgement at a time. Default 1,024. */
  window: number;
  /**
   * The handling of messages of which it is not known whether the server accepted them, because it has forgotten
   * this client: `drop` reports them (each arrives at most once), `resend` sends them again and reports them
   * (each arrives at least once). Default `drop`.
   */
  uncertain: "drop" | "resend";
}

/** These limits, and the defaults of the others. Throws `INVALID_OPTION` for one that there is not. */
export function limitsOf(limits: Partial<QueueLimits>): QueueLimits {
  const unknown = Object.keys(limits).find((name) => !(name in DEFAULTS));
  if (unknown === undefined) return { ...DEFAULTS, ...limits };
  throw new TidewireError(
    "INVALID_OPTION",
    DEVELOPMENT && `queue() has no option ${unknown}; it has name, path, ${Object.keys(DEFAULTS).join(", ")}`,
  );
}

const DEFAULTS: QueueLimits = {
  messagesMax: 100_000,
  bytesMax: 64 * 1024 * 1024,
  ageMaxMs: 24 * 3600 * 1000,
  window: 1024,
  uncertain: "drop",
};
