"""Arrays of a file that a test has written, with the file closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def saved_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an ``.npz`` file by name; the file is closed."""
    with np.load(path) as found:
        return dict(found)
