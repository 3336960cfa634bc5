"use strict";

// Whether the caller of a function is a handler. A handler that waits for the end of its server must not be waited for.
//
// V8 knows which function awaits which, and writes it into the stack of an error; nothing has to be noted while handlers
// run, as `AsyncLocalStorage` would do for each promise. The dispatcher awaits each handler in `HANDLER_FRAME`.

const STACK_FRAMES_MAX = 1_000;

/** The name of the function of the dispatcher that awaits a handler. */
const HANDLER_FRAME = "_awaitHandler";

/** Whether a handler waits for the function that calls this. */
function isCalledByHandler() {
  const { prepareStackTrace, stackTraceLimit } = Error;
  try {
    Error.stackTraceLimit = STACK_FRAMES_MAX;
    Error.prepareStackTrace = (_, sites) => sites;
    const sites = new Error().stack;
    return Array.isArray(sites) && sites.some((site) => site.getFunctionName()?.endsWith(HANDLER_FRAME));
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
    Error.stackTraceLimit = stackTraceLimit;
  }
}

module.exports = { HANDLER_FRAME, isCalledByHandler };
