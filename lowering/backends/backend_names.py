"""Names of backends; imports nothing, so that a command can check one before it runs."""

from __future__ import annotations

import re
from typing import Final

NUMPY, CPU, XLA, IREE, PJRT = "numpy", "cpu", "xla", "iree", "pjrt:"
NAMES: Final = (NUMPY, CPU, XLA, IREE, f"{PJRT}PLATFORM")


def is_backend_name(name: str) -> bool:
    """True for the name of a backend, whether it is installed or not."""
    return name in NAMES[:-1] or re.fullmatch(rf"{PJRT}\w+", name) is not None


def compiles_files(name: str) -> bool:
    """True for the name of a backend that compiles a file as it stands."""
    return name == XLA or name.startswith(PJRT)
