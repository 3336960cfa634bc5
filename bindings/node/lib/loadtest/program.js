"use strict";

// The program `tidewire-loadtest`: the flags of `loadtest`.

const { InvalidArgumentError } = require("../errors.js");
const { unknown } = require("../names.js");

/** Flags: the long name, the short one, the option, and how the value is written. Without the latter it is a switch. */
const FLAGS = [
  ["maxRequests", "n", "maxRequests", "number", "requests to send"],
  ["maxSeconds", "t", "maxSeconds", "seconds", "how long to send; 10 without -n"],
  ["concurrency", "c", "concurrency", "number", "clients in all; 10 by default"],
  ["timeout", "d", "timeout", "ms", "how long to wait for a response"],
  ["keepalive", "k", "agentKeepAlive", undefined, "use connections again"],
  ["cookies", "C", "cookies", "name=value", "a cookie; can be repeated", "cookie"],
  ["headers", "H", "headers", "name:value", "a header; can be repeated", "header"],
  ["contentType", "T", "contentType", "type", "the type of the body"],
  ["postBody", "P", "postBody", "text", "POST this body"],
  ["patchBody", "A", "patchBody", "text", "PATCH with this body"],
  ["postFile", "p", "postFile", "file", "POST the contents of a file, or what a .js module makes"],
  ["putFile", "u", "putFile", "file", "the same by PUT"],
  ["patchFile", "a", "patchFile", "file", "the same by PATCH"],
  ["data", undefined, "body", "text", "a body for any method"],
  ["method", "m", "method", "method", "the HTTP method"],
  ["requestGenerator", "R", "requestGenerator", "file", "a module that makes each request"],
  ["recover", "r", "recover", undefined, "no effect: a load goes on after errors"],
  ["secureProtocol", "s", "secureProtocol", "method", "refused: leave it out"],
  [
    "rps",
    undefined,
    "requestsPerSecond",
    "number",
    "requests a second, whatever the service does",
    "requestsPerSecond",
  ],
  ["index", undefined, "indexParam", "text", "replaced by 1, 2, 3… in the path and the body"],
  ["cores", undefined, "cores", "number", "threads; half of the cores by default"],
  ["tcp", undefined, "tcp", undefined, "the same as -k"],
  ["insecure", undefined, "insecure", undefined, "accept any certificate"],
  ["cert", undefined, "cert", "file", "a client certificate, PEM"],
  ["key", undefined, "key", "file", "its key, PEM"],
  ["ca", undefined, "ca", "file", "authorities to trust, PEM"],
  ["proxy", undefined, "proxy", "url", "an HTTP proxy"],
  ["quiet", undefined, "quiet", undefined, "no lines while it runs"],
  ["agent", undefined, "agentKeepAlive", undefined, "the same as -k"],
  ["debug", undefined, "debug", undefined, "no effect"],
  ["help", "h", "help", undefined, "these lines"],
  ["version", "V", "version", undefined, "the version"],
];

const REPEATED = new Set(["cookies", "headers"]);

/** The options and URLs that words of a command line mean. */
function parse(words) {
  const options = {};
  const urls = [];
  const rest = [...words];
  while (rest.length > 0) {
    const word = rest.shift();
    if (!word.startsWith("-") || word === "-") {
      urls.push(word);
      continue;
    }
    const { flag, attached } = find(word);
    const [long, , option, kind] = flag;
    let value = true;
    if (kind !== undefined) {
      value = attached ?? rest.shift();
      if (value === undefined) throw new InvalidArgumentError(`--${long} needs a value: ${kind}`);
    } else if (attached !== undefined) {
      throw new InvalidArgumentError(`--${long} takes no value`);
    }
    if (REPEATED.has(option)) options[option] = [...(options[option] ?? []), value];
    else options[option] = value;
  }
  return { options, urls };
}

/** The flag of a word, and a value that is attached to it: `--name=value`, `-n100`, `-n=100`. */
function find(word) {
  const equals = word.indexOf("=");
  if (word.startsWith("--")) {
    const name = word.slice(2, equals < 0 ? undefined : equals);
    const flag = FLAGS.find(([long, , , , , other]) => long === name || other === name);
    if (flag === undefined) {
      const problem = unknown(name, new Set(FLAGS.map(([long]) => long)));
      throw new InvalidArgumentError(
        problem.replace(/option (\S+)/, "option --$1").replace("mean ", "mean --"),
      );
    }
    return { flag, attached: equals < 0 ? undefined : word.slice(equals + 1) };
  }
  const flag = FLAGS.find(([, short]) => short === word[1]);
  if (flag === undefined) throw new InvalidArgumentError(`unknown option ${word}`);
  const after = word.slice(2);
  return { flag, attached: after === "" ? undefined : after.replace(/^=/, "") };
}

function help() {
  const lines = FLAGS.map(([long, short, , kind, text]) => {
    const names = `${short === undefined ? "    " : `-${short}, `}--${long}${kind === undefined ? "" : ` ${kind}`}`;
    return `  ${names.padEnd(32)}${text}`;
  });
  return ["Usage: tidewire-loadtest [options] URL", "", ...lines].join("\n");
}

module.exports = { help, parse };
