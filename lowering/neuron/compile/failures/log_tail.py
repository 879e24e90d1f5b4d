"""The last lines of a compiler's log."""

from __future__ import annotations


def log_tail(text: str, lines: int = 12) -> str:
    """The last ``lines`` lines of a text, without blank ones at its ends."""
    return "\n".join(text.strip().splitlines()[-lines:])
