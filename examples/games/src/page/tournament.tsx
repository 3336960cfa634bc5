/** A tournament: registration, the table, and the games of each round. */

import { useClient, useRequest, useTopic } from "@tidewire/react";
import { useState } from "react";
import type { TournamentView } from "../core/tournament.js";
import { useCollected } from "./lobby.js";
import { nameOf } from "./login.js";

export function Tournament({ id, player }: { id: string; player: string }) {
  const { data, error, refetch } = useRequest<TournamentView>("tournament", { tournament: id });
  const changed = useCollected(refetch);
  useTopic(`tournaments.${id}`, { max: 0, onMessage: changed });
  if (error) return <p role="alert">{error.message}</p>;
  if (!data) return <p>…</p>;
  return (
    <main className="tournament" data-status={data.status}>
      <h1>{data.name}</h1>
      <p>
        {data.format}, {data.players.length} of {data.size} players, round {data.rounds.length} of{" "}
        {data.roundsTotal}, {data.status}
      </p>
      {data.status === "open" && <Registration view={data} player={player} />}
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
          {data.table.map((row) => (
            <tr key={row.player}>
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
      {[...data.rounds.entries()].reverse().map(([index, round]) => (
        <section key={index}>
          <h2>Round {index + 1}</h2>
          <ul>
            {round.map(({ white, black, room, whitePoints }) => (
              <li key={white}>
                <a href={`#/rooms/${room}`}>
                  {nameOf(white)} – {black === null ? "bye" : nameOf(black)}
                </a>{" "}
                {whitePoints !== null && `${whitePoints} : ${1 - whitePoints}`}
              </li>
            ))}
          </ul>
        </section>
      ))}
    </main>
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
    <p>
      <button type="button" className="register" onClick={act(isRegistered ? "withdraw" : "register")}>
        {isRegistered ? "Withdraw" : "Take part"}
      </button>{" "}
      {view.host === player && (
        <button type="button" className="fill" onClick={act("fill")}>
          Fill with machines and start
        </button>
      )}{" "}
      <span role="alert">{problem}</span>
    </p>
  );
}
