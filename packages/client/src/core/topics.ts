/** Names of topics and patterns (PROTOCOL 19.1). */

export function isPattern(topic: string): boolean {
  return /[*>]/.test(topic);
}

/** A test for the topics that a pattern takes. */
export function compilePattern(pattern: string): (topic: string) => boolean {
  const segments = pattern.split(".");
  const isOpen = segments.at(-1) === ">";
  return (topic) => {
    const names = topic.split(".");
    if (isOpen ? names.length < segments.length : names.length !== segments.length) return false;
    return segments.every((segment, index) => segment === "*" || segment === names[index] || segment === ">");
  };
}

/** Options of a subscription as they stand in the request (PROTOCOL 7.5). */
export interface WireOptions {
  filter?: object;
  overload?: string;
  queue_group?: string;
  acknowledge?: true;
  window?: number;
  presence?: object;
}
