/** Builds the two entry points; with `withClient` the result runs without any package. */
export function buildBench(outdir: string, withClient: boolean): Promise<void>;
