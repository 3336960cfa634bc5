// The types of `tidewire/loadtest` for `import`.

export * from "./loadtest.js";

import * as loadtest from "./loadtest.js";
export default loadtest;
