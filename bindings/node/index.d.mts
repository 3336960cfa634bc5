// The types of the package for `import`.

export * from "./index.js";

import * as tidewire from "./index.js";
export default tidewire;
