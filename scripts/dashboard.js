// The built files of the dashboard, by their names.
import { readFileSync } from "node:fs";
import { build } from "esbuild";

/** Where the engine embeds them from. */
export const DASHBOARD = "crates/tidewire-engine/src/ops/dashboard";

export async function dashboardFiles(dir = "packages/dashboard") {
  const built = await build({
    entryPoints: { app: `${dir}/src/main.ts`, style: `${dir}/src/app.css` },
    outdir: "out",
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: ["es2022", "chrome123", "firefox120", "safari17.5"],
    logLevel: "warning",
  });
  const text = (end) => built.outputFiles.find((file) => file.path.endsWith(end)).text;
  return new Map([
    ["index.html", readFileSync(`${dir}/src/index.html`, "utf8")],
    ["app.js", text("app.js")],
    ["app.css", text("style.css")],
  ]);
}
