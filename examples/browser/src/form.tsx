/** A form that works without a network: entries are kept in IndexedDB and published, once and in order, when it is back. */

import { connect } from "@tidewire/client";
import { queue } from "@tidewire/client/queue";
import { TidewireProvider, useConnection, useTopic } from "@tidewire/react";
import { type FormEvent, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { SERVER } from "./server.js";

interface Entry {
  text: string;
  /** When it was written, in milliseconds since 1970. */
  writtenMs: number;
}

// The queue belongs to one client for as long as the page lives, so that the page makes the client itself.
const outbox = queue({ name: "tidewire-example-form" });
const client = connect(SERVER, { queue: outbox });

/** Entries that the server has not acknowledged, those of an earlier visit among them. */
function useWaiting(): number {
  const [waiting, setWaiting] = useState(outbox.depth);
  useEffect(() => {
    const timer = setInterval(() => setWaiting(outbox.depth), 200);
    return () => clearInterval(timer);
  }, []);
  return waiting;
}

function Form() {
  const { state } = useConnection();
  const waiting = useWaiting();
  const [problem, setProblem] = useState("");
  const add = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const text = String(new FormData(form).get("text"));
    form.reset();
    const entry: Entry = { text, writtenMs: Date.now() };
    outbox.publish("entries", entry).catch((error: Error) => setProblem(error.message));
  };
  return (
    <main>
      <h1>Entries</h1>
      <p className="status" data-state={state} data-waiting={waiting}>
        {state === "open" ? "Connected." : "No connection."} {waiting} waiting.
      </p>
      <form onSubmit={add}>
        <input name="text" placeholder="an entry" required />
        <button type="submit">Add</button> <span role="alert">{problem}</span>
      </form>
      <Delivered />
    </main>
  );
}

function Delivered() {
  const { messages } = useTopic<Entry>("entries", { replay: 20 });
  return (
    <ol className="entries">
      {messages.map(({ payload, id, position }) => (
        <li key={id ?? `${position?.epoch}-${position?.offset}`}>
          {payload.text} <small>{new Date(payload.writtenMs).toLocaleTimeString()}</small>
        </li>
      ))}
    </ol>
  );
}

createRoot(document.getElementById("root")!).render(
  <TidewireProvider client={client}>
    <Form />
  </TidewireProvider>,
);
