import { describe, expect, test, vi } from "vitest";
import {
  type Asked,
  acceptValue,
  parseResponse,
  type UpgradeRequest,
  writeRequest,
} from "../../src/transport/node/handshake.js";
import { type RequestCase, type ResponseCase, vectors } from "./vectors.js";

vi.setConfig({ testTimeout: 60_000 });

// This client offers less than these cases accept: deflate.test.ts has the answers to its offer.
const RESPONSES = ["handshake-responses", "handshake-interims"]
  .flatMap((file) => vectors<ResponseCase>(file))
  .filter((one) => one.accepted?.deflate !== true);

function askedBy(one: ResponseCase): Asked {
  const key = Buffer.from(one.key, "hex").toString("base64");
  return { key, protocols: one.protocols, offersDeflate: one.offers_deflate };
}

test("the vectors have answers", () => expect(RESPONSES.length).toBeGreaterThan(25));

test.each(RESPONSES.map((one) => [one.name, one] as const))("the answer %s", (_name, one) => {
  const answer = parseResponse(one.response, askedBy(one), 0, one.head_bytes_max);
  if (one.accepted) {
    const { head_bytes, protocol, server } = one.accepted;
    expect(answer).toEqual({
      kind: "accepted",
      headBytes: head_bytes,
      protocol: protocol ?? undefined,
      server: server ?? undefined,
    });
  } else if (one.refused) {
    expect(answer).toMatchObject({ kind: "refused", error: one.refused.error });
    if (answer?.kind !== "refused") return;
    expect(answer.status).toBe(one.refused.status);
    if (one.refused.retry_after !== undefined)
      expect(answer.retryAfterMs).toBe(one.refused.retry_after * 1000);
  } else {
    expect(one.incomplete).toBe(true);
    expect(answer).toBeUndefined();
  }
});

test.each(RESPONSES.filter((one) => one.accepted).map((one) => [one.name, one] as const))(
  "no beginning of the answer %s is refused",
  (_name, one) => {
    const request = askedBy(one);
    for (let length = 0; length < one.accepted!.head_bytes; length += 1) {
      expect(parseResponse(one.response.slice(0, length), request, 0)).toBeUndefined();
    }
  },
);

test.each([
  "HTTP/1.1 503 Service Unavailable\r\nRetry-After: Thu, 21 Nov 2024 18:05:45 GMT\r\n\r\n",
  "HTTP/1.1 503 Service Unavailable\r\nRetry-After: Thu, 21 Nov 2024 18:06:45 GMT\r\nDate: Thu, 21 Nov 2024 18:06:00 GMT\r\n\r\n",
])("a date of Retry-After counts from the server's clock", (response) => {
  const now = Date.UTC(2024, 10, 21, 18, 5, 0);
  expect(parseResponse(response, { key: "", protocols: [] }, now)).toMatchObject({ retryAfterMs: 45_000 });
});

test.each([
  ["Retry-After: soon", undefined],
  ["Retry-After: -1", undefined],
  ["Retry-After: 99999999999999999999", 86_400_000],
])("%s", (header, wanted) => {
  const answer = parseResponse(`HTTP/1.1 503 No\r\n${header}\r\n\r\n`, { key: "", protocols: [] }, 0);
  expect(answer).toMatchObject({ kind: "refused", status: 503 });
  expect(answer?.kind === "refused" && answer.retryAfterMs).toBe(wanted);
});

test.each([
  "SSH",
  "HTTP/1.0 101 ",
  "HTTP/1.1 x",
  "HTTP/1.1 1011",
  "HTTP/1.1 101 A\nUp",
  "HTTP/1.1 101 A\r\n Upgrade: ",
])("%j is refused before its end has come", (start) => {
  expect(parseResponse(start, { key: "", protocols: [] }, 0)).toMatchObject({ error: "malformed" });
});

const REQUEST: UpgradeRequest = {
  host: "example.com",
  target: "/ws?format=msgpack",
  key: "dGhlIHNhbXBsZSBub25jZQ==",
  protocols: ["a", "b"],
  headers: { Authorization: "Bearer t" },
};

describe("the request", () => {
  test("has what the protocol asks for, each line once", () => {
    const lines = writeRequest(REQUEST).split("\r\n");
    expect(lines).toEqual([
      "GET /ws?format=msgpack HTTP/1.1",
      "Host: example.com",
      "Upgrade: websocket",
      "Connection: Upgrade",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      "Sec-WebSocket-Protocol: a, b",
      "Authorization: Bearer t",
      "",
      "",
    ]);
  });

  test.each([
    { host: "a b" },
    { target: "/a b" },
    { target: "ws" },
    { protocols: ["a b"] },
    { headers: { "a b": "c" } },
    { headers: { a: "b\r\nc: d" } },
    { headers: { Host: "other" } },
    { headers: { "sec-websocket-key": "other" } },
    { headers: { "Content-Length": "1" } },
  ])("is not written with %j", (wrong) => {
    expect(() => writeRequest({ ...REQUEST, ...wrong })).toThrow(TypeError);
  });

  test.each(
    vectors<RequestCase>("handshake-requests")
      .filter((one) => one.accepted)
      .map((one) => [one.name, one] as const),
  )("of the vector %s has the accept value of its answer", (_name, one) => {
    const key = /^sec-websocket-key:[ \t]*(\S+)/im.exec(one.request)![1]!;
    expect(acceptValue(key)).toBe(one.accepted!.accept);
  });
});
