// Every example of the documentation runs as it stands.

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { program } from "./support.mjs";

const folder = new URL("../.snippets/", import.meta.url);

// The build of the clients, which some examples connect with. Without it they are skipped.
const hasClient = fs.existsSync(new URL("../../../packages/client/dist/esm/index.js", import.meta.url));

for (const page of [
  "../README.md",
  ...["node", "for-node", "coming-from-socket-io"].map((name) => `../../../docs/${name}.md`),
]) {
  const text = fs.readFileSync(new URL(page, import.meta.url), "utf8");
  const examples = [...text.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code);
  assert.ok(examples.length > 0);
  for (const [index, code] of examples.entries()) {
    const name = `${page.split("/").at(-1).replace(".md", "")}-${index + 1}`;
    const skip = !hasClient && code.includes('"@tidewire/client"') && "the npm packages are not built";
    test(`example ${name}`, { skip }, async () => {
      fs.mkdirSync(folder, { recursive: true });
      // Inside the package its own name means it.
      const file = new URL(`${name}.mjs`, folder);
      fs.writeFileSync(file, code);
      const { code: status, stderr } = await program(undefined, { file: file.pathname });
      assert.deepEqual([status, stderr], [0, ""]);
    });
  }
}
