"""Write the lowest versions that ``pyproject.toml`` allows, as requirements.

    make test-lowest
    python -m tests.lowest .cache/tools/bin/uv

uv chooses the lowest version of each package that ``pyproject.toml`` names, with all extras of the
tests, and of what those need the newest that fits. torch is installed before, with its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

from tests.hashed_requirements import ROOT

_OF_TORCH: Final = re.compile(r"^(torch|triton|nvidia-|cuda-)")


def lowest(uv: str) -> list[str]:
    """The pins, a line each.

    Args:
        uv: the program.
    """
    command = [uv, "pip", "compile", "pyproject.toml", "--extra", "test", "--no-config", "-q"]
    command += ["--resolution", "lowest-direct", "--python-version", "3.11"]
    command += ["--no-annotate", "--no-header"]
    ran = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [line for line in ran.stdout.splitlines() if not _OF_TORCH.match(line)]


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1])))
