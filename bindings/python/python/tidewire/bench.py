"""The bench with this package's client: `python -m tidewire.bench`, with the options of `tidewire bench`.

It starts the program `tidewire`, whose workers are processes of this Python. The program is that of `--program`,
of `TIDEWIRE_PROGRAM` or of `PATH`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys

EXIT_USAGE = 2
INSTALL = (
    "the program `tidewire` is needed: install it (docs/bench.md), or name it with --program FILE or "
    "TIDEWIRE_PROGRAM"
)


def command(words: list[str]) -> list[str]:
    """The command line of the program.

    Raises:
        ValueError: There is no program, or a value is missing; for a person.
    """
    words, program = taken(words, "--program")
    program = program or os.environ.get("TIDEWIRE_PROGRAM") or shutil.which("tidewire")
    if not program or shutil.which(program) is None:
        raise ValueError(INSTALL if not program else f"{program} is no program: {INSTALL}")
    return [program, "bench", "--client", "python", *words]


def taken(words: list[str], name: str) -> tuple[list[str], str | None]:
    """The words without an option, and the option's value."""
    rest: list[str] = []
    value: str | None = None
    given = iter(words)
    for word in given:
        if word == name:
            value = next(given, None)
            if value is None:
                raise ValueError(f"{name} needs a value")
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
        else:
            rest.append(word)
    return rest, value


def main() -> int:
    """Becomes the program."""
    try:
        words = command(sys.argv[1:])
    except ValueError as error:
        print(f"tidewire.bench: {error}", file=sys.stderr)
        return EXIT_USAGE
    os.environ["TIDEWIRE_WORKER_PYTHON"] = f"exec {shlex.quote(sys.executable)} -m tidewire.worker"
    os.execvp(words[0], words)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
