"""Draw the pictures of docs/dumps.md: pages of ``graphgen explore`` and ``profile``.

The programs are those of the guide, written by its blocks and in docs/examples. Chromium draws the
pages (Debian: ``apt-get install chromium``). Run from the root of a checkout:

    python -m docs.source.dump_pictures [NAME ...]
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tests.oracles.chromium import Page

ROOT = Path(__file__).resolve().parents[2]
GUIDE, EXAMPLES, PICTURES = (ROOT / "docs" / name for name in ("dumps.md", "examples", "pictures"))
WIDTH, HEIGHT, QUALITY = 1280, 720, 82
_BLOCK = re.compile(r"^```python\n# ([\w.]+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_RATES = "--rates 100e9,20e9"


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        commands: that write page.html; E stands for docs/examples.
        address: the part of the page's address after ``#``.
        script: what is done on the page before it is photographed.
        height: of the window.
    """

    commands: tuple[str, ...]
    address: str
    script: str = "0"
    height: int = HEIGHT


PICTURES_OF_THE_GUIDE = {
    "dump-slow": Picture(
        (f"graphgen profile E/recurrent.xplane.pb.gz {_RATES} --html page.html",),
        "color=lost&op=ynn_fusion.3",
        "panes[0].zoom(1.1); explorer.settled()",
    ),
    "dump-memory": Picture(
        ("graphgen explore E/train.hlo -o page.html",), "view=memory", height=960
    ),
    "dump-flag": Picture(
        ("graphgen explore E/with.hlo E/without.hlo -o page.html",), "color=difference"
    ),
    "dump-shard": Picture(
        ("python halo.py", "graphgen explore ranks.mlir -o page.html"),
        "search=collective_permute",
        "jump(1); routing.then(() => panes[0].centre(panes[0].selectedUnit))",
    ),
    "dump-report": Picture(
        (
            "python window.py",
            "graphgen triage window.mlir --inputs window.npz --on xla,cpu || true",
            "graphgen explore window.mlir window.triage/xla/program.mlir -o page.html",
        ),
        "",
    ),
}


def draw(name: str, folder: Path) -> None:
    """Write the files of one picture in a folder, and photograph its page."""
    picture = PICTURES_OF_THE_GUIDE[name]
    for file, text in _BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        (folder / file).write_text(text, encoding="utf-8")
    scripts = Path(sys.executable).parent
    for command in picture.commands:
        line = command.replace("E/", f"{EXAMPLES}/")
        subprocess.run(f'PATH="{scripts}:$PATH" {line}', cwd=folder, shell=True, check=True)
    page = Page(folder / "page.html", folder / "profile")
    try:
        page.resize(WIDTH, picture.height, scale=1.5)
        page.reload()
        page.go(picture.address)
        page.run("explorer.settled()")
        page.run(picture.script)
        page.run("explorer.settled()")
        page.picture(folder / "page.png")
    finally:
        page.close()
    image = Image.open(folder / "page.png").convert("RGB")
    image.save(PICTURES / f"{name}.webp", quality=QUALITY, method=6)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or PICTURES_OF_THE_GUIDE:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
            draw(chosen, Path(made))
