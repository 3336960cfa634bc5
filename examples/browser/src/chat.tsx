/** A chat: who is here, what was said before, and what is said now. */

import { TidewireProvider, useConnection, usePresence, usePublish, useTopic } from "@tidewire/react";
import { type FormEvent, useState } from "react";
import { createRoot } from "react-dom/client";
import { SERVER } from "./server.js";

interface Line {
  name: string;
  text: string;
}

const ROOM = "chat.lobby";
const name = new URLSearchParams(location.search).get("name") ?? `guest-${Math.floor(Math.random() * 1000)}`;

function Chat() {
  const { messages, isRecovering, error } = useTopic<Line>(ROOM, { replay: 50, max: 200 });
  const { state } = useConnection();
  return (
    <main>
      <h1>Lobby</h1>
      <p className="status" data-state={state}>
        {error
          ? error.message
          : isRecovering
            ? "The connection was lost; what is missed will be there."
            : state}
      </p>
      <Members />
      <ol className="lines">
        {messages.map(({ payload, position }) => (
          <li key={`${position?.epoch}-${position?.offset}`}>
            <b>{payload.name}</b> {payload.text}
          </li>
        ))}
      </ol>
      <Say />
    </main>
  );
}

function Members() {
  const { members, users } = usePresence(ROOM, { data: { name } });
  return (
    <aside>
      <h2>{users} here</h2>
      <ul className="members">
        {members.map(({ user, data }) => (
          <li key={user}>{data?.name ?? user}</li>
        ))}
      </ul>
    </aside>
  );
}

function Say() {
  const publish = usePublish<Line>(ROOM);
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const say = (event: FormEvent) => {
    event.preventDefault();
    setText("");
    publish({ name, text }).then(
      () => setProblem(""),
      (error: Error) => setProblem(error.message),
    );
  };
  return (
    <form onSubmit={say}>
      <input
        value={text}
        onChange={(event) => setText(event.target.value)}
        placeholder={`${name} says`}
        required
      />
      <button type="submit">Say</button> <span role="alert">{problem}</span>
    </form>
  );
}

createRoot(document.getElementById("root")!).render(
  <TidewireProvider url={SERVER}>
    <Chat />
  </TidewireProvider>,
);
