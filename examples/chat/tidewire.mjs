// A chat with sessions, rooms, acknowledgements, presence and history, on Tidewire: `node tidewire.mjs`.

import http from "node:http";
import express from "express";
import session from "express-session";
import { Server } from "tidewire";
import { z } from "zod";

const app = express();
const sessions = session({ secret: process.env.SECRET ?? "change me", resave: false, saveUninitialized: false });
app.use(sessions, express.json());
app.post("/login", (request, response) => {
  request.session.user = request.body.name;
  response.sendStatus(204);
});

const httpServer = http.createServer(app);
const rooms = { history: { "rooms.*": 50 }, presence: "rooms.*", clientSubscribeAllow: "rooms.*" };
const server = new Server({ noAuth: true, ...rooms });
server.attach(httpServer, {
  use: [sessions],
  authorize: ({ session }) => session.user && { user: session.user },
});

const Said = z.object({ room: z.string().min(1), text: z.string().max(1000) });
server.handle("say", Said, ({ user }, { room, text }) => {
  const { offset } = server.publish(`rooms.${room}`, { from: user, text }, { type: "said" });
  return { number: offset };
});

await server.start();
httpServer.listen(process.env.PORT ?? 3000, "127.0.0.1", () => console.log(httpServer.address().port));
process.once("SIGTERM", () => server.drain(1_000).then(() => httpServer.close()));
