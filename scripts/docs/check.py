"""Checks the built site: each link to a file of it and each anchor exists, and no page loads anything from the network.

    check.py SITE

The generator checks the links of Markdown; this also sees those of the theme, of HTML inside Markdown, and from the
pages into the references.
"""

from __future__ import annotations

import posixpath
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("source", "srcset"), ("iframe", "src")}
"""Attributes whose value is loaded with the page; so is that of `link` for a style sheet or an icon."""


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attributes if value}
        self.anchors.update(value for name in ("id", "name") if (value := values.get(name)))
        if tag in ("a", "link") and (link := values.get("href")):
            self.links.add(link)
        if tag == "link" and {"stylesheet", "icon", "preload"} & set(values.get("rel", "").split()):
            self.loaded.add(values.get("href", ""))
        for name in ("src", "srcset"):
            if (tag, name) in LOADED and (link := values.get(name)):
                self.links.add(link)
                self.loaded.add(link)


def problems(site: Path) -> list[str]:
    """One line for each link that leads nowhere."""
    found = []
    pages: dict[str, Page] = {}

    def page(name: str) -> Page:
        if name not in pages:
            pages[name] = Page((site / name).read_text(errors="replace"))
        return pages[name]

    own = [
        name
        for path in sorted(site.rglob("*.html"))
        # The references are checked by what makes them; the page of errors stands at no address of its own.
        if not (name := path.relative_to(site).as_posix()).startswith("reference/") and name != "404.html"
    ]
    if not own:
        raise SystemExit(f"there is no page in {site}")
    for name in own:
        found += [f"{name} loads {link}" for link in page(name).loaded if urlsplit(link).netloc]
        for link in sorted(page(name).links):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            path = unquote(address.path)
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if (site / target).is_dir():
                target = posixpath.normpath(f"{target}/index.html")
            if not (site / target).is_file():
                found.append(f"{name} links to {link}, which does not exist")
            elif address.fragment and target.endswith(".html") and not target.startswith("reference/"):
                anchor = unquote(address.fragment)
                if anchor not in page(target).anchors and anchor not in ("__skip", "top"):
                    found.append(f"{name} links to {link}, which has no such anchor")
    return found


def main(site: Path) -> None:
    found = problems(site)
    print("\n".join(found) or "every link of the site leads somewhere")
    if found:
        raise SystemExit(1)


main(Path(sys.argv[1]))
