import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { CHROMIUM } from "./packages/client/test/browser/chromium.js";
import { reactProjects } from "./packages/react/test/projects.js";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const IN_A_BROWSER = [
  "packages/client/test/browser/**",
  "packages/dashboard/test/browser/**",
  "examples/browser/test/**",
  "examples/games/test/browser/**",
];

// Tests run on the sources; that the built packages work is what the consumers' tests show.
export default defineConfig({
  test: {
    projects: [
      {
        resolve: {
          alias: [
            { find: "#transport", replacement: source("packages/client/src/transport/default-node.ts") },
            { find: "#development", replacement: source("packages/client/src/development/on.ts") },
            { find: /^@tidewire\/client$/, replacement: source("packages/client/src/index.ts") },
            { find: /^@tidewire\/client\/(.*)$/, replacement: `${source("packages/client/src/")}$1.ts` },
          ],
        },
        test: {
          name: "packages",
          include: ["packages/*/test/**/*.test.ts", "examples/*/test/**/*.test.ts"],
          exclude: ["**/node_modules/**", "packages/react/**", ...(CHROMIUM ? [] : IN_A_BROWSER)],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      ...reactProjects,
    ],
    // By default one core has one, and the tests wait more than they compute.
    maxWorkers: 2,
    maxConcurrency: 4,
    // A browser on a busy machine may be late once; the output says when a test had to be run again.
    retry: 1,
  },
});
