import { existsSync } from "node:fs";
import { defineConfig } from "vitest/config";
import { CHROMIUM } from "./packages/client/test/browser/chromium.js";
import { clientSources, reactProjects } from "./packages/react/test/projects.js";
import { svelteProjects } from "./packages/svelte/test/projects.js";
import { vueProject } from "./packages/vue/test/projects.js";

const IN_A_BROWSER = [
  "packages/bench/test/browser/**",
  "packages/client/test/browser/**",
  "packages/dashboard/test/browser/**",
  "examples/browser/test/**",
  "examples/games/test/browser/**",
];

const hasRedis = (process.env.PATH ?? "").split(":").some((dir) => existsSync(`${dir}/redis-server`));
const WITH_REDIS = ["packages/dashboard/test/browser/cluster.test.ts"];

/** Packages with projects of their own. */
const BINDINGS = ["packages/react/**", "packages/vue/**", "packages/svelte/**"];

// Tests run on the sources; that the built packages work is what the consumers' tests show.
export default defineConfig({
  test: {
    projects: [
      {
        resolve: {
          alias: clientSources,
        },
        test: {
          name: "packages",
          include: ["packages/*/test/**/*.test.ts", "examples/*/test/**/*.test.ts"],
          exclude: [
            ...["**/node_modules/**", ...BINDINGS],
            ...(CHROMIUM ? [] : IN_A_BROWSER),
            ...(hasRedis ? [] : WITH_REDIS),
          ],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          // Files share a process: a fifth less work than with one for each. No test may leave anything behind in it.
          isolate: false,
        },
      },
      ...reactProjects,
      vueProject,
      ...svelteProjects,
      // Without `extends` a project takes none of the options below.
    ].map((project) => ({ ...project, extends: true as const })),
    // By default one core has one, and the tests wait more than they compute.
    maxWorkers: 2,
    maxConcurrency: 4,
    // A test that fails runs once more; scripts/test lists what passed only then.
    retry: 1,
  },
});
