/**
 * The page: who plays, and what is looked at. `/?name=Ada` logs in at once; `#/rooms/17` shows a
 * room.
 */

import { TidewireProvider, useConnection } from "@tidewire/react";
import { type FormEvent, useEffect, useState, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";
import { type SocketPlace, socketUrl } from "../core/addresses.js";
import { Lobby } from "./lobby.js";
import { type Login, logIn, nameOf } from "./login.js";
import { Room } from "./room.js";
import { Tournament } from "./tournament.js";

interface Session {
  name: string;
  login: Login;
  /** The address of the WebSocket. */
  url: string;
}

async function begin(name: string): Promise<Session> {
  const [login, config] = await Promise.all([logIn(name), fetch("/config.json")]);
  return { name, login, url: socketUrl(location, (await config.json()) as SocketPlace) };
}

function App() {
  const [session, setSession] = useState<Session>();
  const [problem, setProblem] = useState("");
  const enter = (name: string) => {
    begin(name).then(setSession, (error: Error) => setProblem(error.message));
  };
  useEffect(() => {
    const name = new URLSearchParams(location.search).get("name");
    if (name) begin(name).then(setSession, (error: Error) => setProblem(error.message));
  }, []);
  if (!session) return <Entrance problem={problem} onEnter={enter} />;
  const { name, login, url } = session;
  // The function is called before each connection and before the token expires.
  const token = async () => (await logIn(name)).token;
  return (
    <TidewireProvider url={url} options={{ token }}>
      <Header player={login.player} />
      <Shown player={login.player} />
    </TidewireProvider>
  );
}

function Entrance({ problem, onEnter }: { problem: string; onEnter: (name: string) => void }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    onEnter(String(new FormData(event.currentTarget).get("name")));
  };
  return (
    <form className="entrance card" onSubmit={submit}>
      <h1>Tidewire games</h1>
      <p>Play chess against people and machines, watch games, and take part in tournaments.</p>
      <input name="name" placeholder="your name" aria-label="your name" maxLength={24} required />
      <button type="submit">Enter</button>
      <span role="alert">{problem}</span>
    </form>
  );
}

function Header({ player }: { player: string }) {
  const { state, reason } = useConnection();
  return (
    <header>
      <a href="#/">♞ Lobby</a>
      <b className="who">{nameOf(player)}</b>
      <span className="status" data-state={state}>
        {state === "open" ? "connected" : state === "closed" ? `disconnected: ${reason}` : "connecting …"}
      </span>
    </header>
  );
}

function Shown({ player }: { player: string }) {
  const hash = useSyncExternalStore(onHash, () => location.hash);
  const [, what, id] = /^#\/(rooms|tournaments)\/(\w+)$/.exec(hash) ?? [];
  if (what === "rooms" && id) return <Room key={id} id={id} player={player} />;
  if (what === "tournaments" && id) return <Tournament key={id} id={id} player={player} />;
  return <Lobby />;
}

function onHash(listener: () => void): () => void {
  addEventListener("hashchange", listener);
  return () => removeEventListener("hashchange", listener);
}

createRoot(document.getElementById("root")!).render(<App />);
