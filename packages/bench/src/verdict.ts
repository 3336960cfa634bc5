/** Whether a figure can be believed, and why not: the rules of the lab, as pure functions of the evidence. */

import { sumOf, type Tally } from "./account.js";
import { grouped, percent } from "./number.js";
import { bottleneckOf, clientShare, SATURATED_SHARE, serverShare, type Usage } from "./usage.js";

export type Verdict = "valid" | "noisy" | "generator_bound" | "failed";

/** The purpose of a test, which decides what spoils it. */
export type Aim = "saturate" | "round_trips" | "keep";

/** The counts of both sides in one test; counts of actions that it does not have are 0. */
export interface Evidence {
  aim: Aim;
  /** Whether the test sends messages, so that it has failed without any. */
  sends: boolean;
  offered: number;
  /** Messages proven read, those that were refused left out. */
  confirmed: number;
  delivered: number | undefined;
  refused: number | undefined;
  refusedBy: Tally;
  connectionsAttempted: number;
  connectionsFailed: number;
  pings: number;
  pongsLost: number;
  pongsStrange: number;
  wrong: number;
  gaps: number;
  duplicates: number;
  /** Something was published, and no subscriber got anything. */
  isUnheard: boolean;
  countersError: string | undefined;
  pace: PaceKept | undefined;
  /** Seconds for which the generator waited for cores that other programs had. */
  waitedForOthersS: number | undefined;
  /** The 99th percentile of how late messages left, in microseconds. */
  lateP99Us: number | undefined;
  latencyP99Us: number | undefined;
  usage: Usage;
  /** The confirmations of each whole quarter of a second. */
  windows: number[];
}

/** How a given rate was kept. */
export interface PaceKept {
  plannedPerS: number;
  planned: number;
  offered: number;
  windowS: number;
  offeredS: number;
}

/** A verdict and its reasons. */
export interface Judgement {
  verdict: Verdict;
  doubts: string[];
  notes: string[];
}

type Doubt = readonly [name: string, verdict: Verdict, note: string];

const RANKS: readonly Verdict[] = ["valid", "noisy", "generator_bound", "failed"];
/** The reason of refusals that a plan may provoke on purpose. */
export const RATE_LIMIT = "rate";
const WAITED_SHARE_MAX = 0.1;
const DISTURBED_S_MIN = 0.02;
const NOISE_MAX = 0.25;
const NOISE_WINDOWS_MIN = 4;
const PACE_MISSED_MAX = 0.02;
const PACE_LATE_S_MAX = 0.05;
const LATE_US_MIN = 1000;
const LATE_US_MAX = 10_000;

/** Judges the evidence: a figure is valid if there is no doubt about it. */
export function judge(evidence: Evidence): Judgement {
  const doubts = [
    ...accountDoubts(evidence),
    ...contentDoubts(evidence),
    ...refusalDoubts(evidence),
    ...paceDoubts(evidence),
    ...generatorDoubts(evidence),
    ...noiseDoubts(evidence),
  ];
  const verdict = doubts.map((doubt) => doubt[1]).reduce(worse, "valid");
  const notes = doubts.map((doubt) => doubt[2]);
  return { verdict, doubts: doubts.map((doubt) => doubt[0]), notes: [...notes, ...remarks(evidence)] };
}

/** The worse of two verdicts. */
export function worse(one: Verdict, other: Verdict): Verdict {
  return RANKS.indexOf(one) >= RANKS.indexOf(other) ? one : other;
}

function failed(name: string, note: string): Doubt {
  return [name, "failed", note];
}

