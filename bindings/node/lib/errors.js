"use strict";

// Errors, each with the party that has to act. The native module throws errors whose message is a JSON object;
// `translated` makes the class from it.

/**
 * The base of every error of this package.
 *
 * `code` is a stable name such as `BUSY`. `fault` says who has to act: `caller` (this program), `peer` (the other end),
 * `server`, or `nobody` (try later). `retryAfterMs` is the time after which another try makes sense, or `undefined`.
 */
class TidewireError extends Error {
  constructor(message, { code, fault, retryAfterMs, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code ?? new.target.code;
    this.fault = fault ?? new.target.fault;
    this.retryAfterMs = retryAfterMs ?? undefined;
  }
}
TidewireError.code = "ERROR";
TidewireError.fault = "caller";

/** An option is unknown, or has a value that cannot be used. */
class ConfigurationError extends TidewireError {}
ConfigurationError.code = "CONFIGURATION";

/** An argument has a value that cannot be used. */
class InvalidArgumentError extends TidewireError {}
InvalidArgumentError.code = "INVALID_ARGUMENT";

/** An argument has a type that cannot be used. */
class WrongTypeError extends TidewireError {}
WrongTypeError.code = "WRONG_TYPE";

/** The address is in use, not of this machine, or not permitted. */
class AddressError extends TidewireError {}
AddressError.code = "ADDRESS";

/** A message that was received is not what it should be. */
class InvalidMessageError extends TidewireError {}
InvalidMessageError.code = "INVALID_MESSAGE";
InvalidMessageError.fault = "peer";

/** A token is not accepted. */
class TokenError extends TidewireError {}
TokenError.code = "AUTH_FAILED";
TokenError.fault = "peer";

/** The other side has not caught up; nothing was done, try again. */
class BusyError extends TidewireError {}
BusyError.code = "BUSY";
BusyError.fault = "nobody";

/** The server has stopped, or was not started. */
class StoppedError extends TidewireError {}
StoppedError.code = "STOPPED";

/** A request was not answered, or was answered with an error. A handler that throws it rejects its message. */
class CallError extends TidewireError {}
CallError.code = "CALL_FAILED";
CallError.fault = "peer";

/** No answer came in time. Whether the request was carried out is not known. */
class CallTimeoutError extends CallError {}
CallTimeoutError.code = "TIMEOUT";

/** The connection is gone. */
class ConnectionClosedError extends TidewireError {}
ConnectionClosedError.code = "CONNECTION_CLOSED";
ConnectionClosedError.fault = "peer";

/** A signature or an encrypted message is not what its key says. */
class SecurityError extends TidewireError {}
SecurityError.code = "SECURITY";
SecurityError.fault = "peer";

const classes = {
  TidewireError,
  ConfigurationError,
  InvalidArgumentError,
  WrongTypeError,
  AddressError,
  InvalidMessageError,
  TokenError,
  BusyError,
  StoppedError,
  CallError,
  CallTimeoutError,
  ConnectionClosedError,
  SecurityError,
};

/** The error of this package for what the native module has thrown; an error that is not of its kind as it is. */
function translated(error) {
  if (error instanceof TidewireError || !(error instanceof Error)) return error;
  if (error.message.startsWith('{"')) {
    try {
      const { class: name, message, ...fields } = JSON.parse(error.message);
      const own = new classes[name](message, fields);
      Error.captureStackTrace(own, translated);
      return own;
    } catch {
      return error;
    }
  }
  // The native module has refused an argument because of its type.
  if (typeof error.code === "string" && error.code.endsWith("Expected")) {
    return new WrongTypeError(error.message, { cause: error });
  }
  return error;
}

module.exports = { ...classes, translated };
