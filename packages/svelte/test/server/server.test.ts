import { TestServer } from "@tidewire/client/testing";
import { render } from "svelte/server";
import { expect, test } from "vitest";
import Everything from "./Everything.svelte";

test("a server renders what is empty and opens nothing", () => {
  const server = new TestServer({ presence: ["room.*"] });
  const { body } = render(Everything, {
    props: { source: { url: server.url, options: { transport: server.transport } } },
  });
  expect(body).toContain("<p>pending 0  0  connecting false</p>");
  expect(server.connections).toEqual([]);
  expect(server.requests).toEqual([]);
});
