"""A folder with the stand-in for neuronx-cc, and what it is asked to do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("neuronx_cc.py")


class FakeNeuron:
    """The stand-in in a folder of its own.

    Args:
        root: an empty folder.

    Attributes:
        binary: the executable.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bin").mkdir(parents=True)
        self.binary = root / "bin" / "neuronx-cc"
        # The shell passes the process on: signals and memory are those of the compiler itself.
        self.binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{PROGRAM}" "$@"\n')
        self.binary.chmod(0o755)
        self._orders = root / "orders.json"
        self._calls = root / "calls.txt"
        self.order()

    def order(self, *failures: Mapping[str, Any], **settings: Any) -> None:
        """Set what the next calls do; without arguments they succeed."""
        orders = {**settings, "failures": failures, "calls": str(self._calls)}
        self._orders.write_text(json.dumps(orders))
        for counted in self.root.glob("orders.json.*"):
            counted.unlink()

    @property
    def calls(self) -> Sequence[str]:
        """The entry of each module that was compiled, in order."""
        return self._calls.read_text().split() if self._calls.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        """The variables that put it first."""
        path = f"{self.binary.parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "FAKE_NEURONX_CC": str(self._orders)}
