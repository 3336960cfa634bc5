/** The lobby: rooms, tournaments, and new ones. */

import { useClient, useRequest, useTopic } from "@tidewire/react";
import { type FormEvent, useEffect, useRef, useState } from "react";
import type { Replies } from "../core/requests.js";
import type { RoomView } from "../core/view.js";
import { nameOf } from "./login.js";

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
  if (error) return <p role="alert">{error.message}</p>;
  return (
    <main className="lobby">
      <h1>Lobby</h1>
      <NewRoom />
      <h2>Rooms</h2>
      <ul className="rooms">
        {data?.rooms.map(({ room, name, white, black, status }) => (
          <li key={room} data-status={status}>
            <a href={`#/rooms/${room}`}>
              {name}: {nameOf(white)} – {nameOf(black)}
            </a>{" "}
            <small>{status}</small>
          </li>
        ))}
      </ul>
      <h2>Tournaments</h2>
      <NewTournament />
      <ul className="tournaments">
        {data?.tournaments.map(({ tournament, name, format, status, registered, size }) => (
          <li key={tournament}>
            <a href={`#/tournaments/${tournament}`}>{name}</a>{" "}
            <small>
              {format}, {registered} of {size} players, {status}
            </small>
          </li>
        ))}
      </ul>
    </main>
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
      <select name="against">
        <option value="">against anybody</option>
        <option value="0">against a beginner machine</option>
        <option value="1">against a greedy machine</option>
        <option value="2">against a careful machine</option>
      </select>{" "}
      <select name="side">
        <option value="white">with White</option>
        <option value="black">with Black</option>
      </select>{" "}
      <label>
        <input name="minutes" type="number" min="1" max="180" defaultValue="5" /> minutes
      </label>{" "}
      <label>
        <input name="increment" type="number" min="0" max="60" defaultValue="3" /> seconds for each move
      </label>{" "}
      <button type="submit">Open a room</button> <span role="alert">{problem}</span>
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
      <input name="name" placeholder="its name" maxLength={60} required />{" "}
      <select name="size">
        <option>8</option>
        <option>32</option>
        <option>100</option>
      </select>{" "}
      players <button type="submit">Open a tournament</button> <span role="alert">{problem}</span>
    </form>
  );
}
