"""Runs the program."""

from __future__ import annotations

import signal
import sys

from .program import main

if __name__ == "__main__":
    # As Ctrl-C: the report has the results so far, and nothing is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
