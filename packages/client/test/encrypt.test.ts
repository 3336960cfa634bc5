import { afterEach, describe, expect, test, vi } from "vitest";
import { base64, hex, utf8 } from "../src/core/bytes.js";
import type { Envelope, KeyExchange } from "../src/core/layers.js";
import { encrypt, keyExchange } from "../src/encrypt.js";
import { sign } from "../src/sign.js";
import { helloOf, keysOf, type SessionCase } from "./encryption-cases.js";
import { unhex, vectors } from "./vectors.js";

const ECDH = { name: "ECDH", namedCurve: "P-256" };
const cases = vectors<SessionCase>("encryption");
const sessions = cases.filter((one) => one.kind === "session");
const [one, two] = [1, 2].map((version) => sessions.find((session) => session.version === version)!) as [
  SessionCase,
  SessionCase,
];

async function pairOf(session: SessionCase): Promise<CryptoKeyPair> {
  const { privateKey, publicKey } = keysOf(session);
  return {
    privateKey: await crypto.subtle.importKey("jwk", privateKey, ECDH, false, ["deriveBits"]),
    publicKey: await crypto.subtle.importKey("jwk", publicKey, ECDH, true, []),
  };
}

/** An exchange of the client of this session that has not accepted a hello yet. */
async function begun(session: SessionCase, offered: 1 | 2 = 2, pinned?: Uint8Array): Promise<KeyExchange> {
  return keyExchange(await pairOf(session), offered, pinned, unhex(session.client_iv_random ?? "00000000"));
}

async function accepted(session: SessionCase): Promise<KeyExchange> {
  const exchange = await begun(session);
  await exchange.accept(helloOf(session), session.connection_id ?? "");
  return exchange;
}

/** What stands behind the prefix `E:`. */
const behind = (sealed: string) => unhex(sealed).subarray(2);

describe("encryption: vectors", () => {
  test.each(sessions)("$name", async (session) => {
    const exchange = await begun(session);
    expect(exchange.hello.encryption_public_key).toBe(base64(unhex(session.client_public_key)));
    await exchange.accept(helloOf(session), session.connection_id ?? "");
    expect(exchange.version).toBe(session.version);
    for (const { from, plain, sealed, then_key } of session.messages) {
      if (from === "client") {
        expect(hex(await exchange.seal(unhex(plain)))).toBe(sealed);
        if (then_key) await exchange.updateSealingKey();
      } else {
        expect(hex(await exchange.open(behind(sealed)))).toBe(plain);
        if (then_key) await exchange.updateOpeningKey();
      }
    }
    for (const { by, plain, sealed } of session.opened ?? []) {
      if (by === "client") expect(hex(await exchange.open(behind(sealed)))).toBe(plain);
    }
    const refused = session.refused.filter(({ by }) => by === "client");
    expect(refused.length).toBeGreaterThan(0);
    for (const { sealed, error } of refused) {
      if (unhex(sealed)[0] !== 0x45 || unhex(sealed)[1] !== 0x3a) continue;
      await expect(exchange.open(behind(sealed)), error).rejects.toMatchObject({ code: "PROTOCOL_ERROR" });
    }
  });

  test.each(cases.filter((session) => session.kind === "public_key"))("$name", async (session) => {
    const hello = {
      ...helloOf(two),
      encryption_public_key: base64(unhex(session.public_key)),
      encryption_version: 1,
    };
    const accepting = (await begun(two)).accept(hello, two.connection_id!);
    if (session.usable) await accepting;
    else await expect(accepting).rejects.toMatchObject({ code: "KEY_EXCHANGE_FAILED" });
  });
});

