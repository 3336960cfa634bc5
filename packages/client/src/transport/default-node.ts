import { nodeTransport } from "./node.js";

export const defaultTransport = () => nodeTransport();
