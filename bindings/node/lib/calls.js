"use strict";

// The arguments and results of calls of a server, for the forms that block and those that are promises.

const { flag, name, optionalText, optionalWhole, priorityNumber, text, whole } = require("./arguments.js");
const { Connection } = require("./connection.js");
const { translated, WrongTypeError } = require("./errors.js");
const { payloadOf } = require("./json.js");
const { named } = require("./names.js");

const KIND = new Set(["type", "priority"]);
const PUBLICATION = new Set([...KIND, "id", "key", "ttlMs", "exclude", "snapshot"]);
const PUBLICATIONS = new Set([...KIND, "waitMs"]);
const CONNECTIONS = new Set(["user", "topic", "after", "limit"]);
const TOPICS = new Set(["prefix", "after", "limit"]);
const HISTORY = new Set(["since", "limit", "newestFirst"]);
const PRESENCE = new Set(["limit"]);

/** Calls the native module; its errors become those of this package. */
function run(action) {
  try {
    return action();
  } catch (error) {
    throw translated(error);
  }
}

/** The type and the number of the priority among the options of a call. */
function kindOf(call, options) {
  const { type, priority } = named(call, options, KIND);
  return [name("type", type ?? "message"), priorityNumber(priority)];
}

/** The type of a publication, and the options of `publish` as the native module takes them. */
function publication(options) {
  if (options === undefined || options === null) return ["message", undefined];
  const { type, priority, id, key, ttlMs, exclude, snapshot } = named("publish", options, PUBLICATION);
  if (exclude !== undefined && !(exclude instanceof Connection)) {
    throw new WrongTypeError("exclude is a connection");
  }
  const chosen = {
    priority: priorityNumber(priority),
    id: optionalText("id", id),
    key: optionalText("key", key),
    ttlMs: optionalWhole("ttlMs", ttlMs, 0, Number.MAX_SAFE_INTEGER),
    excludePlace: exclude?._place,
    excludeGeneration: exclude?._generation,
    snapshot: snapshot === undefined ? undefined : flag("snapshot", snapshot),
  };
  return [name("type", type ?? "message"), chosen];
}

/** The options of `publishMany`: the type, the number of the priority, and how long to wait for room. */
function publications(options) {
  const { type, priority, waitMs } = named("publishMany", options, PUBLICATIONS);
  return [name("type", type ?? "message"), priorityNumber(priority), whole("waitMs", waitMs ?? 1_000)];
}

/** The result of a publication, from that of the native module. */
function shownResult([offset, epoch, duplicate]) {
  return { offset: offset ?? undefined, epoch: epoch ?? undefined, duplicate };
}

function listQuery(query) {
  const { user, topic, after, limit = 1_000 } = named("listConnections", query, CONNECTIONS);
  const given = [optionalText("user", user), optionalText("topic", topic), optionalText("after", after)];
  return [...given, whole("limit", limit)];
}

function topicQuery(query) {
  const { prefix = "", after, limit = 1_000 } = named("listTopics", query, TOPICS);
  return [text("prefix", prefix), optionalText("after", after), whole("limit", limit)];
}

function historyQuery(topic, query) {
  text("topic", topic);
  const { since, limit = 100, newestFirst = false } = named("history", query, HISTORY);
  const offset = optionalWhole("since", since, 0, Number.MAX_SAFE_INTEGER);
  return [topic, offset, whole("limit", limit), flag("newestFirst", newestFirst)];
}

/** A page of a history, from the JSON text of the native module. */
function shownHistory(json) {
  const page = JSON.parse(json);
  page.publications = page.publications.map(shownPublication);
  return page;
}

/** A publication of a history, from the message that clients receive. */
function shownPublication(message) {
  const { t: type, tp: topic, e: epoch, o: offset, id, c: category } = message;
  return {
    type,
    payload: payloadOf(message),
    topic,
    position: epoch === undefined || offset === undefined ? undefined : { epoch, offset },
    id,
    category: category === "S" ? "snapshot" : "update",
  };
}

function presenceQuery(topic, query) {
  text("topic", topic);
  const { limit = 1_000 } = named("presence", query, PRESENCE);
  return [topic, whole("limit", limit)];
}

module.exports = {
  historyQuery,
  kindOf,
  listQuery,
  presenceQuery,
  publication,
  publications,
  run,
  shownHistory,
  shownResult,
  topicQuery,
};
