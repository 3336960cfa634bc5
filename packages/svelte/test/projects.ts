/** The tests of the Svelte package: in a document of happy-dom, and on a server. */

import { fileURLToPath } from "node:url";
import { compile, compileModule } from "svelte/compiler";
import { clientSources } from "../../react/test/projects.js";

/** Compiles components and modules with runes, as the plugin of an application does. */
function compiler(generate: "client" | "server") {
  return {
    name: "svelte",
    transform(code: string, filename: string) {
      if (filename.endsWith(".svelte")) return compile(code, { filename, generate }).js;
      if (filename.endsWith(".svelte.js")) return compileModule(code, { filename, generate }).js;
      return undefined;
    },
  };
}

function project(name: string, generate: "client" | "server", test: object) {
  return {
    root: fileURLToPath(new URL("..", import.meta.url)),
    plugins: [compiler(generate)],
    // Svelte has other modules for pages than for servers.
    resolve: { alias: clientSources, ...(generate === "client" && { conditions: ["browser"] }) },
    test: { name, testTimeout: 30_000, server: { deps: { inline: ["svelte"] } }, ...test },
  };
}

export const svelteProjects = [
  project("svelte", "client", { include: ["test/*.test.ts"], environment: "happy-dom" }),
  project("svelte on a server", "server", { include: ["test/server/*.test.ts"] }),
];
