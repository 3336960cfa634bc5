/** A room: the board, the clocks, what players can do, and the chat. */

import type { Client } from "@tidewire/client";
import { useClient } from "@tidewire/react";
import { Chess } from "chess.js";
import {
  type FormEvent,
  Fragment,
  type RefObject,
  useEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { other, type Side } from "../core/clock.js";
import type { RoomView } from "../core/view.js";
import { Board } from "./board.js";
import { nameOf } from "./login.js";
import { type RoomState, RoomStore } from "./room-store.js";
import { useTitle } from "./words.js";

const EMPTY: RoomState = { view: undefined, error: undefined, offsetMs: 0 };
const nothing = () => () => {};
/** A clock with less time than this is red. */
const LOW_MS = 20_000;

/** The state of a room while the component is mounted. */
function useRoom(room: string): RoomState {
  const client = useClient();
  const [store, setStore] = useState<RoomStore>();
  useEffect(() => {
    if (!client) return;
    const own = new RoomStore(client, room);
    setStore(own);
    return () => own.close();
  }, [client, room]);
  return useSyncExternalStore(store?.subscribe ?? nothing, store?.get ?? (() => EMPTY));
}

/**
 * Sends a request, and shows why it was refused. A request whose connection was lost is sent again
 * if that is safe.
 */
function useAction(): [act: (type: string, payload: object, isSafe?: boolean) => void, problem: string] {
  const client = useClient();
  const [problem, setProblem] = useState("");
  const act = (type: string, payload: object, isSafe = false) => {
    if (!client) return;
    send(client, type, payload, isSafe).then(
      () => setProblem(""),
      (error: Error) => setProblem(error.message),
    );
  };
  return [act, problem];
}

async function send(client: Client, type: string, payload: object, isSafe: boolean): Promise<void> {
  for (;;) {
    try {
      await client.request(type, payload);
      return;
    } catch (error) {
      if (!isSafe || (error as { code?: string }).code !== "CONNECTION_LOST") throw error;
      await client.connected();
    }
  }
}

export function Room({ id, player }: { id: string; player: string }) {
  const { view, error, offsetMs } = useRoom(id);
  const [act, problem] = useAction();
  const [isTurned, setTurned] = useState(false);
  const own = view && ownSide(view, player);
  const mayMove = view?.status === "playing" && view.clock.running === own;
  useTitle(mayMove ? "Your move" : view ? `${nameOf(view.white)} – ${nameOf(view.black)}` : "Room");
  if (error) return <p role="alert">{error.message}</p>;
  if (!view) return <p>…</p>;
  const bottom = isTurned ? other(own ?? "white") : (own ?? "white");
  const move = (text: string) => act("move", { room: id, move: text, ply: view.moves.length + 1 }, true);
  return (
    <main className="room" data-status={view.status} data-plies={view.moves.length}>
      <h1>
        {view.tournament === null ? view.name : <a href={`#/tournaments/${view.tournament}`}>{view.name}</a>}
      </h1>
      <div className="columns">
        <div className="table">
          <Player view={view} side={other(bottom)} offsetMs={offsetMs} />
          <Board
            fen={view.fen}
            bottom={bottom}
            side={own}
            lastMove={view.moves.at(-1)}
            onMove={mayMove ? move : undefined}
          />
          <Player view={view} side={bottom} offsetMs={offsetMs} />
        </div>
        <div>
          <p className="result" role="status">
            {resultOf(view)}
          </p>
          <p role="alert">{problem}</p>
          <p className="buttons">
            <Actions view={view} own={own} act={act} />
            <button type="button" className="turn" onClick={() => setTurned(!isTurned)}>
              Turn the board
            </button>
          </p>
          <section className="card">
            <h2>Moves</h2>
            <Moves moves={view.moves} />
          </section>
          <Chat view={view} player={player} act={act} />
        </div>
      </div>
    </main>
  );
}

function ownSide(view: RoomView, player: string): Side | undefined {
  return view.white === player ? "white" : view.black === player ? "black" : undefined;
}

type Act = (type: string, payload: object, isSafe?: boolean) => void;

function Actions({ view, own, act }: { view: RoomView; own: Side | undefined; act: Act }) {
  const { room } = view;
  if (view.status === "waiting") {
    const sit = () => act(own ? "leave" : "join", { room });
    return (
      <button type="button" className={own ? "sit" : "sit primary"} onClick={sit}>
        {own ? "Leave the seat" : "Play"}
      </button>
    );
  }
  if (view.status === "over" || !own) return null;
  const draw = (answer: string) => act("draw", { room, answer });
  return (
    <span className="actions">
      <button type="button" onClick={() => act("resign", { room })}>
        Resign
      </button>
      {view.offer === other(own) ? (
        <>
          <button type="button" className="primary" onClick={() => draw("accept")}>
            Accept the draw
          </button>
          <button type="button" onClick={() => draw("decline")}>
            Decline the draw
          </button>
        </>
      ) : (
        <button type="button" disabled={view.offer === own} onClick={() => draw("offer")}>
          {view.offer === own ? "A draw is offered" : "Offer a draw"}
        </button>
      )}
    </span>
  );
}

/** The moves in algebraic notation, two on a line. */
function Moves({ moves }: { moves: string[] }) {
  const lines = useMemo(() => algebraic(moves), [moves]);
  const end = useEnd(moves.length);
  return (
    <p className="moves" ref={end}>
      {lines.map((san, index) => (
        // A move keeps its place.
        // biome-ignore lint/suspicious/noArrayIndexKey: the place is what tells two equal moves apart.
        <Fragment key={index}>
          {index % 2 === 0 && <span>{index / 2 + 1}.</span>}
          <span className={index === lines.length - 1 ? "newest" : undefined}>{san}</span>
        </Fragment>
      ))}
    </p>
  );
}

function algebraic(moves: string[]): string[] {
  const chess = new Chess();
  return moves.map((move) => chess.move(move).san);
}

/** Shows the end of a list that grows. */
function useEnd(length: number): RefObject<(HTMLElement & HTMLParagraphElement & HTMLOListElement) | null> {
  const element = useRef<HTMLElement & HTMLParagraphElement & HTMLOListElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a longer list is scrolled.
  useEffect(() => {
    element.current?.scrollTo(0, element.current.scrollHeight);
  }, [length]);
  return element;
}

function Player({ view, side, offsetMs }: { view: RoomView; side: Side; offsetMs: number }) {
  const nowMs = useNow(200);
  const shownMs = side === "white" ? view.clock.whiteMs : view.clock.blackMs;
  const isRunning = view.clock.running === side;
  const leftMs = Math.max(0, shownMs - (isRunning ? Math.max(0, nowMs - offsetMs - view.clockAtMs) : 0));
  const seconds = Math.ceil(leftMs / 1000);
  return (
    <p className={`player ${isRunning ? "running" : ""} ${leftMs < LOW_MS ? "low" : ""}`} data-side={side}>
      <span className="colour" />
      <b>{nameOf(view[side])}</b>
      <time>
        {Math.floor(seconds / 60)}:{String(seconds % 60).padStart(2, "0")}
      </time>
    </p>
  );
}

function Chat({ view, player, act }: { view: RoomView; player: string; act: Act }) {
  const { room, host, chat, muted } = view;
  const post = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    act("chat", { room, text: String(new FormData(form).get("text")) });
    form.reset();
  };
  const end = useEnd(chat.length);
  return (
    <section className="chat card">
      <h2>Chat</h2>
      <ol ref={end}>
        {chat.map((line) => (
          <li key={`${line.atMs} ${line.player} ${line.text}`}>
            <b>{nameOf(line.player)}</b> {line.text}{" "}
            {host === player && line.player !== player && (
              <button
                type="button"
                onClick={() =>
                  act("mute", { room, player: line.player, forMs: line.player in muted ? 0 : 300_000 })
                }
              >
                {line.player in muted ? "unmute" : "mute"}
              </button>
            )}
          </li>
        ))}
      </ol>
      <form onSubmit={post}>
        <input
          name="text"
          aria-label="a line"
          maxLength={200}
          placeholder="a line"
          autoComplete="off"
          required
        />
        <button type="submit">Say</button>
      </form>
    </section>
  );
}

function resultOf({ status, result, clock, offer }: RoomView): string {
  if (status === "waiting") return "Waiting for a second player.";
  if (offer) return `${offer === "white" ? "White" : "Black"} offers a draw.`;
  if (clock.running) return `${clock.running === "white" ? "White" : "Black"} is to move.`;
  if (!result) return "";
  const why = result.ending.replaceAll("_", " ");
  return result.winner ? `${result.winner === "white" ? "White" : "Black"} wins: ${why}` : `Draw: ${why}`;
}

/** The time of this machine, renewed after each interval. */
function useNow(intervalMs: number): number {
  const [nowMs, setNowMs] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNowMs(Date.now()), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  return nowMs;
}
