"""How soon the explorer of a module of 170,000 ops can be used, and how it answers.

The module is one ENTRY of equal layers in HLO text. Its page is opened from a file in headless
Chromium without a GPU: seconds from the start of loading until the first view is drawn, the
browser's memory for it, and the milliseconds of each interaction until its frame is drawn: an op by
its address, the op after it, a layer, boxes unfolded and folded, moves, colours, searches, memory,
a path. ``first`` is the first address after the page has opened, before the engine has compiled
what a layout needs. With ``--peer``, a page that another version wrote of the same module is opened
beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.hlo_text_speed import text_of
from benchmarks.rows import Row, table, write_json
from tests.oracles.chromium import NO_BROWSER, Page, program

# From the start of navigation to the end of the first drawing that follows, by the page's clock.
_OPENED = """(self.routing ?? Promise.resolve()).then(() => new Promise((done) =>
  requestAnimationFrame(() => setTimeout(() => done(performance.now() / 1000)))))"""
# The first one is a `let` of the page's script, which is no property of the window.
_EXPLORED = _OPENED.replace("self.routing ?? Promise.resolve()", "routing")
_MEMORY = "performance.memory.usedJSHeapSize"
# An interaction ends with the frame that shows it.
_TIMED = """(async () => {
  const start = performance.now();
  %s;
  await new Promise((done) => setTimeout(done));
  await routing;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
})()"""


def interactions(layers: int) -> Iterator[tuple[str, str]]:
    """Name and script of each interaction."""
    folded = "pane().drawn.units.find((unit) => unit.folds && !unit.open)"
    unfolded = "pane().drawn.units.findLast((unit) => unit.folds && unit.open)"
    for part in range(1, 7):
        layer = layers * part // 7
        yield "op", _address(f"op=m.{layer}")
        yield "next", "stepOp(1)"
        yield "layer", _address(f"layer=jit(step).layers.{layer + 5}")
        yield "unfold", f"pane().toggle({folded})"
        yield "fold", f"pane().toggle({unfolded})"
        yield "zoom", "pane().zoom(0.8)"
        yield "pan", "pane().pan(40, 30)"
    for rule in ("flops", "bytes", "memory", "sharding", "kind"):
        yield "colour", f"paintRule('{rule}')"
    for words in ("layers.777", "tanh decoder.py:15", "%d.9", "bf16[64,8]", "nowhere"):
        yield "search", _address(f"search={words}")
        yield "jump", "jump(1)"
    for part in range(1, 4):
        yield "memory", _address(f"view=memory&at={layers * part}")
    yield "path", _address(f"op=m.{layers // 90}&path=0:{layers // 180}")


def _address(text: str) -> str:
    return f"location.hash = {json.dumps(text)}"


def opened(path: Path) -> tuple[float, int]:
    """Seconds to open another page, and its heap in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        browser = Page(path, Path(folder) / "profile")
        try:
            return browser.run(_OPENED), browser.run(_MEMORY)
        finally:
            browser.close()


def explored(path: Path, layers: int) -> tuple[float, int, dict[str, list[float]]]:
    """Seconds to open the page, its heap in bytes, and milliseconds by kind of interaction."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        browser = Page(path, Path(folder) / "profile")
        try:
            seconds, heap = browser.run(_EXPLORED), browser.run(_MEMORY)
            found["first"] = [browser.run(_TIMED % _address(f"op=m.{layers // 3}"))]
            for name, script in interactions(layers):
                found.setdefault(name, []).append(browser.run(_TIMED % script))
            assert not browser.complaints, browser.complaints
            return seconds, heap, found
        finally:
            browser.close()


def written(source: Path, page: Path) -> float:
    """CPU seconds of ``graphgen explore`` in a process of its own."""
    before = os.times()
    command = [sys.executable, "-m", "graphgen", "explore", str(source), "-o", str(page)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def measure(ops: int, folder: Path, peer: Path | None) -> Row:
    """Write and open the page of a module of so many ops, and the peer's page of the same."""
    source, page = folder / "layers.hlo", folder / "layers.html"
    source.write_text(text_of(ops), encoding="utf-8")
    writing = written(source, page)
    seconds, heap, times = explored(page, ops // 6)
    theirs, their_heap = opened(peer) if peer is not None else (0.0, 0)
    every = sorted(one for each in times.values() for one in each)
    extra: dict[str, int | float | str] = {
        "CPU s": round(writing, 1),
        "page MB": round(page.stat().st_size / 1e6, 2),
        "heap MB": round(heap / 1e6),
        "median ms": round(statistics.median(every)),
        "p95 ms": round(every[int(0.95 * (len(every) - 1))]),
        **{f"{name} ms": round(statistics.median(each)) for name, each in times.items()},
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
