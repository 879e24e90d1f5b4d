"""The readers that are fuzzed, each with small right inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from tests.fuzz.checkpoint_targets import CHECKPOINTS
from tests.fuzz.program_targets import PROGRAMS
from tests.fuzz.setting_targets import SETTINGS
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {**PROGRAMS, **CHECKPOINTS, **SETTINGS}


@cache
def seeds_of(name: str) -> Sequence[bytes]:
    """The right inputs of a target."""
    return TARGETS[name].seeds()
