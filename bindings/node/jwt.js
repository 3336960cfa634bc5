"use strict";

// JSON Web Tokens by themselves: `tidewire/jwt`.

module.exports = require("./lib/jwt.js");
