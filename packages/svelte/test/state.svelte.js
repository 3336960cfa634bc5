/** A state that components follow. @template T @param {T} value */
export function stateOf(value) {
  const state = $state(value);
  return state;
}
