"""Every example of the documentation runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# test_ten_minutes.py runs its own page, whose program is a server.
DOCS = sorted(page for page in (ROOT / "docs").glob("*.md") if page.stem != "ten-minutes")
PAGES = [*DOCS, ROOT / "README.md", ROOT / "bindings/python/README.md"]


def examples() -> list[object]:
    found: list[object] = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
        found += [pytest.param(text, id=f"{page.stem}-{number}") for number, text in enumerate(blocks, 1)]
    return found


@pytest.mark.parametrize("text", examples())
def test_example(text: str, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(text)
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
