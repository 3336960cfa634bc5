import { describe, expect, test } from "vitest";
import { CHAT_LIMITS } from "../src/core/chat.js";
import { HALL_LIMITS, Hall } from "../src/core/hall.js";
import { Random } from "../src/core/random.js";
import { Simulation } from "./simulation.js";

const SCHOLARS_MATE = ["e2e4", "e7e5", "d1h5", "b8c6", "f1c4", "g8f6", "h5f7"];

/** A room in which Ada has White and Bob has Black. */
function adaAndBob(simulation: Simulation): string {
  const { room } = simulation.request("ada", "open_room", { initialMs: 60_000, incrementMs: 0 });
  simulation.request("bob", "join", { room });
  return room;
}

function play(simulation: Simulation, room: string, moves: readonly string[]): void {
  for (const [index, move] of moves.entries())
    simulation.request(index % 2 === 0 ? "ada" : "bob", "move", { room, move, ply: index + 1 });
}

const withoutTime = ({ clockAtMs: _, clock: __, ...view }: Record<string, unknown>) => view;

describe("a room", () => {
  test("is played to mate, and who watches sees the same as who asks", () => {
    const simulation = new Simulation({ seed: 1 });
    const { room } = simulation.request("ada", "open_room", {});
    simulation.watch(room);
    simulation.request("bob", "join", { room });
    play(simulation, room, SCHOLARS_MATE);
    const view = simulation.request("cleo", "room", { room });
    expect(view).toMatchObject({ status: "over", result: { winner: "white", ending: "checkmate" } });
    expect(view.moves).toEqual(SCHOLARS_MATE);
    expect(simulation.watched.get(room)).toEqual(view);
  });

  test("refuses what is not allowed, and stays as it was", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    simulation.watch(room);
    const before = simulation.request("cleo", "room", { room });
    const move = { room, move: "e2e4", ply: 1 };
    expect(simulation.refusal("cleo", "move", move)).toBe("NOT_ALLOWED");
    expect(simulation.refusal("bob", "move", move)).toBe("NOT_YOUR_TURN");
    expect(simulation.refusal("ada", "move", { ...move, ply: 2 })).toBe("WRONG_PLY");
    expect(simulation.refusal("ada", "move", { ...move, move: "e2e5" })).toBe("ILLEGAL_MOVE");
    expect(simulation.refusal("ada", "move", { ...move, room: "999" })).toBe("UNKNOWN_ROOM");
    expect(simulation.refusal("cleo", "join", { room })).toBe("SEAT_TAKEN");
    expect(simulation.refusal("cleo", "resign", { room })).toBe("NOT_ALLOWED");
    expect(simulation.refusal("ada", "draw", { room, answer: "accept" })).toBe("NO_OFFER");
    expect(simulation.refusal("ada", "leave", { room })).toBe("NOT_ALLOWED");
    expect(simulation.refusal("bob", "mute", { room, player: "cleo", forMs: 1 })).toBe("NOT_ALLOWED");
    expect(simulation.request("cleo", "room", { room })).toEqual(before);
  });

  test.each([
    ["move", { room: 5, move: "e2e4", ply: 1 }],
    ["move", { room: "1", move: "e2e4e2e4", ply: 1 }],
    ["move", { room: "1", move: "e2e4", ply: 1.5 }],
    ["move", "e2e4"],
    ["move", ["1", "e2e4", 1]],
    ["draw", { room: "1", answer: "perhaps" }],
    ["open_room", { initialMs: 0 }],
    ["open_room", { side: "green" }],
    ["open_room", { skill: 3 }],
    ["open_room", { name: "x".repeat(61) }],
    ["open_tournament", { size: 1_000_000 }],
    ["chat", { room: "1", text: "x".repeat(2_001) }],
  ] as const)("refuses %s with %j", (type, payload) => {
    const simulation = new Simulation({ seed: 1 });
    adaAndBob(simulation);
    expect(simulation.refusal("ada", type, payload)).toBe("INVALID_ARGUMENT");
  });

  test("takes a move that is sent again once", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    play(simulation, room, ["e2e4", "e7e5"]);
    const { v } = simulation.request("ada", "room", { room });
    simulation.request("bob", "move", { room, move: "e7e5", ply: 2 });
    expect(simulation.request("ada", "room", { room }).v).toBe(v);
    expect(simulation.refusal("bob", "move", { room, move: "e7e6", ply: 2 })).toBe("WRONG_PLY");
  });

  test("is lost by time, when nobody asks", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    play(simulation, room, ["e2e4"]);
    simulation.pass(59_999);
    expect(simulation.request("ada", "room", { room }).status).toBe("playing");
    simulation.pass(1);
    expect(simulation.events.at(-2)).toMatchObject({
      type: "over",
      payload: { result: { winner: "white", ending: "time" } },
    });
    expect(simulation.request("ada", "room", { room }).result).toEqual({ winner: "white", ending: "time" });
  });

  test("is drawn by agreement, and ended by resignation", () => {
    const simulation = new Simulation({ seed: 1 });
    const first = adaAndBob(simulation);
    simulation.watch(first);
    simulation.request("ada", "draw", { room: first, answer: "offer" });
    expect(simulation.watched.get(first)?.offer).toBe("white");
    simulation.request("bob", "draw", { room: first, answer: "accept" });
    expect(simulation.watched.get(first)?.result).toEqual({ winner: null, ending: "agreement" });
    const second = adaAndBob(simulation);
    simulation.request("bob", "resign", { room: second });
    expect(simulation.request("ada", "room", { room: second }).result).toEqual({
      winner: "white",
      ending: "resignation",
    });
  });

  test("has a chat, and its host mutes", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    simulation.watch(room);
    simulation.request("cleo", "chat", { room, text: "hello" });
    expect(simulation.refusal("ada", "mute", { room, player: "ada", forMs: 1_000 })).toBe("NOT_ALLOWED");
    simulation.request("ada", "mute", { room, player: "cleo", forMs: 1_000 });
    expect(simulation.refusal("cleo", "chat", { room, text: "again" })).toBe("MUTED");
    simulation.request("ada", "mute", { room, player: "cleo", forMs: 0 });
    simulation.request("cleo", "chat", { room, text: "thanks" });
    const view = simulation.request("bob", "room", { room });
    expect(view.chat.map(({ text }) => text)).toEqual(["hello", "thanks"]);
    expect(simulation.watched.get(room)).toEqual(view);
  });

  test("tells everybody when the rate limit has muted a player", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    simulation.watch(room);
    const lines = CHAT_LIMITS.linesPerWindow + CHAT_LIMITS.strikesMax;
    for (let n = 0; n < lines; n += 1) simulation.refusal("cleo", "chat", { room, text: `${n}` });
    expect(Object.keys(simulation.watched.get(room)?.muted ?? {})).toEqual(["cleo"]);
  });

  test("is removed some time after its game, and with its last player before", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    simulation.request("ada", "resign", { room });
    simulation.pass(HALL_LIMITS.overMs - 1);
    expect(simulation.request("ada", "room", { room }).status).toBe("over");
    simulation.pass(1);
    expect(simulation.refusal("ada", "room", { room })).toBe("UNKNOWN_ROOM");
    const { room: empty } = simulation.request("ada", "open_room", {});
    simulation.request("ada", "leave", { room: empty });
    expect(simulation.refusal("ada", "room", { room: empty })).toBe("UNKNOWN_ROOM");
    const { room: alone } = simulation.request("ada", "open_room", {});
    simulation.pass(HALL_LIMITS.waitingMs);
    expect(simulation.refusal("ada", "room", { room: alone })).toBe("UNKNOWN_ROOM");
    expect(simulation.hall.nextDeadlineMs).toBeUndefined();
  });

  test("is one of a bounded number for each host", () => {
    const simulation = new Simulation({ seed: 1 });
    for (let n = 0; n < HALL_LIMITS.roomsPerHostMax; n += 1) simulation.request("ada", "open_room", {});
    expect(simulation.refusal("ada", "open_room", {})).toBe("LIMIT_REACHED");
    expect(simulation.refusal("bob", "open_room", {})).toBeUndefined();
  });

  test("is listed in the lobby when it changes", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    const told = simulation.events.filter(({ topic }) => topic === "lobby").at(-1);
    expect(told).toEqual({
      topic: "lobby",
      type: "room",
      payload: simulation.request("cleo", "lobby").rooms[0],
    });
    expect(told?.payload).toMatchObject({ room, white: "ada", black: "bob", status: "playing" });
  });
});

