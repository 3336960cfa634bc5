/** Errors of the server by their codes. */

import { errorPolicy } from "../codes.js";
import { type Fault, TidewireError } from "../errors.js";

/** Who `codes.toml` blames, as the client sees it: the receiver of a code is this client. */
const faults: Record<string, Fault> = { peer: "client", caller: "server", server: "server" };

/** An error that the server reports. */
export function errorOf(code: string, message: string, retryAfterMs?: number): TidewireError {
  return new TidewireError(code, message || code, {
    fault: faults[errorPolicy(code)?.fault ?? ""] ?? "application",
    retryAfterMs,
  });
}
