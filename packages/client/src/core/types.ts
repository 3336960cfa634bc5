/** Types of messages: which belong to the protocol. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import { isWhole, unsendable } from "./payload.js";

/** The types of PROTOCOL 7 with their synonyms, and none. A test compares them with that text. */
const RESERVED =
  /^(|p[io]ng|P[IO]NG|server_ready|(client|server)_hello|subscription(_update)?|sync_request|(config|presence|key)_update|(config|health_check|metrics|p(ublish|resence)|call|history|auth_refresh)_response|health_check|(metrics|p(ublish|resence)|call|history)_request|presence_(join|leave)|batch|rate_limit_warning|error|publication_(gap|ack)|message_ack|reconnect|auth_(expiry_warning|refresh))$/;

/** The type that was found good last. */
let good = "\0";

/** Throws for a type that no message of an application can have. */
export function checkType(type: unknown): void {
  if (type === good) return;
  if (typeof type !== "string" || !isWhole(type)) throw unsendable("the type", type);
  if (RESERVED.test(type)) {
    const words = DEVELOPMENT && `the type ${JSON.stringify(type)} belongs to the protocol`;
    throw new TidewireError("INVALID_ARGUMENT", words, "application");
  }
  good = type;
}
