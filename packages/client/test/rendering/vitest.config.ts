import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { clientSources } from "../../../react/test/projects.js";

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  resolve: { alias: clientSources },
  test: { include: ["rendering.long.ts"], hookTimeout: 60_000 },
});
