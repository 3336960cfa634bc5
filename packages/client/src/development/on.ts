/** Development: errors come with an explanation, and options are checked. Node has it always. */

export { checkClient, checkEndpoints, checkPublish, checkSubscribe, explainFlaw } from "./checks.js";

export const DEVELOPMENT = true as boolean;
