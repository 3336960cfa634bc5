"use strict";

// The package. index.mjs has the same names for `import`.

const { Batch, Message } = require("./lib/batch.js");
const { Connection } = require("./lib/connection.js");
const { translated: _translated, ...errors } = require("./lib/errors.js");
const { RawJson } = require("./lib/json.js");
const native = require("./lib/native.js");
const { Server } = require("./lib/server.js");

module.exports = {
  ...errors,
  Batch,
  Connection,
  Message,
  RawJson,
  Server,
  version: native.version(),
};
