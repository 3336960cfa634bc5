"use strict";

// What is useful without a server, and Node lacks.

module.exports = {
  ...require("./utilities/envelope.js"),
  ...require("./utilities/formats.js"),
  ...require("./utilities/queues.js"),
  ...require("./utilities/security.js"),
};