function accountDoubts(evidence: Evidence): Doubt[] {
  const { offered, confirmed, delivered } = evidence;
  const found: Doubt[] = [];
  const read = confirmed + (evidence.refused ?? 0);
  const counted = Math.min(confirmed, delivered ?? confirmed);
  const isEmpty =
    offered === 0 && (evidence.sends || (evidence.connectionsAttempted === 0 && evidence.pings === 0));
  if (isEmpty) {
    found.push(
      failed(
        "nothing_sent",
        "No message was sent, or nothing was opened: check the target and the duration.",
      ),
    );
  }
  if (offered > 0 && counted === 0 && read >= offered) {
    found.push(failed("nothing_confirmed", `Not one of ${grouped(offered)} offered messages was accepted.`));
  }
  if (read < offered) {
    const lost = `${grouped(offered - read)} of ${grouped(offered)} offered messages were never confirmed by the server.`;
    found.push(failed("messages_lost", `${lost} Look for closed connections in the server's log.`));
  }
  if (read > offered) {
    const more = `The server confirmed or refused ${grouped(read)} messages but only ${grouped(offered)} were offered.`;
    found.push(failed("messages_overconfirmed", `${more} Do not trust its figures.`));
  }
  if (delivered !== undefined) {
    const accounted = delivered + (evidence.refused ?? 0);
    const words = `${grouped(accounted)} messages (delivered and refused together), and ${grouped(offered)} were offered.`;
    if (accounted < offered)
      found.push(failed("counters_short", `The server's counters account for ${words}`));
    if (accounted > offered) {
      found.push(
        failed("counters_over", `The server's counters claim ${words} Does something else use this server?`),
      );
    }
  }
  if (evidence.connectionsFailed > 0) {
    const words = `${grouped(evidence.connectionsFailed)} of ${grouped(evidence.connectionsAttempted)} connections failed.`;
    found.push(
      failed("connections_failed", `${words} Check the server's limits and both sides' open files.`),
    );
  }
  if (evidence.pongsLost > 0) {
    const words = `${grouped(evidence.pongsLost)} of ${grouped(evidence.pings)} pings were never answered.`;
    found.push(failed("pongs_lost", `${words} Look for stalls or closed connections in the server's log.`));
  }
  return found;
}

function contentDoubts(evidence: Evidence): Doubt[] {
  const counted: [count: number, name: string, note: string][] = [
    [
      evidence.pongsStrange,
      "pongs_strange",
      "pongs came that answer no open ping. Do not trust this server's figures.",
    ],
    [evidence.gaps, "publications_missed", "publications were missed by subscribers that got later ones."],
    [evidence.duplicates, "publications_doubled", "publications came again, or after later ones."],
    [evidence.wrong, "publications_wrong", "messages had another content than was published."],
  ];
  const found = counted
    .filter(([count]) => count > 0)
    .map(([count, name, note]) => failed(name, `${grouped(count)} ${note}`));
  if (evidence.isUnheard) found.push(failed("publications_unheard", "No subscriber got anything."));
  return found;
}

function refusalDoubts(evidence: Evidence): Doubt[] {
  const found: Doubt[] = [];
  for (const [reason, count] of Object.entries(evidence.refusedBy)) {
    if (reason !== RATE_LIMIT && count > 0) {
      found.push(failed("messages_refused", `${grouped(count)} messages were refused: ${reason}.`));
    }
  }
  if (evidence.countersError !== undefined)
    found.push(failed("counters_unreadable", `${evidence.countersError}.`));
  return found;
}

function paceDoubts(evidence: Evidence): Doubt[] {
  const { pace } = evidence;
  if (pace === undefined) return [];
  const enough = pace.offered >= pace.planned * (1 - PACE_MISSED_MAX);
  const isInTime = pace.offeredS <= pace.windowS * (1 + PACE_MISSED_MAX) + PACE_LATE_S_MAX;
  if (enough && isInTime) return [];
  const words = `${grouped(Math.round(pace.plannedPerS))} messages a second were planned`;
  const note = `${words}, and the generator did not hand on so many in their time. Use more processes.`;
  return [["pace_missed", "generator_bound", note]];
}

