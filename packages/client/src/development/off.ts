/** Production: the message of an error is its code alone, and unknown options have no effect. */

export const DEVELOPMENT = false as boolean;

// Bundlers leave out calls of empty functions, if these have plain parameters.
export function checkClient(_: unknown, _resolved: unknown): void {}
export function checkEndpoints(_: unknown, _breaker: unknown): void {}
export function checkPublish(_: unknown): void {}
export function checkSubscribe(_: unknown, _names: unknown, _options: unknown): void {}
export function explainFlaw(_: string, _value: unknown, _isBinary: unknown): string {
  return "";
}
