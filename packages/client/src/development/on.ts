/** Development: errors have an explanation, and options are checked. Node always uses it. */

export { checkClient, checkEndpoints, checkPublish, checkSubscribe, explainFlaw } from "./checks.js";

export const DEVELOPMENT = true as boolean;
