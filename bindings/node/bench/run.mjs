// Measures sections of RESULTS.md and replaces them there: `node run.mjs [SECTION...]`, by default all but `cycles`.
// The program `tidewire` and the package have to be built for a release; `make bench-node` does it.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import { fileURLToPath } from "node:url";

const SECTIONS = {
  messages: ["compare.mjs", "3", "1.5"],
  publishing: ["publish.mjs", "3", "2"],
  http: ["http.mjs", "3", "4"],
  attach: ["attach.mjs", "3", "2"],
  cycles: ["--expose-gc", "cycles.mjs"],
};
const NOT_BY_DEFAULT = ["cycles"];

const file = fileURLToPath(new URL("RESULTS.md", import.meta.url));
const asked = process.argv.slice(2);
const unknown = asked.find((name) => !Object.hasOwn(SECTIONS, name));
if (unknown !== undefined) {
  console.error(`there is no section ${unknown}; there are ${Object.keys(SECTIONS).join(", ")}`);
  process.exit(2);
}
const names =
  asked.length > 0 ? asked : Object.keys(SECTIONS).filter((name) => !NOT_BY_DEFAULT.includes(name));
for (const name of names) {
  console.error(`measuring ${name}: node ${SECTIONS[name].join(" ")}`);
  const loadBefore = os.loadavg()[0];
  const run = spawnSync(process.execPath, SECTIONS[name], {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (run.status !== 0) process.exit(run.status ?? 1);
  process.stdout.write(`${run.stdout}\n`);
  replace(
    name,
    `${run.stdout.trim()}\n\nThe average load of the machine was ${loadBefore.toFixed(1)} before.`,
  );
}

/** Puts text between the marks of a section. */
function replace(name, text) {
  const page = fs.readFileSync(file, "utf8");
  const [begin, end] = [`<!-- ${name} -->\n`, `\n<!-- end of ${name} -->`];
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`RESULTS.md has no marks of the section ${name}`);
  fs.writeFileSync(file, `${page.slice(0, from + begin.length)}\n${text}\n${page.slice(to)}`);
}
