"""The names that an interpreter or a notebook offers."""

from __future__ import annotations

from collections.abc import Iterable


class PublicNames:
    """A class whose objects name only what is public in `dir()`; the rest can be used as before."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if is_public(name)]


def is_public(name: str) -> bool:
    """Whether a name is not one of the package's own: it begins with no underscore, or with two and ends so."""
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def names(public: Iterable[str], module: Iterable[str]) -> list[str]:
    """The result of `dir()` for a module: its public names, and those that every module has."""
    return sorted({*public, *(name for name in module if name.startswith("__") and name.endswith("__"))})
