// The package for `import`: the same objects that `require` gives.

import tidewire from "./index.js";

export const {
  AddressError,
  Batch,
  BusyError,
  CallError,
  CallTimeoutError,
  ConfigurationError,
  Connection,
  ConnectionClosedError,
  Filter,
  InvalidArgumentError,
  InvalidMessageError,
  jsonToMsgpack,
  jwt,
  load,
  LoadResult,
  Message,
  msgpackToJson,
  RawJson,
  SecurityError,
  Server,
  StoppedError,
  TidewireError,
  TokenError,
  version,
  WrongTypeError,
} = tidewire;
export default tidewire;
