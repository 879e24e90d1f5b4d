"""Draw docs/pictures/inspect-layer.png: the page of ``graphgen inspect --html`` at an all-reduce.

The program is the decode step of a mini Llama on four ranks, lowered for trn2. Chromium draws the
page (Debian: ``apt-get install chromium``). Run from the root of a checkout:

    python -m docs.source.inspect_picture
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.oracles.chromium import Page

PICTURE = Path("docs/pictures/inspect-layer.png")
ADDRESS = "program=decode.b1.c128&op=150"
WIDTH, HEIGHT = 1360, 800
# Drags the drawing until all of the MLP is seen above its all-reduce.
DRAG = """
const svg = document.querySelector("#content svg");
const at = (kind, x, y) => new PointerEvent(kind, { bubbles: true, clientX: x, clientY: y });
svg.dispatchEvent(at("pointerdown", 400, 500));
dispatchEvent(at("pointermove", 200, 730));
dispatchEvent(at("pointerup", 200, 730));
"""


def graphgen(folder: Path, arguments: str) -> None:
    """Run a command in a folder."""
    program = Path(sys.executable).with_name("graphgen")
    subprocess.run([program, *arguments.split()], cwd=folder, check=True)


def draw(folder: Path) -> None:
    """Build, lower and inspect the model in a folder, and photograph the page."""
    graphgen(folder, "build llama-3.1-8b --mini --tp 4 -o mini.gg")
    graphgen(folder, "lower mini.gg --target trn2 --to hlo -o programs/")
    graphgen(folder, "inspect programs/lowered.gg --html page.html")
    page = Page(folder / "page.html", folder / "profile")
    try:
        page.resize(WIDTH, HEIGHT, scale=2)
        page.reload()
        page.go(ADDRESS)
        page.run(DRAG)
        time.sleep(1)
        page.picture(folder / "page.png")
    finally:
        page.close()
    Image.open(folder / "page.png").convert("RGB").quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        draw(Path(made))
