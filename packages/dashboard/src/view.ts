import type { Stats } from "./api.js";

/** The content of a tab. */
export interface View {
  readonly root: HTMLElement;
  /** New numbers, once a second. */
  update?(stats: Stats): void;
  /** Shows something else of the same tab; without it the tab is opened anew. */
  go?(rest: string | undefined): void;
  /** Another view replaces it. */
  close?(): void;
}