describe("machine players", () => {
  test("answer a person after their time", () => {
    const simulation = new Simulation({ seed: 1, machineMoveMs: 500 });
    const { room, black } = simulation.request("ada", "open_room", { skill: 2 });
    expect(black).toMatch(/^machine~/);
    simulation.watch(room);
    simulation.request("ada", "move", { room, move: "e2e4", ply: 1 });
    simulation.pass(499);
    expect(simulation.watched.get(room)?.moves).toHaveLength(1);
    simulation.pass(1);
    expect(simulation.watched.get(room)?.moves).toHaveLength(2);
    expect(simulation.watched.get(room)?.clock.running).toBe("white");
  });

  test("decline a draw with their move", () => {
    const simulation = new Simulation({ seed: 1 });
    const { room } = simulation.request("ada", "open_room", { skill: 0 });
    simulation.watch(room);
    simulation.request("ada", "move", { room, move: "e2e4", ply: 1 });
    simulation.request("ada", "draw", { room, answer: "offer" });
    simulation.pass(1_000);
    expect(simulation.watched.get(room)?.offer).toBeNull();
    expect(simulation.watched.get(room)?.moves).toHaveLength(2);
  });

  test("play as many games as the operator wants, at their pace, and begin new ones", () => {
    const simulation = new Simulation({ seed: 3, machineGames: 5, machineSkill: 0, machineMoveMs: 1_000 });
    simulation.pass(0);
    for (let second = 0; second < 400; second += 1) {
      simulation.pass(1_000);
      const playing = simulation.request("ada", "lobby").rooms.filter(({ status }) => status === "playing");
      expect(playing).toHaveLength(5);
    }
    const moves = simulation.events.filter(({ type }) => type === "move");
    const ended = simulation.events.filter(({ type }) => type === "over");
    expect(ended.length).toBeGreaterThan(0);
    // A new game begins up to a second after the one before; otherwise each second has a move of
    // each game.
    expect(moves.length).toBeGreaterThan(5 * 400 - 2 * (ended.length + 5));
    expect(moves.length).toBeLessThanOrEqual(5 * 401);
  });

  test("play the same games for the same seed", () => {
    const run = (seed: number) => {
      const simulation = new Simulation({ seed, machineGames: 2 });
      simulation.pass(0);
      simulation.pass(20_000);
      return simulation.events;
    };
    expect(run(4)).toEqual(run(4));
    expect(run(4)).not.toEqual(run(5));
  });
});

