/** Snippets of the guides: each is a module that the compiler accepts. */

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

const config = {
  extends: "../../../tsconfig.base.json",
  compilerOptions: {
    noEmit: true,
    jsx: "react-jsx",
    types: ["node"],
    // Where a snippet shows one step, what it declares is not used.
    noUnusedLocals: false,
    paths: {
      "#transport": ["../../../packages/client/src/transport/default-node.ts"],
      "@tidewire/client": ["../../../packages/client/src/index.ts"],
      "@tidewire/client/*": ["../../../packages/client/src/*.ts"],
      "@tidewire/react": ["../../../packages/react/src/index.ts"],
    },
  },
};

test.each(readdirSync(`${root}docs`).filter((name) => /^typescript.*\.md$/.test(name)))(
  "%s",
  {
    timeout: 180_000,
  },
  (guide) => {
    const text = readFileSync(`${root}docs/${guide}`, "utf8");
    const snippets = [...text.matchAll(/^```(tsx?)\n([\s\S]*?)^```$/gm)];
    expect(snippets.length).toBeGreaterThan(0);
    // Inside the workspace, so that its packages are found.
    const dir = `${root}node_modules/.cache/${guide}`;
    rmSync(dir, { recursive: true, force: true });
    mkdirSync(dir, { recursive: true });
    writeFileSync(`${dir}/package.json`, '{ "type": "module" }');
    const files: string[] = [];
    for (const { index, 1: kind, 2: code } of snippets) {
      const line = text.slice(0, index).split("\n").length;
      // A module, with or without exports; its lines have the numbers that they have in the guide.
      files.push(`line-${line}.${kind}`);
      writeFileSync(`${dir}/${files.at(-1)}`, `${"\n".repeat(line)}${code}export {};\n`);
    }
    writeFileSync(`${dir}/tsconfig.json`, JSON.stringify({ ...config, files }));
    let complaints = "";
    try {
      execFileSync(`${root}node_modules/.bin/tsc`, ["-p", dir], { encoding: "utf8" });
    } catch (error) {
      complaints = (error as { stdout: string }).stdout;
    }
    expect(complaints).toBe("");
  },
);
