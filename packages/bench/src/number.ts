/** Numbers as people read them. */

/** A whole number with commas. */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** A share as a percentage. */
export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** A number of seconds, microseconds or messages with three digits that count. */
export function short(value: number): string {
  if (value >= 1000) return grouped(value);
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
