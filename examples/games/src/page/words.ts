/** Words that several pages show. */

import { useEffect } from "react";
import type { TimeControl } from "../core/clock.js";
import type { Result } from "../core/game.js";

/** The title of the window. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Tidewire games`;
  }, [title]);
}

/** A time control as players write it: minutes + seconds for each move. */
export function controlText({ initialMs, incrementMs }: TimeControl): string {
  return `${Math.round((initialMs / 60_000) * 10) / 10} + ${incrementMs / 1000}`;
}

/** The points of a result, White's first. */
export function scoreOf({ winner }: Result): string {
  return winner === null ? "½ : ½" : winner === "white" ? "1 : 0" : "0 : 1";
}
