"use strict";

// Utilities that need no server, and that Node lacks.

module.exports = {
  ...require("./utilities/envelope.js"),
  ...require("./utilities/formats.js"),
  ...require("./utilities/queues.js"),
  ...require("./utilities/security.js"),
};
