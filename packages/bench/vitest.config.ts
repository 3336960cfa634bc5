import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    alias: { "@tidewire/client/node": fileURLToPath(new URL("../client/src/node.ts", import.meta.url)) },
  },
  test: { testTimeout: 300_000, hookTimeout: 300_000, globalSetup: ["./test/build.ts"] },
});
