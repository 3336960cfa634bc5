#!/usr/bin/env node
/** The entry point of `tidewire-bench-ts`. */

import { main } from "./program.js";

process.exitCode = await main(process.argv.slice(2));
