/** Production: an error of the client says its code, and unknown options have no effect. */

export const DEVELOPMENT = false as boolean;

export function checkClient(..._: unknown[]): void {}
export function checkEndpoints(..._: unknown[]): void {}
export function checkPublish(..._: unknown[]): void {}
export function checkSubscribe(..._: unknown[]): void {}
