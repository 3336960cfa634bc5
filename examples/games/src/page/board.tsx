/** The board: 64 buttons. A click on a piece and a click on a square make a move. */

import { useState } from "react";
import type { Side } from "../core/clock.js";

const PIECES: Record<string, string> = {
  K: "♔",
  Q: "♕",
  R: "♖",
  B: "♗",
  N: "♘",
  P: "♙",
  k: "♚",
  q: "♛",
  r: "♜",
  b: "♝",
  n: "♞",
  p: "♟",
};
const FILES = "abcdefgh";

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

export function Board({
  fen,
  side,
  lastMove,
  onMove,
}: {
  fen: string;
  /** The side at the bottom. */
  side: Side;
  lastMove: string | undefined;
  /** Called with a move such as `e2e4`; without it the board is read-only. */
  onMove: ((move: string) => void) | undefined;
}) {
  const [from, setFrom] = useState<string>();
  const [promotion, setPromotion] = useState("q");
  const pieces = piecesOf(fen);
  const ranks = side === "white" ? [8, 7, 6, 5, 4, 3, 2, 1] : [1, 2, 3, 4, 5, 6, 7, 8];
  const files = side === "white" ? [...FILES] : [...FILES].reverse();
  const click = (square: string) => {
    if (!onMove) return;
    const piece = pieces.get(square);
    const isOwn = piece !== undefined && (piece === piece.toUpperCase()) === (side === "white");
    if (isOwn) return setFrom(square);
    if (!from) return;
    setFrom(undefined);
    const isPawn = pieces.get(from)?.toLowerCase() === "p";
    onMove(`${from}${square}${isPawn && /[18]$/.test(square) ? promotion : ""}`);
  };
  return (
    <div className="board" data-fen={fen}>
      {ranks.flatMap((rank) =>
        files.map((file) => {
          const square = `${file}${rank}`;
          const isDark = (FILES.indexOf(file) + rank) % 2 === 1;
          const isMarked = square === from || lastMove?.slice(0, 4).includes(square);
          const classes = [isDark ? "dark" : "light", isMarked ? "marked" : ""].join(" ");
          return (
            <button
              type="button"
              key={square}
              data-square={square}
              className={classes}
              onClick={() => click(square)}
            >
              {PIECES[pieces.get(square) ?? ""] ?? ""}
            </button>
          );
        }),
      )}
      {onMove && (
        <label className="promotion">
          A pawn becomes{" "}
          <select value={promotion} onChange={(event) => setPromotion(event.target.value)}>
            <option value="q">a queen</option>
            <option value="r">a rook</option>
            <option value="b">a bishop</option>
            <option value="n">a knight</option>
          </select>
        </label>
      )}
    </div>
  );
}
