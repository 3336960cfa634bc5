import { deflateSync, inflateSync } from "node:zlib";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compress } from "../../src/compress.js";
import { hex, utf8 } from "../../src/core/bytes.js";
import { msgpack } from "../../src/msgpack.js";
import { helloOf, keysOf, type SessionCase } from "../encryption-cases.js";
import { hmacCases, partsOf } from "../signature-cases.js";
import { framesAfter, type MessageCase, unhex, vectors } from "../vectors.js";
import type { Layers } from "./layers.page.js";
import { type Chromium, launch, type Site, serve } from "./page.js";

declare const layers: Layers;

let site: Site;
let chromium: Chromium;
let page: Page;

beforeAll(async () => {
  [site, chromium] = await Promise.all([serve("layers.page.ts"), launch()]);
  page = await chromium.context.newPage();
  await page.goto(site.url);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
});

/** Calls a function of the page. */
function call<K extends keyof Layers>(name: K, ...values: Parameters<Layers[K]>): Promise<unknown> {
  return page.evaluate(([name, values]) => (layers[name] as (...values: unknown[]) => unknown)(...values), [
    name,
    values,
  ] as const);
}

const messages = ["envelopes", "malformed"].flatMap((file) => vectors<MessageCase>(file));

describe("layers in Chromium", { timeout: 60_000 }, () => {
  test("MessagePack is read and written as in Node", async () => {
    const format = msgpack();
    for (const one of messages) {
      for (const frame of framesAfter("4d3a", one)) {
        let expected: unknown = "PROTOCOL_ERROR";
        try {
          const found = format.read(frame);
          expected = found.p instanceof Uint8Array ? found : JSON.parse(JSON.stringify(found));
        } catch {}
        expect(await call("read", hex(frame)), one.name).toEqual(expected);
        if (expected === "PROTOCOL_ERROR") continue;
        const { p, ...fields } = format.read(frame);
        const again = format.envelope(fields as never, p === undefined ? p : format.payload(p)) as Uint8Array;
        expect(await call("again", hex(frame))).toBe(hex(again));
      }
    }
  });

  test("compressed messages are inflated, broken ones refused, whatever stands behind them", async () => {
    let [good, bad] = [0, 0];
    for (const one of messages) {
      for (const frame of framesAfter("433a", one)) {
        const isBroken = one.reason === "inflate";
        const expected = isBroken
          ? "PROTOCOL_ERROR"
          : hex((await compress().inflate(frame, 1 << 20)) as Uint8Array);
        expect(await call("inflate", hex(frame), 1 << 20), one.name).toBe(expected);
        if (isBroken) bad += 1;
        else good += 1;
      }
    }
    expect([good > 50, bad > 5]).toEqual([true, true]);
    const whole = deflateSync(utf8("tide"));
    for (const more of [whole, whole.subarray(-4), Uint8Array.of(0)]) {
      expect(await call("inflate", hex(Uint8Array.of(...whole, ...more)), 100)).toBe("PROTOCOL_ERROR");
    }
  });

  test("the limit holds while a message is inflated", async () => {
    const deflated = hex(deflateSync(new Uint8Array(1_000)));
    expect(await call("inflate", deflated, 1_000)).toBe("00".repeat(1_000));
    expect(await call("inflate", deflated, 999)).toBe("MESSAGE_TOO_LARGE");
    expect(await call("inflate", hex(deflateSync(new Uint8Array(64 << 20))), 1 << 16)).toBe(
      "MESSAGE_TOO_LARGE",
    );
    const text = hex(utf8("tide".repeat(500)));
    const own = (await call("deflate", text)) as string;
    expect(hex(inflateSync(unhex(own)))).toBe(text);
  });

  test.each(hmacCases())("signature: $name", async (one) => {
    const { fields, payload } = partsOf(one);
    const { secret, version, time_unix_s, nonce } = one;
    expect(await call("sign", secret, version, fields, hex(payload), time_unix_s, nonce)).toBe(one.signature);
  });

  const sessions = vectors<SessionCase>("encryption");
  test.each(sessions.filter(({ kind }) => kind === "session"))("encryption: $name", async (one) => {
    const { privateKey, publicKey } = keysOf(one);
    await call("begin", privateKey, publicKey, one.client_iv_random ?? "00000000");
    expect(await call("accept", helloOf(one), one.connection_id ?? "")).toBeUndefined();
    for (const { from, plain, sealed, then_key } of one.messages) {
      const isOurs = from === "client";
      if (isOurs) expect(await call("seal", plain)).toBe(sealed);
      else expect(await call("open", sealed.slice(4))).toBe(plain);
      if (then_key) await call(isOurs ? "updateSealingKey" : "updateOpeningKey");
    }
    for (const { by, sealed } of one.refused) {
      if (by === "client" && sealed.startsWith("453a")) {
        expect(await call("open", sealed.slice(4))).toBe("PROTOCOL_ERROR");
      }
    }
  });

  const session = sessions.find(({ version }) => version === 2)!;
  test.each(sessions.filter(({ kind }) => kind === "public_key"))("encryption: $name", async (one) => {
    const { privateKey, publicKey } = keysOf(session);
    await call("begin", privateKey, publicKey, "00000000");
    const key = Buffer.from(one.public_key, "hex").toString("base64");
    const outcome = await call("accept", { encryption_public_key: key }, "");
    expect(outcome).toBe(one.usable ? undefined : "KEY_EXCHANGE_FAILED");
  });

  test("a page of plain http has no encryption, but MessagePack and compression", async () => {
    const plain = await chromium.context.newPage();
    await plain.goto(site.plainUrl);
    expect(await plain.evaluate(() => layers.encrypt())).toBe("NOT_SUPPORTED");
    expect(await plain.evaluate(() => layers.read("81a17401"))).toEqual({ t: 1 });
    const deflated = hex(deflateSync(utf8("tide")));
    expect(await plain.evaluate((deflated) => layers.inflate(deflated, 100), deflated)).toBe(
      hex(utf8("tide")),
    );
    await plain.close();
  });
});
