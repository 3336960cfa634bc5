/** The lobby: rooms, tournaments, and new ones. */

import { useClient, useRequest, useTopic } from "@tidewire/react";
import { type FormEvent, useEffect, useRef, useState } from "react";
import type { Replies } from "../core/requests.js";
import type { RoomSummary, RoomView } from "../core/view.js";
import { nameOf } from "./login.js";
import { controlText, scoreOf, useTitle } from "./words.js";

/** How long changes are collected before a list is asked for again. */
const COLLECT_MS = 300;

/** Calls `action` once after a burst of calls. */
export function useCollected(action: () => void): () => void {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const newest = useRef(action);
  newest.current = action;
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      newest.current();
    }, COLLECT_MS);
  };
}

export function Lobby() {
  const { data, error, refetch } = useRequest<Replies["lobby"]>("lobby", {});
  const changed = useCollected(refetch);
  useTopic("lobby", { max: 0, onMessage: changed });
  useTitle("Lobby");
  if (error) return <p role="alert">{error.message}</p>;
  return (
    <main className="lobby">
      <h1>Lobby</h1>
      <div className="columns">
        <section className="card">
          <h2>Games</h2>
          <NewRoom />
          <ul className="list rooms">
            {data?.rooms.map((room) => (
              <RoomLine key={room.room} room={room} />
            ))}
            {data?.rooms.length === 0 && <li className="empty">Nobody plays. Open a room.</li>}
          </ul>
        </section>
        <section className="card">
          <h2>Tournaments</h2>
          <NewTournament />
          <ul className="list tournaments">
            {data?.tournaments.map(({ tournament, name, format, status, registered, size }) => (
              <li key={tournament} data-status={status}>
                <a href={`#/tournaments/${tournament}`}>
                  {name}
                  <small>
                    {format}, {registered} of {size} players, {status}
                  </small>
                </a>
              </li>
            ))}
            {data?.tournaments.length === 0 && <li className="empty">There is no tournament.</li>}
          </ul>
        </section>
      </div>
    </main>
  );
}

function RoomLine({ room: { room, name, white, black, status, control, result } }: { room: RoomSummary }) {
  const words = { waiting: "waits for a player", playing: "is played", over: result && scoreOf(result) };
  return (
    <li data-status={status}>
      <a href={`#/rooms/${room}`}>
        <span>
          {nameOf(white)} – {nameOf(black)}
        </span>
        <small>
          {name === "Chess" ? "" : `${name}, `}
          {controlText(control)}, {words[status]}
        </small>
      </a>
    </li>
  );
}

function NewRoom() {
  const client = useClient();
  const [problem, setProblem] = useState("");
  const open = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const skill = String(form.get("against"));
    const payload = {
      initialMs: Number(form.get("minutes")) * 60_000,
      incrementMs: Number(form.get("increment")) * 1_000,
      side: form.get("side"),
      skill: skill === "" ? null : Number(skill),
    };
    client?.request<RoomView>("open_room", payload).then(
      ({ room }) => {
        location.hash = `#/rooms/${room}`;
      },
      (error: Error) => setProblem(error.message),
    );
  };
  return (
    <form className="new-room" onSubmit={open}>
      <select name="against" aria-label="opponent">
        <option value="">against anybody</option>
        <option value="0">against a beginner machine</option>
        <option value="1">against a greedy machine</option>
        <option value="2">against a careful machine</option>
      </select>
      <select name="side" aria-label="colour">
        <option value="white">with White</option>
        <option value="black">with Black</option>
      </select>
      <label>
        <input name="minutes" type="number" min="1" max="180" defaultValue="5" /> minutes
      </label>
      <label>
        <input name="increment" type="number" min="0" max="60" defaultValue="3" /> seconds for each move
      </label>
      <button type="submit">Open a room</button>
      <span role="alert">{problem}</span>
    </form>
  );
}

function NewTournament() {
  const client = useClient();
  const [problem, setProblem] = useState("");
  const open = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const payload = { name: form.get("name"), size: Number(form.get("size")) };
    client?.request<Replies["tournament"]>("open_tournament", payload).then(
      ({ tournament }) => {
        location.hash = `#/tournaments/${tournament}`;
      },
      (error: Error) => setProblem(error.message),
    );
  };
  return (
    <form className="new-tournament" onSubmit={open}>
      <input name="name" placeholder="its name" aria-label="name of the tournament" maxLength={60} required />
      <select name="size" aria-label="players">
        <option value="8">8 players</option>
        <option value="32">32 players</option>
        <option value="100">100 players</option>
      </select>
      <button type="submit">Open a tournament</button>
      <span role="alert">{problem}</span>
    </form>
  );
}
