/** The size of a message on the wire, as the server counts it (PROTOCOL 12): UTF-8, the envelope and its layers included. */

import type { ResolvedOptions } from "../options.js";
import { utf8 } from "./bytes.js";
import type { EncodedPayload, EnvelopeFields, Format } from "./layers.js";

/** What sealing adds: the prefix, 12 bytes IV and 16 bytes tag. */
const SEAL_BYTES = 30;
/** More bytes than the fields of an envelope need whose lengths are not checked. */
export const FIELDS_BYTES_MAX = 512;

/** What the layers of a connection add to a message. */
export interface LayerSizes {
  /** Characters of a signature; 0 without. */
  sigLength: number;
  sealBytes: number;
}

export function layerSizesOf({ signing, encryption }: Partial<ResolvedOptions>): LayerSizes {
  return { sigLength: signing?.length ?? 0, sealBytes: encryption ? SEAL_BYTES : 0 };
}

/** Whether a message has more than `max` bytes; 0 for any number. Encodes it. */
export function isTooLarge(
  max: number,
  format: Format,
  fields: EnvelopeFields,
  payload: EncodedPayload | undefined,
  { sigLength, sealBytes }: LayerSizes,
): boolean {
  if (!max) return false;
  const frame = format.envelope(sigLength ? { ...fields, sig: "x".repeat(sigLength) } : fields, payload);
  return (typeof frame === "string" ? utf8(frame).length : frame.length) + sealBytes > max;
}
