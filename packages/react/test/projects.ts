/** The tests of the hooks, with each version of React. */

import { fileURLToPath } from "node:url";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

/** The client's sources in place of the built package. */
export const clientSources = [
  { find: "#transport", replacement: path("../../client/src/transport/default-node.ts") },
  { find: "#development", replacement: path("../../client/src/development/on.ts") },
  { find: /^@tidewire\/client$/, replacement: path("../../client/src/index.ts") },
  { find: /^@tidewire\/client\/(.*)$/, replacement: `${path("../../client/src/")}$1.ts` },
];

// Its CommonJS would find the React beside it.
const library = {
  find: "@testing-library/react",
  replacement: path("../../../node_modules/@testing-library/react/dist/@testing-library/react.esm.js"),
};

// What the recipes of the documentation import.
const itself = { find: /^@tidewire\/react$/, replacement: path("../src/index.ts") };

/** The tests of the hooks with one version of React, which lies in a directory of its own. */
function project(name: string, modules: string, exclude: string[] = []) {
  const react = [
    { find: /^(react|react-dom)$/, replacement: `${path(modules)}/$1/index.js` },
    { find: /^(react|react-dom)\/([\w-]+)$/, replacement: `${path(modules)}/$1/$2.js` },
  ];
  return {
    root: path(".."),
    resolve: { alias: [...clientSources, itself, ...react, library] },
    test: {
      name,
      include: ["test/**/*.test.{ts,tsx}"],
      exclude,
      environment: "happy-dom",
      testTimeout: 30_000,
      // It imports React, so that the alias has to hold in it as well.
      server: { deps: { inline: ["@testing-library/react"] } },
    },
  };
}

export const reactProjects = [
  project("react 19", "../../../node_modules"),
  // The libraries of the recipes import the React beside them.
  project("react 18", "../../react-18/node_modules", ["test/recipes.test.tsx"]),
];