function generatorDoubts(evidence: Evidence): Doubt[] {
  const { usage, waitedForOthersS, lateP99Us, latencyP99Us } = evidence;
  const found: Doubt[] = [];
  if (usage.durationS <= 0) return found;
  const isMuch = Math.max(usage.durationS * WAITED_SHARE_MAX, DISTURBED_S_MIN);
  if (waitedForOthersS !== undefined && waitedForOthersS >= isMuch) {
    const words = `The generator waited ${waitedForOthersS.toFixed(2)} s for cores that other programs had.`;
    found.push([
      "generator_starved",
      "generator_bound",
      `${words} Stop them, or measure on a quiet machine.`,
    ]);
  }
  const lateMax = latencyP99Us === undefined ? LATE_US_MAX : Math.max(latencyP99Us / 2, LATE_US_MIN);
  if (lateP99Us !== undefined && lateP99Us >= lateMax) {
    const words = `One message in a hundred left ${grouped(Math.round(lateP99Us))} µs or more after its time.`;
    found.push(["generator_late", "generator_bound", words]);
  }
  if (evidence.aim !== "keep" && bottleneckOf(usage) === "client") {
    const words = `The generator used ${percent(clientShare(usage))} of the processor time that it could have`;
    const meaning =
      evidence.aim === "saturate"
        ? "the server can do more than this figure. Use --processes."
        : "it adds to each round trip. Use --processes, or fewer connections.";
    found.push(["generator_saturated", "generator_bound", `${words}: ${meaning}`]);
  }
  return found;
}

function noiseDoubts(evidence: Evidence): Doubt[] {
  const noise = variation(evidence.windows);
  if (evidence.aim !== "saturate" || noise === undefined || noise <= NOISE_MAX) return [];
  return [["noisy", "noisy", `The rate varied by ${percent(noise)} between quarters of a second.`]];
}

/** The standard deviation of windows without the first, divided by their mean; `undefined` for too few. */
export function variation(windows: readonly number[]): number | undefined {
  const counts = windows.slice(1);
  if (counts.length < NOISE_WINDOWS_MIN) return undefined;
  const mean = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  const squares = counts.reduce((sum, count) => sum + (count - mean) ** 2, 0);
  return mean > 0 ? Math.sqrt(squares / (counts.length - 1)) / mean : undefined;
}

/** Notes for a reader about figures that are right. */
function remarks(evidence: Evidence): string[] {
  const found: string[] = [];
  const limited = evidence.refusedBy[RATE_LIMIT] ?? 0;
  if (limited > 0) {
    found.push(
      `${grouped(limited)} of ${grouped(evidence.offered)} offered messages were refused by the server's rate limit ` +
        "and are not in the rate. Raise its rate limit to measure without it.",
    );
  }
  if (evidence.aim === "saturate") found.push(...limitRemark(evidence.usage));
  return found;
}

/** The limit of a rate, where that was not one side's processor time. */
function limitRemark(usage: Usage): string[] {
  const server = serverShare(usage);
  const shown = server === undefined ? "is not known" : percent(server);
  switch (bottleneckOf(usage)) {
    case "both": {
      const shared =
        usage.sharedCores > 0
          ? ` They share ${usage.sharedCores} of their cores, so that each takes time from the other: the figure is a lower ` +
            "bound. Give each cores of its own, as with `taskset`."
          : "";
      const client = percent(clientShare(usage));
      return [
        `The generator used ${client} of the processor time that it could have, and the server ${shown}.${shared}`,
      ];
    }
    case "none":
      return [
        `Neither side was seen to use ${percent(SATURATED_SHARE)} of the processor time that it could have (the generator ` +
          `${percent(clientShare(usage))}, the server ${shown}): the network, waiting, or work outside both processes ` +
          "was the limit. Try more connections.",
      ];
    default:
      return [];
  }
}

/** Refusals of all reasons. */
export function refusedOf(refusedBy: Tally): number {
  return sumOf(refusedBy);
}
