/**
 * One connection for all tabs of an origin. The tabs elect one by Web Locks; it opens the
 * connection, and the others reach it over BroadcastChannel. Each tab keeps its own session: what
 * it subscribes, asks and sends is its own.
 */

import { layerSizesOf } from "./core/size.js";
import type { ResolvedOptions, SharedHost, SharedPort } from "./options.js";
import { Group } from "./shared/group.js";
import { Pipe } from "./shared/pipe.js";
import { browserRealm, type Realm } from "./shared/realm.js";
import type { OpenOptions, Transport } from "./transport.js";

export interface SharedOptions {
  /**
   * Who uses the connection, such as the user's id. Tabs with another key have another connection.
   * Needed where the token is no JSON Web Token or travels in a cookie: the client sees the user of
   * a JSON Web Token by itself. Default "".
   */
  key?: string;
}

/** Lets all tabs of the origin use one connection, where the browser can. */
export function shared(options: SharedOptions = {}): SharedPort {
  return sharedIn(browserRealm(), options);
}

/** @internal The same with other means than those of the page. */
export function sharedIn(realm: Realm | undefined, { key = "" }: SharedOptions = {}): SharedPort {
  return {
    transport(base, options, host) {
      if (realm) return sharedTransport(realm, key, base, options, host);
      host.degraded("a page has Web Locks on https and localhost only: each tab has a connection of its own");
      return base;
    },
  };
}

function sharedTransport(
  realm: Realm,
  key: string,
  base: Transport,
  options: ResolvedOptions,
  host: SharedHost,
): Transport {
  // Between tabs messages are as the format has them; the tab that leads applies the layers.
  const { compression, encryption, signing } = options;
  const all: ResolvedOptions = { ...options };
  options.layerSizes = layerSizesOf(all);
  delete options.compression;
  delete options.encryption;
  delete options.signing;
  const { protocols, format } = options;
  const urls = [...options.urls].sort();
  const layers = [format?.query, compression, encryption, signing].map((layer) => layer && true);
  let isAlone = false;
  const alone = (reason: string) => {
    if (isAlone) return;
    isAlone = true;
    Object.assign(options, { compression, encryption, signing });
    host.degraded(`this tab has a connection of its own: ${reason}`);
  };
  return {
    canSendHeaders: base.canSendHeaders,
    canSendAnyCode: base.canSendAnyCode,
    prefersBatches: base.prefersBatches,
    open(open, handler) {
      if (isAlone) return base.open(open, handler);
      const name = `tidewire:${JSON.stringify([key, userOf(open), urls, protocols, layers])}`;
      let group = realm.groups.get(name);
      if (!group) realm.groups.set(name, (group = new Group(name, realm)));
      return new Pipe(group, { base, options: all, open, alone }, handler);
    },
  };
}

/** The subject of the JSON Web Token with which a connection is opened, if there is one. */
function userOf({ url, protocols, headers }: OpenOptions): unknown {
  const token = /eyJ[\w-]+\.([\w-]+)\.[\w-]/.exec([url, ...protocols, ...Object.values(headers)].join(" "));
  try {
    const { iss, sub } = JSON.parse(atob(token![1]!.replaceAll("-", "+").replaceAll("_", "/")));
    return [iss, sub];
  } catch {
    return undefined;
  }
}
