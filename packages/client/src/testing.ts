/** `@tidewire/client/testing`: a fake transport, so that an application's tests play the server. */

export { FakeConnection, FakeTransport } from "./transport/memory.js";
