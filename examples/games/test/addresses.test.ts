/** Where pages find the server, and which pages may connect. */

import { hostname } from "node:os";
import { expect, test } from "vitest";
import { socketUrl } from "../src/core/addresses.js";
import { hostsOf } from "../src/server/site.js";

test("a page connects to the host from which it came", () => {
  const place = { port: 3847, path: "/ws" };
  expect(socketUrl(new URL("http://192.0.2.7:3848/#/rooms/1"), place)).toBe("ws://192.0.2.7:3847/ws");
  expect(socketUrl(new URL("http://[2001:db8::7]:3848/"), place)).toBe("ws://[2001:db8::7]:3847/ws");
  expect(socketUrl(new URL("https://games.example/"), place)).toBe("wss://games.example:3847/ws");
});

test("a server is known by its address, and on every address by all names of the machine", () => {
  expect(hostsOf("127.0.0.1")).toEqual(["127.0.0.1", "localhost"]);
  expect(hostsOf("::1")).toEqual(["[::1]", "localhost"]);
  expect(hostsOf("192.0.2.7")).toEqual(["192.0.2.7"]);
  const [first, ...others] = hostsOf("0.0.0.0");
  expect(first).toBe("127.0.0.1");
  expect(others).toEqual(expect.arrayContaining(["localhost", hostname().toLowerCase()]));
  expect(hostsOf("::")[0]).toBe("[::1]");
  expect(hostsOf("::")).toEqual(expect.arrayContaining(["127.0.0.1", "localhost"]));
});
