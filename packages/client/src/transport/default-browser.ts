import { browserTransport } from "./browser.js";

export const defaultTransport = () => browserTransport();
