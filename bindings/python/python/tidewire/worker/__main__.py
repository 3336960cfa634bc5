"""Runs a worker until its standard input ends."""

from .serving import main

if __name__ == "__main__":
    main()