describe("encryption: a client", () => {
  test("calls in a row need not wait for one another, nor keep their bytes", async () => {
    const exchange = await accepted(two);
    const upTo = two.messages.findIndex((message) => message.then_key);
    const ours = two.messages.slice(0, upTo).filter(({ from }) => from === "client");
    const theirs = two.messages.slice(0, upTo).filter(({ from }) => from === "server");
    const sealing = ours.map(({ plain }) => {
      const bytes = unhex(plain);
      const sealed = exchange.seal(bytes);
      bytes.fill(1);
      return sealed;
    });
    const opening = theirs.map(({ sealed }) => {
      const bytes = behind(sealed);
      const opened = exchange.open(bytes);
      bytes.fill(1);
      return opened;
    });
    expect((await Promise.all(sealing)).map(hex)).toEqual(ours.map(({ sealed }) => sealed));
    expect((await Promise.all(opening)).map(hex)).toEqual(theirs.map(({ plain }) => plain));
  });

  test("a message sealed right after a key update has the next key, without waiting", async () => {
    const exchange = await accepted(two);
    const ours = two.messages.filter(({ from }) => from === "client");
    const sealing = ours.map(({ plain, then_key }) => {
      const sealed = exchange.seal(unhex(plain));
      if (then_key) void exchange.updateSealingKey();
      return sealed;
    });
    expect((await Promise.all(sealing)).map(hex)).toEqual(ours.map(({ sealed }) => sealed));
  });

  test("a message of version 2 that comes again, or before its turn, is refused", async () => {
    const upTo = two.messages.findIndex(({ from, then_key }) => from === "server" && then_key) + 1;
    const theirs = two.messages.slice(0, upTo).filter(({ from }) => from === "server");
    expect(theirs.length).toBeGreaterThan(1);
    const [first, second] = theirs.map(({ sealed }) => sealed);
    const refused = { code: "PROTOCOL_ERROR" };
    const again = await accepted(two);
    await again.open(behind(first!));
    await expect(again.open(behind(first!))).rejects.toMatchObject(refused);
    const early = await accepted(two);
    await expect(early.open(behind(second!))).rejects.toMatchObject(refused);
  });

  test("a server without encryption, of another version, or with half a key is refused", async () => {
    const hello = helloOf(two);
    const wrong: Envelope[] = [
      {},
      { ...hello, encryption_public_key: null },
      { ...hello, encryption_public_key: "BA==" },
      { ...hello, encryption_public_key: 5 },
      { ...hello, encryption_version: 3 },
      { ...hello, encryption_version: "2" },
      { ...hello, identity_signature: undefined },
      { ...hello, identity_public_key: undefined, identity_signature: undefined, encryption_version: 0 },
      { ...hello, identity_signature: base64(new Uint8Array(64)) },
    ];
    for (const one of wrong) {
      const accepting = (await begun(two)).accept(one, two.connection_id!);
      await expect(accepting, JSON.stringify(one)).rejects.toMatchObject({ code: "KEY_EXCHANGE_FAILED" });
    }
    const older = (await begun(two, 1)).accept(hello, two.connection_id!);
    await expect(older, "version 2 was not offered").rejects.toMatchObject({ code: "KEY_EXCHANGE_FAILED" });
    const another = (await begun(two)).accept(hello, two.connection_id!.replace("1", "2"));
    await expect(another, "the proof is for another connection").rejects.toMatchObject({
      code: "KEY_EXCHANGE_FAILED",
    });
  });

  test("a pinned server has to prove itself", async () => {
    const hello = helloOf(two);
    const pinned = unhex(two.identity_public_key!);
    await (await begun(two, 2, pinned)).accept(hello, two.connection_id!);
    const wrong: Envelope[] = [
      { ...hello, identity_public_key: undefined, identity_signature: undefined },
      { ...hello, encryption_version: 1 },
      { ...hello, encryption_version: undefined },
      { ...hello, identity_signature: base64(new Uint8Array(64)) },
    ];
    for (const one of wrong) {
      const accepting = (await begun(two, 2, pinned)).accept(one, two.connection_id!);
      await expect(accepting).rejects.toMatchObject({ code: "KEY_EXCHANGE_FAILED" });
    }
    const other = (await begun(two, 2, unhex(two.server_public_key))).accept(hello, two.connection_id!);
    await expect(other).rejects.toThrow("has not proved its identity");
  });

  test("a version 1 peer gets version 1; each exchange has its own key and IVs", async () => {
    const layer = encrypt();
    const [first, second] = await Promise.all([layer.begin(), layer.begin()]);
    expect(first.hello.encryption_version).toBe(2);
    expect(first.hello.encryption_public_key).not.toBe(second.hello.encryption_public_key);
    const hello = helloOf(one);
    await first.accept({ encryption_public_key: hello.encryption_public_key }, "");
    expect([first.version, first.wantsKeyUpdate]).toEqual([1, false]);
    const sealed = await first.seal(utf8("a"));
    expect(hex(sealed.subarray(0, 2))).toBe("453a");
    expect(sealed[2]! & 0x80, "the first bit of a client's IV is 0").toBe(0);
    await expect(first.open(sealed.subarray(2)), "its own message").rejects.toMatchObject({
      code: "PROTOCOL_ERROR",
    });
  });

  test("options that make no sense are refused", () => {
    const key = unhex(two.identity_public_key!);
    expect(() => encrypt({ serverKey: key })).not.toThrow();
    expect(() => encrypt({ serverKey: base64(key) })).not.toThrow();
    for (const serverKey of [key.subarray(1), "", "?", base64(key.subarray(0, 64))]) {
      expect(() => encrypt({ serverKey })).toThrow("65 bytes");
    }
    expect(() => encrypt({ serverKey: key, version: 1 })).toThrow("version 2");
  });
});

describe("without crypto.subtle", () => {
  afterEach(() => vi.unstubAllGlobals());

  test("encryption and signing refuse", () => {
    vi.stubGlobal("crypto", { getRandomValues: () => {} });
    const refusal = expect.objectContaining({ code: "NOT_SUPPORTED" });
    expect(() => encrypt()).toThrow(refusal);
    expect(() => sign({ secret: new Uint8Array(32) })).toThrow(refusal);
  });
});
