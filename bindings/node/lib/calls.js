"use strict";

// The arguments and results of calls of a server, for the forms that block and those that are promises.

const {
  flag,
  name,
  optionalText,
  optionalWhole,
  priorityNumber,
  text,
  urgency,
  whole,
} = require("./arguments.js");
const { Connection } = require("./connection.js");
const { translated, WrongTypeError } = require("./errors.js");
const { payloadOf } = require("./json.js");
const { named } = require("./names.js");

const KIND = new Set(["type", "priority"]);
const MESSAGE = new Set([...KIND, "exclude", "volatile"]);
const PUBLICATION = new Set([...MESSAGE, "id", "key", "ttlMs", "snapshot"]);
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

/** The type, the number of the urgency and the excluded connections of a message to many. */
function messageOf(call, options) {
  const { type, priority, exclude, volatile } = named(call, options, MESSAGE);
  return [name("type", type ?? "message"), urgency(priority, volatile), excluded(exclude)];
}

/** The numbers of the connections that do not receive a message: one connection, or several; `undefined` without any. */
function excluded(exclude) {
  if (exclude === undefined || exclude === null) return undefined;
  const connections = exclude instanceof Connection ? [exclude] : exclude;
  if (typeof connections !== "object" || typeof connections[Symbol.iterator] !== "function") {
    throw new WrongTypeError("exclude is a connection, or a list of connections");
  }
  const numbers = [];
  for (const connection of connections) {
    if (!(connection instanceof Connection))
      throw new WrongTypeError("exclude has something that is no connection");
    numbers.push(connection._place, connection._generation);
  }
  return numbers;
}

/** The type of a publication, and the options of `publish` as the native module takes them. */
function publication(options) {
  if (options === undefined || options === null) return ["message", undefined];
  const { type, priority, id, key, ttlMs, exclude, snapshot, volatile } = named(
    "publish",
    options,
    PUBLICATION,
  );
  const chosen = {
    priority: urgency(priority, volatile),
    id: optionalText("id", id),
    key: optionalText("key", key),
    ttlMs: optionalWhole("ttlMs", ttlMs, 0, Number.MAX_SAFE_INTEGER),
    exclude: excluded(exclude),
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
  listQuery,
  messageOf,
  presenceQuery,
  publication,
  publications,
  run,
  shownHistory,
  shownResult,
  topicQuery,
};
