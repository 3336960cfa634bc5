/** Several addresses of one service: the next one is chosen by health, and one that fails is left alone for a while. */

import { checkEndpoints, DEVELOPMENT } from "#development";
import { type BreakerOptions, defaultBreaker } from "./core/breaker.js";
import { type EndpointChoice, type EndpointHealth, Endpoints } from "./core/endpoints.js";
import { addressOf, type EndpointList, given, invalid, withoutSecrets } from "./options.js";

export type { BreakerOptions } from "./core/breaker.js";
export type { EndpointChoice, EndpointHealth } from "./core/endpoints.js";
export type { EndpointList } from "./options.js";

/** One address of the service. */
export interface Endpoint {
  /** Such as `wss://a.example.com/ws`. In a page it may be relative to the page. */
  url: string;
  /** How much of the load it gets, relative to the others. Default 1. */
  weight?: number;
}

export interface EndpointsOptions {
  /** How the next endpoint is chosen. Default `weighted`, by weight and health. */
  choice?: EndpointChoice;
  /** The circuit breaker of each endpoint. Default 5 failures, open for 30,000 ms, 1 trial. */
  breaker?: Partial<BreakerOptions>;
}

/** How many connections this program has to each address. */
const connections = new Map<string, number>();

/** The first argument of `connect` where a service has several addresses. Throws `INVALID_OPTION`. */
export function endpoints(
  addresses: readonly (string | URL | Endpoint)[],
  options: EndpointsOptions = {},
): EndpointList {
  const { choice = "weighted" } = options;
  const breaker = { ...defaultBreaker, ...given(options.breaker ?? {}) };
  const list = addresses.map((address) => {
    const { url, weight = 1 } =
      typeof address === "string" || address instanceof URL ? { url: String(address) } : address;
    if (!(weight >= 1))
      throw invalid(DEVELOPMENT && `the weight of ${withoutSecrets(url)} must be at least 1`);
    return { url: addressOf(url), weight };
  });
  if (!list.length) throw invalid(DEVELOPMENT && "there must be at least one endpoint");
  checkEndpoints(options, breaker);
  // With one address there is no other to go to: the back-off alone decides how often to try.
  if (list.length === 1) breaker.failuresMax = 0;
  const known = new Endpoints(list, choice, breaker);
  return {
    urls: list.map(({ url }) => url),
    health: (): EndpointHealth[] => known.health(performance.now()),
    choose(nowMs, leftOut) {
      const counts = list.map(({ url }) => connections.get(url) ?? 0);
      return known.choose(nowMs, Math.random(), counts, leftOut);
    },
    count(index, step) {
      const { url } = list[index]!;
      connections.set(url, (connections.get(url) ?? 0) + step);
    },
    succeeded: (index, connectMs) => known.succeeded(index, connectMs),
    failed: (index, nowMs) => known.failed(index, nowMs),
    waitMs: (nowMs) => known.waitMs(nowMs),
  };
}
