"""How soon the page of a module of 170,000 ops can be used: written, opened, a layer drawn.

The module is one ENTRY of equal layers in HLO text. Its page is opened from a file in headless
Chromium: seconds from the start of loading until the page has drawn its first view, the browser's
memory for it, and seconds until a layer in the middle and an op by a deep link are drawn. With
``--peer``, a page that another version wrote of the same module is opened beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.hlo_text_speed import text_of
from benchmarks.rows import Row, table, write_json
from tests.oracles.chromium import NO_BROWSER, Page, program

# From the start of navigation to the end of the first drawing that follows, by the page's clock.
_OPENED = """new Promise((done) => requestAnimationFrame(() => setTimeout(() =>
  done(performance.now() / 1000))))"""
_MEMORY = "performance.memory.usedJSHeapSize"


def opened(page: Path, links: Sequence[str] = ()) -> tuple[float, int, list[float]]:
    """Seconds to open a page, its heap in bytes, and seconds to follow each deep link."""
    with tempfile.TemporaryDirectory() as folder:
        browser = Page(page, Path(folder) / "profile")
        try:
            seconds, heap = browser.run(_OPENED), browser.run(_MEMORY)
            followed: list[float] = []
            for link in links:
                start = time.perf_counter()
                browser.go(link)
                followed.append(time.perf_counter() - start)
            assert not browser.complaints, browser.complaints
            return seconds, heap, followed
        finally:
            browser.close()


def written(source: Path, page: Path) -> float:
    """CPU seconds of ``graphgen inspect --html`` in a process of its own."""
    before = os.times()
    command = [sys.executable, "-m", "graphgen", "inspect", str(source), "--html", str(page)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def measure(ops: int, folder: Path, peer: Path | None) -> Row:
    """Write and open the page of a module of so many ops, and the peer's page of the same."""
    source, page = folder / "layers.hlo", folder / "layers.html"
    source.write_text(text_of(ops), encoding="utf-8")
    writing = written(source, page)
    middle = ops // 12
    links = (f"layer=jit(step).layers.{middle}", f"op=m.{middle + 7}")
    seconds, heap, (layer, op) = opened(page, links)
    theirs, their_heap, _ = opened(peer) if peer is not None else (0.0, 0, [])
    extra: dict[str, int | float | str] = {
        "CPU s": round(writing, 1),
        "page MB": round(page.stat().st_size / 1e6, 1),
        "heap MB": round(heap / 1e6),
        "layer s": round(layer, 2),
        "op s": round(op, 2),
    }
    if peer is not None:
        extra["peer MB"] = round(peer.stat().st_size / 1e6, 1)
        extra["peer heap MB"] = round(their_heap / 1e6)
    return Row(f"{ops} ops", seconds, peer.name if peer else "-", theirs, extra)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line; see the module's own text."""
    parser = argparse.ArgumentParser(description=__doc__, prog="inspect_page")
    parser.add_argument("--ops", type=int, default=170_000)
    parser.add_argument("--peer", type=Path, help="a page of the same module by another version")
    parser.add_argument("--json", type=Path, help="also write the row to this file")
    given = parser.parse_args(arguments)
    if program() is None:
        sys.stdout.write(f"not measured: {NO_BROWSER}\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        row = measure(given.ops, Path(folder), given.peer)
    sys.stdout.write(f"{table([row], list(row.extra))}\n")
    if given.json is not None:
        write_json([row], given.json)


if __name__ == "__main__":
    main()
