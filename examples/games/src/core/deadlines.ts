/**
 * Deadlines by key: a binary heap with the place of each key, so that a deadline moves without
 * leaving an entry behind.
 */
export class Deadlines {
  readonly #keys: string[] = [];
  readonly #at = new Map<string, number>();
  readonly #place = new Map<string, number>();

  /** The earliest deadline. */
  get next(): { key: string; atMs: number } | undefined {
    const key = this.#keys[0];
    return key === undefined ? undefined : { key, atMs: this.#time(key) };
  }

  get size(): number {
    return this.#keys.length;
  }

  /** Sets the deadline of a key, or removes it. */
  set(key: string, atMs: number | undefined): void {
    if (atMs === undefined) {
      this.#remove(key);
      return;
    }
    const known = this.#place.get(key);
    this.#at.set(key, atMs);
    if (known === undefined) {
      this.#put(key, this.#keys.length);
      this.#up(this.#keys.length - 1);
    } else {
      this.#up(known);
      this.#down(this.#place.get(key) ?? known);
    }
  }

  #remove(key: string): void {
    const place = this.#place.get(key);
    if (place === undefined) return;
    const last = this.#keys.pop();
    this.#place.delete(key);
    this.#at.delete(key);
    if (last === undefined || last === key) return;
    this.#put(last, place);
    this.#up(place);
    this.#down(this.#place.get(last) ?? place);
  }

  #time(key: string): number {
    return this.#at.get(key) ?? Infinity;
  }

  #put(key: string, place: number): void {
    this.#keys[place] = key;
    this.#place.set(key, place);
  }

  #up(start: number): void {
    let place = start;
    const key = this.#keys[place];
    if (key === undefined) return;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = this.#keys[parent];
      if (above === undefined || this.#time(above) <= this.#time(key)) break;
      this.#put(above, place);
      place = parent;
    }
    this.#put(key, place);
  }

  #down(start: number): void {
    let place = start;
    const key = this.#keys[place];
    if (key === undefined) return;
    for (;;) {
      const left = 2 * place + 1;
      const right = left + 1;
      let child = left;
      const [leftKey, rightKey] = [this.#keys[left], this.#keys[right]];
      if (leftKey === undefined) break;
      if (rightKey !== undefined && this.#time(rightKey) < this.#time(leftKey)) child = right;
      const below = this.#keys[child];
      if (below === undefined || this.#time(below) >= this.#time(key)) break;
      this.#put(below, place);
      place = child;
    }
    this.#put(key, place);
  }
}
