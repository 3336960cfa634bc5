/** A tournament: registration, the table, and the games of each round. */

import { useClient, useRequest, useTopic } from "@tidewire/react";
import { useState } from "react";
import type { TournamentView } from "../core/tournament.js";
import { useCollected } from "./lobby.js";
import { nameOf } from "./login.js";
import { controlText, useTitle } from "./words.js";

export function Tournament({ id, player }: { id: string; player: string }) {
  const { data, error, refetch } = useRequest<TournamentView>("tournament", { tournament: id });
  const changed = useCollected(refetch);
  useTopic(`tournaments.${id}`, { max: 0, onMessage: changed });
  useTitle(data?.name ?? "Tournament");
  if (error) return <p role="alert">{error.message}</p>;
  if (!data) return <p>…</p>;
  return (
    <main className="tournament" data-status={data.status}>
      <h1>{data.name}</h1>
      <p className="facts">
        {data.format}, {data.players.length} of {data.size} players, {controlText(data.control)},{" "}
        {data.status === "open"
          ? "open for registration"
          : `round ${data.rounds.length} of ${data.roundsTotal}, ${data.status}`}
      </p>
      {data.status === "open" && <Registration view={data} player={player} />}
      <div className="columns">
        <section className="card scroll">
          <h2>Table</h2>
          <Table view={data} player={player} />
        </section>
        {data.rounds.length > 0 && (
          <section className="card">
            <h2>Games</h2>
            {[...data.rounds.entries()].reverse().map(([index, round]) => (
              <details key={index} open={index === data.rounds.length - 1}>
                <summary>Round {index + 1}</summary>
                <ul className="list">
                  {round.map(({ white, black, room, whitePoints }) => (
                    <li key={white}>
                      <a href={`#/rooms/${room}`}>
                        <span>
                          {nameOf(white)} – {black === null ? "bye" : nameOf(black)}
                        </span>
                        <small>
                          {whitePoints === null ? "is played" : `${whitePoints} : ${1 - whitePoints}`}
                        </small>
                      </a>
                    </li>
                  ))}
                </ul>
              </details>
            ))}
          </section>
        )}
      </div>
    </main>
  );
}

function Table({ view, player }: { view: TournamentView; player: string }) {
  return (
    <table>
      <thead>
        <tr>
          <th>#</th>
          <th>Player</th>
          <th>Points</th>
          <th>Tie-break</th>
          <th>+ = −</th>
        </tr>
      </thead>
      <tbody>
        {view.table.map((row) => (
          <tr key={row.player} className={row.player === player ? "own" : undefined}>
            <td>{row.rank}</td>
            <td>{nameOf(row.player)}</td>
            <td>{row.points}</td>
            <td>{row.tieBreak}</td>
            <td>
              {row.wins} {row.draws} {row.losses}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Registration({ view, player }: { view: TournamentView; player: string }) {
  const client = useClient();
  const [problem, setProblem] = useState("");
  const { tournament } = view;
  const act = (type: string) => () => {
    client?.request(type, { tournament }).then(
      () => setProblem(""),
      (error: Error) => setProblem(error.message),
    );
  };
  const isRegistered = view.players.includes(player);
  return (
    <p className="buttons">
      <button
        type="button"
        className="register primary"
        onClick={act(isRegistered ? "withdraw" : "register")}
      >
        {isRegistered ? "Withdraw" : "Take part"}
      </button>
      {view.host === player && (
        <button type="button" className="fill" onClick={act("fill")}>
          Fill with machines and start
        </button>
      )}
      <span role="alert">{problem}</span>
    </p>
  );
}
