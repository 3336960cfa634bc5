"use strict";

// The package. index.mjs has the same names for `import`.

const { Batch, Message } = require("./lib/batch.js");
const { Connection } = require("./lib/connection.js");
const { translated: _translated, ...errors } = require("./lib/errors.js");
const { RawJson } = require("./lib/json.js");
const jwt = require("./lib/jwt.js");
const { LoadResult, load } = require("./lib/load.js");
const native = require("./lib/native.js");
const { Server } = require("./lib/server.js");
const utilities = require("./lib/utilities.js");

module.exports = {
  ...errors,
  Batch,
  ...utilities,
  Connection,
  LoadResult,
  Message,
  RawJson,
  Server,
  jwt,
  load,
  version: native.version(),
};
