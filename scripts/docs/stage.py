"""Stages the pages of the site: the Markdown files of the repository in their folders, and the files they link to.

The folders stay as they are, so that a link that leads somewhere here also does so in the repository. A link to a folder becomes
one to its README or, if it has none, to a page that lists its files.

    stage.py REPOSITORY FOLDER
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

FIRST = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md")
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^ {0,3}(```|~~~)")
# What rustdoc needs behind the language, as in `rust,no_run`; the generator of the site would not see a block of code.
ATTRIBUTES = re.compile(r",\S*$", re.MULTILINE)

REFERENCES = """# References

- Rust: [the engine](reference/rust/tidewire_engine/index.html),
  [the client](reference/rust/tidewire_client/index.html), [the load lab](reference/rust/tidewire_load/index.html),
  [the wire](reference/rust/tidewire_wire/index.html)
- Python: [tidewire](reference/python/tidewire.html), [tidewire.asgi](reference/python/tidewire/asgi.html)
- TypeScript: [`@tidewire/client` with React, Vue and Svelte, and `tidewire` for Node](reference/typescript/index.html)
- HTTP: [the API of the operations listener](docs/http-api.md)
- Every language: [the protocol](protocol/PROTOCOL.md)

Each reference has a search of its own.
"""


class Stage:
    """The pages that are staged, and those that are still to be."""

    def __init__(self, root: Path, out: Path) -> None:
        self.root = root
        self.out = out
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        )
        self.files = set(listed.stdout.splitlines())
        self.done: set[str] = set()
        self.waiting: list[str] = []

    def add(self, name: str) -> None:
        """Stages a file later, once."""
        if name not in self.done:
            self.done.add(name)
            self.waiting.append(name)

    def run(self) -> None:
        """Stages everything that was added, and what it links to."""
        while self.waiting:
            name = self.waiting.pop()
            target = self.out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".md"):
                target.write_text(self.page(name))
            else:
                shutil.copyfile(self.root / name, target)

    def page(self, name: str) -> str:
        """The text of a page, with its links to folders and the languages of its code mended."""
        lines = []
        fence = None
        for line in (self.root / name).read_text().splitlines(keepends=True):
            mark = FENCE.match(line)
            if mark and fence in (None, mark[1]):
                fence = None if fence else mark[1]
                line = ATTRIBUTES.sub("", line)
            lines.append(line if fence else LINK.sub(lambda found: self.link(name, found), line))
        return "".join(lines)

    def link(self, page: str, found: re.Match[str]) -> str:
        """A link whose file is staged, too."""
        target = found[1] or found[2]
        if re.match(r"[a-z]+:|#|//", target):
            return found[0]
        path, _, anchor = target.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if name in self.files:
            self.add(name)
            # A line of a source is no anchor in a file that is not a page.
            mended = target if name.endswith(".md") or not anchor else path
        else:
            mended = posixpath.join(path, self.folder(name)) + (f"#{anchor}" if anchor else "")
        return found[0].replace(target, mended)

    def folder(self, name: str) -> str:
        """The page of a folder."""
        readme = f"{name}/README.md"
        if readme in self.files:
            self.add(readme)
            return "README.md"
        inside = sorted(file.removeprefix(f"{name}/") for file in self.files if file.startswith(f"{name}/"))
        if not inside:
            raise SystemExit(f"there is nothing named {name}")
        listed = "".join(f"- `{file}`\n" for file in inside)
        page = self.out / name / "index.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"# `{name}`\n\nThe files of this folder in the repository:\n\n{listed}")
        return "index.md"


def main(root: Path, out: Path) -> None:
    stage = Stage(root, out)
    # Also the pages that nobody links to, so that their own links are checked.
    pages = (name for name in stage.files if name.endswith(".md") or re.fullmatch(r"docs/[^/]+", name))
    for name in (*FIRST, *sorted(pages)):
        stage.add(name)
    stage.run()
    (out / "references.md").write_text(REFERENCES)


main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
