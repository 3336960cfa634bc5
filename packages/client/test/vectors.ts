/** The vectors of the protocol (`protocol/vectors`), which every implementation loads. */

import { readFileSync } from "node:fs";
import type { Dialogue } from "./dialogue-runner.js";

/** A message of `envelopes`, `malformed` or `limits`, in each form that its frame may have. */
export interface MessageCase {
  name: string;
  frames: ({ text: string } | { binary: string })[];
  kind: "application" | "system" | "refused";
  reason?: string;
  // biome-ignore lint/suspicious/noExplicitAny: an envelope may hold anything
  envelope?: Record<string, any> | null;
}

/** The cases of a file, such as `envelopes`. */
export function vectors<T>(name: string): T[] {
  const file = new URL(`../../../protocol/vectors/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).cases;
}

/** The files with dialogues for a client. */
export const DIALOGUES = ["client-dialogues", "topics", "recovery", "history"];

/** The dialogues of a file in which the client is played. */
export function dialoguesOf(file: string): Dialogue[] {
  return vectors<Dialogue>(file).filter(({ side }) => side === "client");
}

export function unhex(digits: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(digits, "hex"));
}

/** The binary frames of a case that begin with these hex digits, without them. */
export function framesAfter(prefix: string, { frames }: MessageCase): Uint8Array[] {
  return frames.flatMap((frame) =>
    "binary" in frame && frame.binary.startsWith(prefix) ? [unhex(frame.binary.slice(prefix.length))] : [],
  );
}
