/** Where Chromium is: CHROMIUM names it, or it stands in a usual place. Without one, tests in a browser are left out. */

import { existsSync } from "node:fs";

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export const CHROMIUM = process.env.CHROMIUM ?? places.find((place) => existsSync(place));

if (!CHROMIUM) console.warn("no Chromium here, so no tests in a browser; CHROMIUM says where one is");