describe("a snapshot", () => {
  test("restores rooms, games, clocks and chats; the clocks stood still", () => {
    const simulation = new Simulation({ seed: 1 });
    const room = adaAndBob(simulation);
    play(simulation, room, SCHOLARS_MATE.slice(0, 3));
    simulation.request("cleo", "chat", { room, text: "hello" });
    simulation.request("ada", "mute", { room, player: "cleo", forMs: 3_600_000 });
    simulation.pass(10_000);
    const before = simulation.request("ada", "room", { room });
    simulation.restart(600_000);
    const after = simulation.request("ada", "room", { room });
    expect({ ...after, clockAtMs: 0 }).toEqual({ ...before, clockAtMs: 0 });
    expect(after.clock).toEqual({ whiteMs: 60_000, blackMs: 50_000, running: "black" });
    expect(simulation.refusal("cleo", "chat", { room, text: "hi" })).toBe("MUTED");
    simulation.pass(50_000);
    expect(simulation.request("ada", "room", { room }).result).toEqual({ winner: "white", ending: "time" });
  });

  test("continues as if there had been no restart", () => {
    const run = (restarts: boolean) => {
      const simulation = new Simulation({ seed: 9, machineGames: 3, machineMoveMs: 1_000 });
      simulation.pass(0);
      simulation.pass(7_300);
      if (restarts) simulation.restart(0);
      simulation.pass(30_000);
      const { rooms } = simulation.request("ada", "lobby");
      return rooms.map(({ room }) => simulation.request("ada", "room", { room }));
    };
    expect(run(true)).toEqual(run(false));
    expect(run(true)[0]?.moves.length).toBeGreaterThan(30);
  });

  test("that is written in parts has the state of its begin, whatever happens meanwhile", () => {
    const simulation = new Simulation({ seed: 2, machineGames: 100, machineSkill: 0 });
    simulation.pass(0);
    simulation.pass(5_000);
    const room = adaAndBob(simulation);
    const wanted = simulation.hall.save(simulation.nowMs);
    const parts = simulation.hall.saveParts(simulation.nowMs);
    let text = parts.next().value ?? "";
    // Between two parts machines move, people move, talk and leave, and rooms are opened.
    simulation.request("ada", "move", { room, move: "e2e4", ply: 1 });
    simulation.request("cleo", "chat", { room: "1", text: "hello" });
    const { room: late } = simulation.request("ada", "open_room");
    for (const part of parts) {
      text += part;
      simulation.pass(300);
    }
    const byId = (a: { room: string }, b: { room: string }) => Number(a.room) - Number(b.room);
    const saved = JSON.parse(text) as typeof wanted;
    expect({ ...saved, rooms: saved.rooms.sort(byId) }).toEqual({
      ...wanted,
      rooms: wanted.rooms.sort(byId),
    });
    expect(saved.rooms.some((one) => one.room === late)).toBe(false);
    expect(simulation.hall.save(simulation.nowMs).rooms.some((one) => one.room === late)).toBe(true);
  });

  test("of another format is refused", () => {
    const simulation = new Simulation({ seed: 1 });
    const saved = { ...simulation.hall.save(0), format: 2 };
    expect(() => Hall.restore({ seed: 1 }, saved as never, 0)).toThrow("format 2");
  });
});

