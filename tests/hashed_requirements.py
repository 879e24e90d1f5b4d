"""Write ``requirements/hashed``: the pins of ``requirements`` with the hashes of their files.

    make hashes

Each version has the hashes of all of its wheels and of its sdist, as the index serves them, so that
one file serves every Python and machine. uv reads them of the index; nothing is downloaded.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FILES: Final = ("runtime", "model", "dev", "docs")
# Its builds come from several indexes, and the smallest one of an index is not of PyPI.
UNHASHED: Final = frozenset({"torch"})
_HEADER: Final = "# Written by `make hashes` of requirements/{name}.txt: do not edit.\n"


def pinned(name: str) -> list[str]:
    """The pins of a file of requirements that have hashes."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    return [pin for pin in pins if pin.partition("==")[0] not in UNHASHED]


def hashed(uv: str, name: str) -> str:
    """The file with hashes."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.in", Path(folder) / "made.txt"
        given.write_text("\n".join(pinned(name)) + "\n", "utf-8")
        command = [uv, "pip", "compile", str(given), "-o", str(made), "-q", "--no-config"]
        command += ["--no-deps", "--generate-hashes", "--no-annotate", "--no-header"]
        # With all platforms and Pythons, no file of a version is left out.
        command += ["--universal", "--python-version", "3.11"]
        subprocess.run(command, check=True)
        return _HEADER.format(name=name) + made.read_text("utf-8")


def main(uv: str) -> None:
    """Write all files.

    Args:
        uv: the program.
    """
    for name in FILES:
        text = hashed(uv, name)
        path = ROOT / "requirements" / "hashed" / f"{name}.txt"
        path.write_text(text, "utf-8")
        print(f"{path.relative_to(ROOT)}: {text.count('--hash')} hashes")


if __name__ == "__main__":
    main(sys.argv[1])
