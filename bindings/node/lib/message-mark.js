"use strict";

// Messages know connections and connections know messages: this mark stands between them.

const MARK = Symbol("tidewire message");

const isMessage = (value) => typeof value === "object" && value !== null && value[MARK] === true;

module.exports = { MARK, isMessage };
