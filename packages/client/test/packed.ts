/** The package as its users get it: packed, and unpacked in a folder of its own. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../../", import.meta.url));

/** A project that has the package in its `node_modules`. */
export interface Project {
  readonly folder: string;
  /** The unpacked package. */
  readonly target: string;
  /** Writes a file of the project; the result is its path. */
  write(name: string, text: string): string;
  remove(): void;
}

/** Packs the built package, which is built if it is not there, and unpacks it in a new folder. */
export function makeProject(): Project {
  if (!existsSync(`${root}packages/client/dist/esm`)) execFileSync("npm", ["run", "build"], { cwd: root });
  const folder = mkdtempSync(join(tmpdir(), "tidewire-consumer-"));
  const target = join(folder, "node_modules/@tidewire/client");
  mkdirSync(target, { recursive: true });
  execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: `${root}packages/client` });
  const archive = readdirSync(folder).find((file) => file.endsWith(".tgz"))!;
  execFileSync("tar", ["-xzf", join(folder, archive), "--strip-components=1", "-C", target]);
  return {
    folder,
    target,
    write(name, text) {
      const path = join(folder, name);
      writeFileSync(path, text);
      return path;
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
