"""A limit of lines of the log about the same fault, which clients can cause."""

from __future__ import annotations

import time


class LineLimit:
    """Permits the first lines of each second, and counts the others."""

    __slots__ = ("_count", "_left_out", "_until")

    def __init__(self) -> None:
        self._until = 0.0
        self._count = 0
        self._left_out = 0

    def renews(self) -> bool:
        """Whether another second has begun. Then the number of the lines that were left out is due."""
        now = time.monotonic()
        if now < self._until:
            return False
        self._until = now + 1
        self._count = 0
        return True

    def permits(self) -> bool:
        """Whether a line may be logged; if not, it is counted."""
        if self._count >= LINES_PER_SECOND_MAX:
            self._left_out += 1
            return False
        self._count += 1
        return True

    def take_left_out(self) -> int:
        """The number of the lines that were left out since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out


LINES_PER_SECOND_MAX = 10
