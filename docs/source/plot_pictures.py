"""Draw the pictures of docs/cost.md with the commands of the guide.

It needs matplotlib. Run from the root of a checkout:

    python -m docs.source.plot_pictures
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE, PICTURES = ROOT / "docs" / "cost.md", ROOT / "docs" / "pictures"
# The file that a command of the guide writes, and the picture that shows it.
DRAWN = {"decode.png": "cost-decode.png", "plan.png": "plan.png"}


def commands() -> list[str]:
    """The commands that draw, and those that write files which they read."""
    found = re.findall(r"^\$ (graphgen .*)$", GUIDE.read_text("utf-8"), re.MULTILINE)
    return [line for line in found if re.match(r"graphgen (build|opt) |.* --plot ", line)]


def draw(folder: Path) -> None:
    """Run the commands in a folder, and keep what they draw."""
    scripts = Path(sys.executable).parent
    for command in commands():
        subprocess.run(f'PATH="{scripts}:$PATH" {command}', cwd=folder, shell=True, check=True)
    for file, picture in DRAWN.items():
        shutil.copyfile(folder / file, PICTURES / picture)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        draw(Path(made))
