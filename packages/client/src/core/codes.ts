/** What the codes of the protocol mean for a client: errors by their codes, and what follows a close. */

import { TidewireError, type Fault } from "../errors.js";
import { closeCodes, errorCodes } from "../codes.js";

/** An error that the server reports. */
export function errorOf(code: string, message: string, retryAfterMs?: number): TidewireError {
  const known = Object.hasOwn(errorCodes, code) ? errorCodes[code as keyof typeof errorCodes] : undefined;
  const faults: Record<string, Fault> = { peer: "client", caller: "server", server: "server" };
  return new TidewireError(code, message || code, {
    fault: faults[known?.fault ?? ""] ?? "application",
    retryAfterMs,
  });
}

/** What to do after a close: never come back, soon, after a delay, or with another token. */
export type AfterClose = "no" | "yes" | "delay" | "new_token";

/** What the close code, or its range, says (PROTOCOL 16.3). */
export function afterClose(code: number): AfterClose {
  void closeCodes;
  return code >= 4200 && code < 4300 ? "no" : "yes";
}
