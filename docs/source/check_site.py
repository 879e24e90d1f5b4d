"""Faults of a built site: assets of other hosts, links without a target, pages and anchors missing.

Only what a browser fetches by itself counts as an asset; a link that a reader follows may lead
anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

# Attributes whose address a browser fetches when it shows the element.
_FETCHED: Final = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
_IN_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)['"]?((?:https?:)?//[^'")\s]+)""")
_IN_SCRIPT = re.compile(
    r"""(?:fetch|import|importScripts|Worker)\(\s*['"`]((?:https?:)?//[^'"`]+)"""
)


class PageReader(HTMLParser):
    """What a page fetches, links to, and can be linked at.

    Attributes:
        fetched: addresses of assets.
        linked: addresses of links.
        anchors: names of places.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.fetched: list[str] = _IN_STYLE.findall(text)
        self.linked: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses and names of an element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.fetched += [values[name] for name in _FETCHED.get(tag, ()) if name in values]
        if tag == "a" and "href" in values:
            self.linked.append(values["href"])


def faults(site: Path, pages: Iterable[str], anchors: Iterable[str] = ()) -> list[str]:
    """The faults of a site, a line each.

    Args:
        site: the folder of the built site.
        pages: names of pages that it has to have, without suffix.
        anchors: addresses ``PAGE.html#NAME`` that it has to have.
    """
    read = {
        path.relative_to(site).as_posix(): PageReader(path.read_text("utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    found = [f"there is no page {name}.html" for name in pages if f"{name}.html" not in read]
    for name, page in read.items():
        found += [f"{name} fetches {url}" for url in page.fetched if _is_elsewhere(url)]
        found += _lost_links(site, name, read)
    for path in sorted(p for p in site.rglob("*") if p.suffix in (".css", ".js")):
        text = path.read_text("utf-8")
        of = (_IN_STYLE if path.suffix == ".css" else _IN_SCRIPT).findall(text)
        found += [f"{path.relative_to(site)} fetches {url}" for url in of]
    for address in anchors:
        name, _, anchor = address.partition("#")
        if name not in read or anchor not in read[name].anchors:
            found.append(f"there is no place {address}")
    return found


def _is_elsewhere(url: str) -> bool:
    return any(part.strip().startswith(("http:", "https:", "//")) for part in url.split(","))


def _lost_links(site: Path, name: str, read: dict[str, PageReader]) -> Iterator[str]:
    """Links and assets of one page whose file or anchor is missing."""
    for url in {*read[name].linked, *read[name].fetched}:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            continue
        target = (site / name).parent / unquote(parts.path) if parts.path else site / name
        file = target.resolve()
        if not file.exists():
            yield f"{name} links to {url}, which does not exist"
        elif parts.fragment and file.suffix == ".html":
            page = read.get(file.relative_to(site.resolve()).as_posix())
            if page is None or unquote(parts.fragment) not in page.anchors:
                yield f"{name} links to {url}, which has no such place"
