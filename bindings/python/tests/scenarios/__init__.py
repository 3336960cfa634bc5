"""Runs the scenarios of `protocol/scenarios`, which every client runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[4] / "protocol" / "scenarios"


def load(file: str) -> list[dict[str, Any]]:
    """The scenarios of a file."""
    scenarios: list[dict[str, Any]] = json.loads((FOLDER / file).read_text())["scenarios"]
    return scenarios


def single(step: dict[str, Any]) -> tuple[str, Any]:
    """The one field of an object."""
    ((name, value),) = step.items()
    return name, value
