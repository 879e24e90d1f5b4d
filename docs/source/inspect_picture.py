"""Draw docs/pictures/inspect-layer.png: the page of ``graphgen explore`` at an all-reduce.

The program is the decode step of a mini Llama on four ranks, lowered for trn2. Chromium draws the
page (Debian: ``apt-get install chromium``). Run from the root of a checkout:

    python -m docs.source.inspect_picture
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.oracles.chromium import Page

PICTURE = Path("docs/pictures/inspect-layer.png")
ADDRESS = "program=decode.b1.c128&op=150"
WIDTH, HEIGHT = 1360, 800
VIEW = "panes[0].centre(panes[0].selectedUnit.around.around); explorer.settled()"


def graphgen(folder: Path, arguments: str) -> None:
    """Run a command in a folder."""
    program = Path(sys.executable).with_name("graphgen")
    subprocess.run([program, *arguments.split()], cwd=folder, check=True)


def draw(folder: Path) -> None:
    """Build, lower and inspect the model in a folder, and photograph the page."""
    graphgen(folder, "build llama-3.1-8b --mini --tp 4 -o mini.gg")
    graphgen(folder, "lower mini.gg --target trn2 --to hlo -o programs/")
    graphgen(folder, "explore programs/lowered.gg -o page.html")
    page = Page(folder / "page.html", folder / "profile")
    try:
        page.resize(WIDTH, HEIGHT, scale=2)
        page.reload()
        page.go(ADDRESS)
        page.run(
            "panes[0].zoom(0.75); panes[0].centre(panes[0].selectedUnit.around); explorer.settled()"
        )
        page.picture(folder / "page.png")
    finally:
        page.close()
    Image.open(folder / "page.png").convert("RGB").quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        draw(Path(made))
