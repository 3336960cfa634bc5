/** The files of the page, bundled when the server starts. */

import { fileURLToPath } from "node:url";
import { bundlePages, type PageFiles, pageDocument } from "../../../shared/page-files.js";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export async function pageFiles(): Promise<PageFiles> {
  const files = await bundlePages([path("../page/page.tsx")], path("../page/style.css"));
  files.set("/", pageDocument("Tidewire games", "/page.js"));
  return files;
}
