/** Topics with the types of their payloads. These are types alone: nothing is left of them at run time. */

import type { Client, Published, PublishOptions } from "./client.js";
import type { SubscribeOptions, Subscription } from "./subscription.js";

/** The payload of a topic by the map `Topics`; `unknown` for a topic that it does not have. */
export type PayloadOf<Topics, Name extends string> = Name extends keyof Topics ? Topics[Name] : unknown;

/** A client that knows the types of payloads: `connect<Topics>(url)`. Topics that `Topics` does not have are as ever. */
export interface TypedClient<Topics extends object> extends Client {
  subscribe<Name extends keyof Topics & string>(
    topics: Name | readonly Name[],
    options?: SubscribeOptions,
  ): Subscription<Topics[Name]>;
  subscribe<T = unknown>(topics: string | readonly string[], options?: SubscribeOptions): Subscription<T>;

  publish<Name extends string>(
    topic: Name,
    payload: PayloadOf<Topics, Name>,
    options?: PublishOptions,
  ): Promise<Published>;
}
