/**
 * The board: 64 buttons. A click on a piece and a click on a square make a move. The squares that a
 * piece can reach are marked; whether a move is made decides the server.
 */

import { Chess, type Square } from "chess.js";
import { useEffect, useMemo, useState } from "react";
import type { Side } from "../core/clock.js";

/** The solid figures: the colour is that of the text. The last character asks for text, not for a picture. */
const FIGURES: Record<string, string> = { k: "♚", q: "♛", r: "♜", b: "♝", n: "♞", p: "♟" };
const AS_TEXT = "\ufe0e";
const NAMES: Record<string, string> = {
  k: "king",
  q: "queen",
  r: "rook",
  b: "bishop",
  n: "knight",
  p: "pawn",
};
const FILES = "abcdefgh";

const sideOf = (piece: string): Side => (piece === piece.toUpperCase() ? "white" : "black");
const figureOf = (piece: string) => `${FIGURES[piece.toLowerCase()]}${AS_TEXT}`;
const nameOf = (piece: string) => `${sideOf(piece)} ${NAMES[piece.toLowerCase()]}`;

/** The pieces of a position by their squares, such as `e1` → `K`. */
export function piecesOf(fen: string): Map<string, string> {
  const pieces = new Map<string, string>();
  const ranks = (fen.split(" ")[0] ?? "").split("/");
  for (const [index, rank] of ranks.entries()) {
    let file = 0;
    for (const letter of rank) {
      if (/\d/.test(letter)) {
        file += Number(letter);
      } else {
        pieces.set(`${FILES[file]}${8 - index}`, letter);
        file += 1;
      }
    }
  }
  return pieces;
}

/** What is marked in a position: where a piece may go, and the king that is in check. */
function hintsOf(
  fen: string,
  from: string | undefined,
): { targets: Set<string>; checked: string | undefined } {
  const chess = new Chess(fen);
  const moves = from === undefined ? [] : chess.moves({ square: from as Square, verbose: true });
  const [checked] = chess.isCheck() ? chess.findPiece({ type: "k", color: chess.turn() }) : [];
  return { targets: new Set(moves.map(({ to }) => to)), checked };
}

export function Board({
  fen,
  bottom,
  side,
  lastMove,
  onMove,
}: {
  fen: string;
  /** The side at the bottom. */
  bottom: Side;
  /** The side whose pieces this player moves. */
  side: Side | undefined;
  lastMove: string | undefined;
  /** Called with a move such as `e2e4`; without it the board is read-only. */
  onMove: ((move: string) => void) | undefined;
}) {
  const [from, setFrom] = useState<string>();
  /** A move of a pawn to the last rank, without what it becomes. */
  const [promoting, setPromoting] = useState<string>();
  const pieces = useMemo(() => piecesOf(fen), [fen]);
  const { targets, checked } = useMemo(() => hintsOf(fen, from), [fen, from]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another position ends what was begun.
  useEffect(() => {
    setFrom(undefined);
    setPromoting(undefined);
  }, [fen]);
  const ranks = bottom === "white" ? [8, 7, 6, 5, 4, 3, 2, 1] : [1, 2, 3, 4, 5, 6, 7, 8];
  const files = bottom === "white" ? [...FILES] : [...FILES].reverse();
  const isOwn = (piece: string | undefined) => piece !== undefined && sideOf(piece) === side;
  const click = (square: string) => {
    if (!onMove) return;
    if (isOwn(pieces.get(square))) return setFrom(square === from ? undefined : square);
    if (!from) return;
    setFrom(undefined);
    const isPawn = pieces.get(from)?.toLowerCase() === "p";
    if (isPawn && /[18]$/.test(square)) setPromoting(`${from}${square}`);
    else onMove(`${from}${square}`);
  };
  const labelOf = (square: string) =>
    [ranks.at(-1) === Number(square[1]) ? square[0] : "", files[0] === square[0] ? square[1] : ""].join("");
  return (
    <div className="board" data-fen={fen}>
      {ranks.flatMap((rank) =>
        files.map((file) => {
          const square = `${file}${rank}`;
          const piece = pieces.get(square);
          const classes = {
            square: true,
            [(FILES.indexOf(file) + rank) % 2 === 1 ? "dark" : "light"]: true,
            marked: lastMove?.slice(0, 4).match(/../g)?.includes(square),
            chosen: square === from,
            check: square === checked,
            target: targets.has(square),
            playable: onMove && (isOwn(piece) || from !== undefined),
            [`${piece && sideOf(piece)}-piece`]: piece,
          };
          return (
            <button
              type="button"
              key={square}
              data-square={square}
              data-label={labelOf(square)}
              className={Object.keys(classes)
                .filter((name) => classes[name])
                .join(" ")}
              aria-label={piece ? `${square}, ${nameOf(piece)}` : square}
              onClick={() => click(square)}
            >
              {piece && figureOf(piece)}
            </button>
          );
        }),
      )}
      {promoting && (
        <div className="promotion">
          {["q", "r", "b", "n"].map((piece) => (
            <button
              type="button"
              key={piece}
              className={`${side}-piece`}
              aria-label={NAMES[piece]}
              onClick={() => onMove?.(`${promoting}${piece}`)}
            >
              {figureOf(piece)}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
