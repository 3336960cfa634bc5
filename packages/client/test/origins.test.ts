/** Origins of applications that are no pages of a web server, in real handshakes. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { open } from "../src/index.js";
import { type Engine, startEngine } from "./node/engine.js";

const ALLOWED = [
  "null",
  "capacitor://localhost",
  "ionic://localhost",
  "app://.",
  "file://",
  "https://a.example",
];
let engine: Engine;

beforeAll(async () => {
  const options = ALLOWED.flatMap((origin) => ["--origin", origin]);
  engine = await startEngine("--no-auth", "--topics-open", "--log-level", "error", ...options);
});

afterAll(() => engine?.stop());

test.each(ALLOWED)("%s is let in where it is listed", async (Origin) => {
  const client = await open(`ws://${engine.address}/ws`, { headers: { Origin }, reconnect: false });
  expect(await client.ping()).toBeGreaterThanOrEqual(0);
  await client.close();
});

test.each(["capacitor://evil.example", "ionic://", "http://localhost", "nul", ""])(
  "%s is refused where it is not",
  async (Origin) => {
    const opening = open(`ws://${engine.address}/ws`, { headers: { Origin }, reconnect: false });
    await expect(opening).rejects.toMatchObject({ code: "CONNECT_FAILED" });
  },
);

test.each(["nul", "https://", "https://a.example/", "://a", "capacitor://localhost/"])(
  "the server does not take %s for an origin",
  async (origin) => {
    await expect(startEngine("--no-auth", "--origin", origin)).rejects.toThrow("expected an origin such as");
  },
);
