// Which Node runs the servers of the comparison. `@btc-vision/uwebsockets.js` needs a newer libc than some systems have. On
// Debian and its kind this module unpacks the libraries of a later Debian into `node_modules/.libc`, and every server of the
// comparison, ours too, runs with them. The libraries of the system stay as they are.

import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const UWS = "@btc-vision/uwebsockets.js";
const SUITE = "trixie";
const PACKAGES = ["libc6", "libstdc++6", "libgcc-s1"];
const KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg";

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = path.join(here, "node_modules", ".libc");

/** How to start Node, and whether uWebSockets.js can be loaded there. `note` is a sentence for the reader. */
export function chooseNode() {
  const own = [process.execPath];
  const missing = whyNot(own);
  if (missing === undefined) return { command: own, hasUws: true, note: undefined };
  if (!missing.includes("GLIBC")) return { command: own, hasUws: false, note: leftOut(missing) };
  try {
    const command = [...newerLibraries(), process.execPath];
    const problem = whyNot(command);
    if (problem !== undefined) throw new Error(problem);
    const version = libcVersion();
    return {
      command,
      hasUws: true,
      note: `\`${UWS}\` needs a newer libc than this system has, so every server runs with libc ${version} of Debian ${SUITE}.`,
    };
  } catch (error) {
    return { command: own, hasUws: false, note: leftOut(`${missing}; ${error.message}`) };
  }
}

const leftOut = (why) => `\`${UWS}\` cannot be loaded here and is left out: ${why}.`;

/** Why uWebSockets.js cannot be loaded; `undefined` if it can be. */
function whyNot([program, ...words]) {
  const load = `require(${JSON.stringify(UWS)})`;
  const { status, stderr, error } = spawnSync(program, [...words, "-e", load], {
    cwd: here,
    encoding: "utf8",
  });
  if (status === 0) return undefined;
  const lines = (error?.message ?? stderr).split("\n");
  const line = lines.find((one) => one.includes("GLIBC")) ?? lines.find((one) => one.startsWith("Error:"));
  return line?.replace(/^Error: /, "").trim() ?? `Node ended with ${status}`;
}

/** The words that start a program with the newer libraries, which are fetched once. */
function newerLibraries() {
  const find = () => {
    const names = fs.existsSync(folder) ? fs.readdirSync(folder, { recursive: true }) : [];
    const paths = names.filter((name) => /\/ld-linux[^/]*\.so\.\d$/.test(name));
    const loaders = paths.map((name) => path.join(folder, name));
    const loader = loaders.find((one) => fs.existsSync(path.join(path.dirname(one), "libc.so.6")));
    return loader && [loader, "--library-path", path.dirname(loader)];
  };
  const found = find();
  if (found) return found;
  fetchLibraries();
  const fetched = find();
  if (!fetched) throw new Error("the packages have no loader");
  return fetched;
}

/** Unpacks the packages; the sources and lists of the system's apt are neither read nor changed. */
function fetchLibraries() {
  const apt = path.join(folder, "apt");
  for (const name of ["lists/partial", "cache/archives/partial"]) {
    fs.mkdirSync(path.join(apt, name), { recursive: true });
  }
  const sources = path.join(apt, "sources.list");
  fs.writeFileSync(sources, `deb [signed-by=${KEYS}] http://deb.debian.org/debian ${SUITE} main\n`);
  const settings = {
    "Dir::Etc::sourcelist": sources,
    "Dir::Etc::sourceparts": "-",
    "Dir::State::lists": path.join(apt, "lists"),
    "Dir::Cache": path.join(apt, "cache"),
    // apt would read the folder as another user, who may not be allowed to.
    "APT::Sandbox::User": process.env.USER ?? "root",
    "Acquire::Retries": "3",
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  const quiet = { cwd: apt, stdio: ["ignore", "ignore", "inherit"] };
  execFileSync("apt-get", [...options, "-qq", "update"], quiet);
  execFileSync("apt-get", [...options, "-qq", "download", ...PACKAGES], quiet);
  for (const name of fs.readdirSync(apt).filter((one) => one.endsWith(".deb"))) {
    execFileSync("dpkg-deb", ["-x", path.join(apt, name), folder]);
  }
  fs.rmSync(apt, { recursive: true });
}

function libcVersion() {
  const [loader] = newerLibraries();
  return /version (\d+\.\d+)/.exec(execFileSync(loader, ["--version"], { encoding: "utf8" }))?.[1];
}

export const median = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];
