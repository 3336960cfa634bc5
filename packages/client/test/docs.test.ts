/** Each TypeScript snippet of the documentation compiles as it stands there. */

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const folder = `${root}packages/client/test/.snippets`;

afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("snippets compile", () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const files: string[] = [];
  for (const page of ["README.md", ...readdirSync(`${root}docs`).map((name) => `docs/${name}`)]) {
    if (!page.endsWith(".md")) continue;
    const text = readFileSync(`${root}${page}`, "utf8");
    for (const [, language, code] of text.matchAll(/^```(tsx?)\n([\s\S]*?)^```$/gm)) {
      const name = `${page.replaceAll(/[/.]/g, "-")}-${files.length}.${language}`;
      // A snippet is a module of its own.
      writeFileSync(`${folder}/${name}`, `${code}\nexport {};\n`);
      files.push(name);
    }
  }
  expect(files.length).toBeGreaterThan(5);
  const paths = {
    "@tidewire/client": ["../../src/index.ts"],
    "@tidewire/client/*": ["../../src/*.ts"],
    "@tidewire/react": ["../../../react/src/index.ts"],
    "#transport": ["../../src/transport/default-node.ts"],
    "#development": ["../../src/development/on.ts"],
  };
  const compilerOptions = {
    noEmit: true,
    jsx: "react-jsx",
    types: ["node"],
    paths,
    module: "esnext",
    moduleResolution: "bundler",
  };
  writeFileSync(
    `${folder}/tsconfig.json`,
    JSON.stringify({
      extends: "../../../../tsconfig.base.json",
      compilerOptions,
      include: ["*.ts", "*.tsx"],
    }),
  );
  try {
    execFileSync(`${root}node_modules/.bin/tsc`, ["-p", folder], { stdio: "pipe", encoding: "utf8" });
  } catch (error) {
    throw new Error((error as { stdout: string }).stdout);
  }
});
