// The same chat on Socket.IO: `node socket-io.mjs`. It keeps history and presence itself.

import http from "node:http";
import express from "express";
import session from "express-session";
import { Server } from "socket.io";
import { z } from "zod";

const app = express();
const sessions = session({ secret: process.env.SECRET ?? "change me", resave: false, saveUninitialized: false });
app.use(sessions, express.json());
app.post("/login", (request, response) => {
  request.session.user = request.body.name;
  response.sendStatus(204);
});

const httpServer = http.createServer(app);
const io = new Server(httpServer);
io.engine.use(sessions);
io.use((socket, next) => next(socket.request.session.user ? undefined : new Error("not logged in")));

const Said = z.object({ room: z.string().min(1), text: z.string().max(1000) });
const histories = new Map();
io.on("connection", (socket) => {
  const { user } = socket.request.session;
  socket.data.user = user;
  socket.on("join", async (room, acknowledge) => {
    await socket.join(room);
    socket.to(room).emit("joined", { room, user });
    const others = await io.in(room).fetchSockets();
    const users = [...new Set(others.map(({ data }) => data.user))];
    acknowledge({ users, history: histories.get(room) ?? [] });
  });
  socket.on("say", (message, acknowledge) => {
    const { success, data, error } = Said.safeParse(message);
    if (!success) return acknowledge({ error: error.message });
    const said = { from: user, text: data.text };
    const history = histories.get(data.room) ?? [];
    histories.set(data.room, [...history, said].slice(-50));
    io.to(data.room).emit("said", { room: data.room, ...said });
    acknowledge({ number: history.length + 1 });
  });
  socket.on("disconnecting", () => {
    for (const room of socket.rooms) socket.to(room).emit("left", { room, user });
  });
});

httpServer.listen(process.env.PORT ?? 3000, "127.0.0.1", () => console.log(httpServer.address().port));
process.once("SIGTERM", () => io.close());
