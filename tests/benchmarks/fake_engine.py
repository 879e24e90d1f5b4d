"""An engine for the tests: its tokens follow from the prompts, its times from the name of a case.

The environment variable ``FAKE_ENGINE`` chooses how it fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError


class FakeEngine:
    version = "fake 1.0"

    def __init__(self) -> None:
        self.case: Case | None = None

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        # What an engine prints must not be taken for an answer.
        print("loading", case.name)
        if case.weights == "int4":
            raise UnsupportedError("no weights in int4")
        if os.environ.get("FAKE_ENGINE") == "raises":
            raise ValueError(f"cannot open {files.folder}")
        self.case = case

    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        assert self.case is not None
        if os.environ.get("FAKE_ENGINE") == "ends":
            print("out of luck", file=sys.stderr)
            os._exit(3)
        step = 0.01 * self.case.batch
        tokens = [[sum(prompt) % 97 + at for at in range(steps + 1)] for prompt in prompts]
        rivals = [[[(token, 2.0), (token + 1, 1.9)] for token in row] for row in tokens]
        if os.environ.get("FAKE_ENGINE") == "other":
            tokens = [[token + 1 for token in row] for row in tokens]
        return Turn(step * self.case.prompt, [step] * steps, tokens, rivals)

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        return float(sum(len(window) - 1 for window in windows))


def create() -> FakeEngine:
    return FakeEngine()
