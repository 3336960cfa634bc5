// The server beside Express, Fastify and Hono: who logs in there by a form has a cookie, and the cookie opens the WebSocket.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { serve as serveHono } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { setCookie } from "hono/cookie";
import { jwt } from "../index.mjs";
import { Client, serve, soon } from "./support.mjs";

const SECRET = "0123456789abcdef0123456789abcdef";
const PAGE = "http://page.example";

const tokenOf = (user) => jwt.encode({ sub: user, exp: Date.now() / 1000 + 60 }, SECRET);

/** Each framework with its own way to set a cookie, and a page that publishes. Gives its address and how to end it. */
const FRAMEWORKS = {
  async Express(server) {
    const app = express();
    app.use(express.json());
    app.post("/login", (request, response) => {
      response.cookie("session", tokenOf(request.body.user), { httpOnly: true, sameSite: "lax" });
      response.json({ url: server.url });
    });
    app.post("/orders", (request, response) => {
      response.json(server.publish("orders", request.body, { type: "order" }));
    });
    const web = app.listen(0, "127.0.0.1");
    await once(web, "listening");
    return { port: web.address().port, close: () => web.close() };
  },

  async Fastify(server) {
    const app = fastify();
    app.addHook("onClose", () => server.drain(1000));
    app.post("/login", async (request, reply) => {
      reply.header("set-cookie", `session=${tokenOf(request.body.user)}; Path=/; HttpOnly; SameSite=Lax`);
      return { url: server.url };
    });
    app.post("/orders", async (request) => server.publish("orders", request.body, { type: "order" }));
    await app.listen({ port: 0, host: "127.0.0.1" });
    return { port: app.server.address().port, close: () => app.close() };
  },

  async Hono(server) {
    const app = new Hono();
    app.post("/login", async (context) => {
      const { user } = await context.req.json();
      setCookie(context, "session", tokenOf(user), { httpOnly: true, sameSite: "Lax" });
      return context.json({ url: server.url });
    });
    app.post("/orders", async (context) => {
      return context.json(server.publish("orders", await context.req.json(), { type: "order" }));
    });
    const web = serveHono({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
    await once(web, "listening");
    return { port: web.address().port, close: () => web.close() };
  },
};

for (const [name, start] of Object.entries(FRAMEWORKS)) {
  test(`beside ${name}: a login, its cookie, and a publication`, async (t) => {
    const options = { noAuth: undefined, jwtSecret: SECRET, cookieName: "session", origin: PAGE };
    const server = await serve(t, options, (server) => {
      server.handle("who", ({ user }) => user);
    });
    const web = await start(server);
    let isClosed = false;
    const close = async () => {
      if (!isClosed) await web.close();
      isClosed = true;
    };
    t.after(close);
    const post = (path, body) =>
      fetch(`http://127.0.0.1:${web.port}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json", connection: "close" },
        body: JSON.stringify(body),
      });

    const login = await post("/login", { user: "user-1" });
    const { url } = await login.json();
    const [cookie] = login.headers.getSetCookie()[0].split(";");
    const client = await Client.connect(t, url, {
      headers: { cookie: `theme=dark; ${cookie}` },
      origin: PAGE,
    });
    await client.until("server_ready");
    assert.equal((await client.request("who", null)).payload, "user-1");
    await client.subscribe("orders");
    assert.equal((await (await post("/orders", { n: 1 })).json()).duplicate, false);
    assert.deepEqual((await client.until("order")).p, { n: 1 });

    await assert.rejects(Client.connect(t, url, { origin: PAGE }), /401/);
    const forged = `session=${jwt.encode({ sub: "user-1", exp: Date.now() / 1000 + 60 }, `${SECRET}!`)}`;
    await assert.rejects(Client.connect(t, url, { headers: { cookie: forged }, origin: PAGE }), /401/);
    await assert.rejects(
      Client.connect(t, url, { headers: { cookie }, origin: "http://other.example" }),
      /403/,
    );

    await close();
    if (name === "Fastify") await soon(client.closed); // its hook has drained the server
    assert.equal(server.state, name === "Fastify" ? "stopped" : "running");
  });
}
