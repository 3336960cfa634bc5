"use strict";

// The arguments and results of calls of a server, for the forms that block and those that are promises.

const { flag, name, optionalText, optionalWhole, priorityNumber, text, whole } = require("./arguments.js");
const { Connection } = require("./connection.js");
const { InvalidArgumentError, translated, WrongTypeError } = require("./errors.js");

/** Calls the native module; its errors become those of this package. */
function run(action) {
  try {
    return action();
  } catch (error) {
    throw translated(error);
  }
}

/** The type and the number of the priority among some options. */
function kindOf(options) {
  return [name("type", options?.type ?? "message"), priorityNumber(options?.priority)];
}

/** The options of `publish`, as the native module takes them. */
function publication({ type, priority, id, key, ttlMs, exclude, snapshot, ...unknown }) {
  const [first] = Object.keys(unknown);
  if (first !== undefined) throw new InvalidArgumentError(`publish has no option ${first}`);
  if (exclude !== undefined && !(exclude instanceof Connection)) {
    throw new WrongTypeError("exclude is a connection");
  }
  return {
    priority: priorityNumber(priority),
    id: optionalText("id", id),
    key: optionalText("key", key),
    ttlMs: optionalWhole("ttlMs", ttlMs, 0, Number.MAX_SAFE_INTEGER),
    excludePlace: exclude?._place,
    excludeGeneration: exclude?._generation,
    snapshot: snapshot === undefined ? undefined : flag("snapshot", snapshot),
  };
}

/** The result of a publication, from that of the native module. */
function shownResult([offset, epoch, duplicate]) {
  return { offset: offset ?? undefined, epoch: epoch ?? undefined, duplicate };
}

function listQuery({ user, topic, after, limit = 1_000 } = {}) {
  const given = [optionalText("user", user), optionalText("topic", topic), optionalText("after", after)];
  return [...given, whole("limit", limit)];
}

function topicQuery({ prefix = "", after, limit = 1_000 } = {}) {
  return [text("prefix", prefix), optionalText("after", after), whole("limit", limit)];
}

function historyQuery(topic, { since, limit = 100, newestFirst = false } = {}) {
  text("topic", topic);
  const offset = optionalWhole("since", since, 0, Number.MAX_SAFE_INTEGER);
  return [topic, offset, whole("limit", limit), flag("newestFirst", newestFirst)];
}

module.exports = { historyQuery, kindOf, listQuery, publication, run, shownResult, topicQuery };
