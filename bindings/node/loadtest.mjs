// The interface of the npm module `loadtest`, for `import`.

import loadtest from "./loadtest.js";

export const { loadTest, Result, startServer } = loadtest;
export default loadtest;
