import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// Tests run on the sources; that the built packages work is what the consumers' tests show.
export default defineConfig({
  resolve: {
    alias: [
      { find: "#transport", replacement: source("packages/client/src/transport/default-node.ts") },
      { find: /^@tidewire\/client$/, replacement: source("packages/client/src/index.ts") },
      { find: /^@tidewire\/client\/(.*)$/, replacement: `${source("packages/client/src/")}$1.ts` },
    ],
  },
  test: {
    include: ["packages/*/test/**/*.test.{ts,tsx}"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    maxConcurrency: 8,
  },
});
