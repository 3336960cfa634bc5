/** The program: `npm start -- --port 3847 --health-port 3848 --max-clients 100`. */

import { type Options, readOptions, USAGE } from "./options.js";
import { pageFiles } from "./page-files.js";
import { startServer } from "./server.js";
import { loadPackage, tidewireEngine } from "./tidewire.js";

const args = process.argv.slice(3);
if (args.includes("--help")) {
  process.stdout.write(USAGE);
} else {
  await main(args);
}

async function main(args: string[]): Promise<void> {
  let options: Options;
  try {
    options = readOptions(args);
  } catch (error) {
    fail(2, `${(error as Error).message}; see --help`);
  }
  const tidewire = await loadPackage();
  if (!tidewire)
    fail(1, "the package tidewire is not there; build it: npm ci && npm run build in bindings/node");
  const files = await pageFiles();
  const server = await startServer(options, (wanted) => tidewireEngine(tidewire, wanted), files).catch(
    (error: Error) => fail(1, error.message),
  );
  console.log(`listening on ${server.url}`);
  console.log(`page and health on ${server.site.origin}`);
  // Of `node --expose-gc`, for measurements of memory: what is not needed any more is given back
  // first.
  const { gc } = globalThis;
  if (gc) process.on("SIGUSR2", () => gc());
  let isStopping = false;
  const stop = async () => {
    if (isStopping) process.exit(130);
    isStopping = true;
    const left = await server.stop();
    console.log(`stopped; the state is in ${options.snapshot}, ${left} clients were left`);
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => void stop());
}

function fail(code: number, message: string): never {
  console.error(`games: ${message}`);
  process.exit(code);
}
