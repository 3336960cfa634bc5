/**
 * Pairings of tournaments.
 *
 * Round robin: everybody meets everybody once, by the circle method. Swiss: few rounds; in each,
 * players of equal points meet and no two players meet twice.
 */

/** One player of a Swiss tournament before a round. */
export interface Standing {
  player: string;
  points: number;
  /** The place in the order of registration, from 0: it orders players of equal points. */
  seed: number;
  opponents: ReadonlySet<string>;
  /** Games with White minus games with Black. */
  whiteSurplus: number;
  lastColor: "white" | "black" | null;
  hadBye: boolean;
}

/** White and Black of a game; without Black it is a bye, which counts as a win. */
export interface Pair {
  white: string;
  black: string | null;
}

/** All rounds of a round robin. With an odd number of players one of each round has no game. */
export function roundRobin(players: readonly string[]): Pair[][] {
  const circle: (string | null)[] = [...players];
  if (circle.length % 2 === 1) circle.push(null);
  const half = circle.length / 2;
  const rounds: Pair[][] = [];
  for (let round = 0; round < circle.length - 1; round += 1) {
    const pairs: Pair[] = [];
    for (let table = 0; table < half; table += 1) {
      const [a, b] = [circle[table] ?? null, circle[circle.length - 1 - table] ?? null];
      if (a === null || b === null) continue;
      // The first table alternates by rounds, because one of its players never moves; the others
      // alternate by tables.
      const isFirstWhite = table === 0 ? round % 2 === 0 : table % 2 === 1;
      pairs.push(isFirstWhite ? { white: a, black: b } : { white: b, black: a });
    }
    rounds.push(pairs);
    circle.splice(1, 0, circle.pop() ?? null);
  }
  return rounds;
}

/**
 * Rounds that a Swiss tournament needs so that at most one player can win all games: the binary
 * logarithm, rounded up.
 */
export function swissRounds(players: number): number {
  return Math.max(1, Math.ceil(Math.log2(players)));
}

/** Steps of the search for pairs without a rematch; it bounds the time of a pairing. */
const STEPS_MAX = 20_000;

/** The pairs of the next Swiss round. */
export function swissRound(standings: readonly Standing[]): Pair[] {
  const ordered = [...standings].sort((a, b) => b.points - a.points || a.seed - b.seed);
  const bye = ordered.length % 2 === 1 ? byeOf(ordered) : undefined;
  const playing = ordered.filter((standing) => standing !== bye);
  const couples =
    search(playing, (a, b) => !a.opponents.has(b.player) && !isColorBlocked(a, b)) ??
    search(playing, (a, b) => !a.opponents.has(b.player)) ??
    // More rounds than there are opponents: a rematch is better than no game.
    search(playing, () => true) ??
    [];
  const pairs = couples.map(([a, b]) => colored(a, b));
  return bye ? [...pairs, { white: bye.player, black: null }] : pairs;
}

/** The lowest player who has not had a bye. */
function byeOf(ordered: readonly Standing[]): Standing | undefined {
  return ordered.findLast(({ hadBye }) => !hadBye) ?? ordered.at(-1);
}

/** Whether both have had one color so much more often that neither may have it again. */
function isColorBlocked(a: Standing, b: Standing): boolean {
  return Math.abs(a.whiteSurplus) >= 2 && a.whiteSurplus === b.whiteSurplus;
}

/** Pairs from the top down; a choice that leaves somebody below without an opponent is undone. */
function search(
  players: readonly Standing[],
  mayMeet: (a: Standing, b: Standing) => boolean,
): [Standing, Standing][] | undefined {
  let steps = 0;
  const pairUp = (rest: readonly Standing[]): [Standing, Standing][] | undefined => {
    const [first, ...others] = rest;
    if (!first) return [];
    for (const candidate of preferred(first, others)) {
      if (!mayMeet(first, candidate)) continue;
      steps += 1;
      if (steps > STEPS_MAX) return undefined;
      const below = pairUp(others.filter((player) => player !== candidate));
      if (below) return [[first, candidate], ...below];
    }
    return undefined;
  };
  return pairUp(players);
}

/**
 * Opponents in the order in which they are tried: the upper half of equal points meets the lower
 * half, then those below.
 */
function preferred(first: Standing, others: readonly Standing[]): Standing[] {
  const equal = others.filter(({ points }) => points === first.points);
  const below = others.filter(({ points }) => points !== first.points);
  const half = Math.floor(equal.length / 2);
  return [...equal.slice(half), ...equal.slice(0, half).reverse(), ...below];
}

/**
 * White has the player with fewer games with White; between equals who had Black last, then the one
 * who stands lower.
 */
function colored(a: Standing, b: Standing): Pair {
  const difference = a.whiteSurplus - b.whiteSurplus;
  const isFirstWhite =
    difference !== 0
      ? difference < 0
      : a.lastColor !== b.lastColor
        ? a.lastColor === "black"
        : a.seed % 2 === 0;
  return isFirstWhite ? { white: a.player, black: b.player } : { white: b.player, black: a.player };
}