describe("any requests in any order", () => {
  const TYPES = [
    "open_room",
    "join",
    "leave",
    "move",
    "move",
    "move",
    "resign",
    "draw",
    "chat",
    "mute",
  ] as const;

  test.each([1, 2, 3, 4, 5])("keep views, events and snapshots consistent (seed %i)", (seed) => {
    const simulation = new Simulation({ seed, machineGames: 1, machineSkill: 0 });
    const random = new Random(seed);
    const pick = <T>(values: readonly T[]): T => values[random.below(values.length)]!;
    const players = ["ada", "bob", "cleo", "dora"];
    for (let step = 0; step < 400; step += 1) {
      const rooms = simulation.request("ada", "lobby").rooms;
      for (const { room } of rooms) if (!simulation.watched.has(room)) simulation.watch(room);
      const target = rooms.length > 0 ? pick(rooms) : undefined;
      const view = target && simulation.request("ada", "room", { room: target.room });
      const payload = {
        room: target?.room ?? "0",
        // Often the turn of the mover, and one of the moves that are often legal.
        move: pick(["e2e4", "d2d4", "e7e5", "g8f6", "g1f3", "f3g1", "f6g8", "e1e2", "e8e7"]),
        ply: (view?.moves.length ?? 0) + 1,
        answer: pick(["offer", "accept", "decline"]),
        text: "hello",
        player: pick(players),
        forMs: pick([0, 5_000]),
      };
      const type = pick(TYPES);
      simulation.refusal(
        pick(players),
        type,
        type === "open_room" ? { skill: pick([undefined, 0]) } : payload,
      );
      simulation.pass(random.below(2_000));
      if (step % 97 === 96) simulation.restart(0);
    }
    for (const { room } of simulation.request("ada", "lobby").rooms) {
      const seen = simulation.watched.get(room);
      if (!seen) continue;
      const asked = simulation.request("ada", "room", { room });
      // Mutes end by time, without an event.
      const { muted, ...rest } = withoutTime(asked as never) as { muted: object };
      expect(withoutTime(seen as never)).toMatchObject(rest);
      expect(Object.keys(seen.muted)).toEqual(expect.arrayContaining(Object.keys(muted)));
    }
  });
});
