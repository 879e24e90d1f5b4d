"""The moving line of long checks: nothing of it stays, whatever ends them."""

from __future__ import annotations

import io
import re

import pytest

from graphgen.cli import step_progress
from graphgen.cli.step_progress import StepProgress


class Terminal(io.StringIO):
    """Standard error of a user who looks on."""

    def isatty(self) -> bool:
        return True


def left(text: str) -> str:
    """The text that a terminal still shows: a line is erased from its beginning on."""
    return re.sub(r"[^\n]*\r\x1b\[K", "", text)


@pytest.mark.parametrize("steps", [[], ["reading"], ["reading", "comparing"]])
def test_an_error_leaves_no_line_before_it(monkeypatch: pytest.MonkeyPatch, steps: list[str]):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(step_progress, "_QUIET", 0.0)

    def work() -> None:
        with StepProgress() as progress:
            # As the thread does, each second.
            progress._show()  # pyright: ignore[reportPrivateUsage]
            for step in steps:
                progress.step(step)
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        work()
    assert left(screen.getvalue()) == ""
    for step in steps:
        assert f"  {step}, " in screen.getvalue()
