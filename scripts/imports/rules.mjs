// What the sources of the npm packages may import, for dependency-cruiser. `run` applies it.

import { CIRCLES } from "./circles.mjs";

/** Matches these files and no others. */
const exactly = (files) => `^(${files.map((file) => file.replaceAll(".", "\\.")).join("|")})$`;

const REMEDY =
  "Move what they share into a file below them, or list the circle in scripts/imports/circles.mjs.";

export default {
  forbidden: [
    {
      name: "circle-of-values",
      comment: `Files load each other. ${REMEDY}`,
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    {
      name: "circle",
      comment: `Files import each other. ${REMEDY}`,
      severity: "error",
      from: { pathNot: CIRCLES.map((circle) => exactly(circle.files)) },
      to: { circular: true },
    },
    ...CIRCLES.map(({ files, reason }) => ({
      name: "larger-circle",
      comment: `The circle has grown (${reason}). ${REMEDY}`,
      severity: "error",
      from: { path: exactly(files) },
      to: { circular: true, via: { pathNot: exactly(files) } },
    })),
    {
      name: "core",
      comment: "The core uses nothing of the environment and nothing above it: pass in what it needs.",
      severity: "error",
      from: { path: "^packages/client/src/core/" },
      to: {
        pathNot: [
          "^packages/client/src/core/",
          "^packages/client/src/(codes|errors|message)\\.ts$",
          "^#development$",
        ],
        dependencyTypesNot: ["type-only"],
      },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "/dist/" },
    // Imports of types, which the compiler leaves out, count as well.
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.base.json" },
    enhancedResolveOptions: { extensions: [".ts", ".tsx", ".mts", ".js", ".mjs"] },
  },
};
