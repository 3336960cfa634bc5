/** The tests of the composables, in a document of happy-dom. */

import { fileURLToPath } from "node:url";
import { clientSources } from "../../react/test/projects.js";

export const vueProject = {
  root: fileURLToPath(new URL("..", import.meta.url)),
  resolve: { alias: clientSources },
  test: {
    name: "vue",
    include: ["test/**/*.test.ts"],
    exclude: ["test/browser/**"],
    environment: "happy-dom",
    testTimeout: 30_000,
  },
};
