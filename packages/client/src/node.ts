/** The entry point `@tidewire/client/node`: the transport on `node:net` and `node:tls`. */

export {
  type NodeSocket,
  type NodeSocketHandler,
  type NodeTransport,
  type NodeTransportOptions,
  nodeTransport,
} from "./transport/node.js";
export { PreparedFrame } from "./transport/prepared.js";
export type {
  CloseInfo,
  Frame,
  OpenOptions,
  OutgoingFrame,
  Socket,
  SocketHandler,
  Transport,
} from "./transport.js";
