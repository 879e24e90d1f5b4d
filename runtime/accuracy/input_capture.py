"""Captured inputs of program launches, in files that ``graphgen run`` replays.

A capture holds a launch's inputs and the states before it, by name, in the types that the caller of
the program sees. The folder gets ``module.gg`` with the programs and ``manifest.json``, which lists
the captures, each with the command that replays it. All files are written whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from graphgen.atomic_write import Content, write_inside
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.inputs import safetensors_bytes, write_arrays
from graphgen.exec.weights import default_layouts, unpack_state
from graphgen.ir import Entry, Role
from graphgen.runtime.session.session import Session
from graphgen.text import print_module

MANIFEST: Final = "manifest.json"
MODULE: Final = "module.gg"
FORMAT: Final = "graphgen-captured-inputs-1"
ENDINGS: Final = ("npz", "safetensors")


@dataclass(frozen=True, slots=True)
class Captured:
    """One captured launch.

    Attributes:
        file: path relative to the folder.
        program: the function's name.
        phase: ``prefill`` or ``decode``.
        step: 0 for the launch of a prompt, n for the n-th launch after it.
        call: number of earlier launches of the same program.
        inputs: names of the program's inputs.
        states: names of its states.
        replay: the command that runs the program again; CHECKPOINT stands for the weights.
    """

    file: str
    program: str
    phase: str
    step: int
    call: int
    inputs: tuple[str, ...]
    states: tuple[str, ...]
    replay: str


class InputCapture:
    """An observer of a session that writes the inputs of chosen launches to a folder.

    Args:
        folder: made at the first capture.
        steps: steps to capture: 0 is the launch of a prompt, n the n-th one after it. These are
            NxD Inference's capture indices.
        calls: of every program the launches to capture, counted from 0.
        ending: ``npz`` or ``safetensors`` (GG0705 for another).

    Attributes:
        captured: the captures so far.
    """

    def __init__(
        self,
        folder: Path,
        steps: Collection[int] = (),
        calls: Collection[int] = (),
        ending: str = "npz",
    ) -> None:
        if ending not in ENDINGS:
            raise GraphgenError(
                "GG0705",
                f"captured inputs cannot be written as {ending!r}",
                help=f"one of {', '.join(ENDINGS)}",
            )
        negative = [index for index in (*steps, *calls) if index < 0]
        if negative:
            raise GraphgenError("GG0705", f"a capture index of {negative[0]}; indices start at 0")
        self.folder = folder
        self.steps = frozenset(steps)
        self.calls = frozenset(calls)
        self.ending = ending
        self.captured: list[Captured] = []
        self._counts: Counter[str] = Counter()
        self._step = 0

    def before_launch(
        self, session: Session, program: str, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Write this launch's inputs if it is a chosen one (GG0704)."""
        phase = session.module.function(program).phase
        # A prompt of one token may go through the decode programs.
        begins = phase == "prefill" or bool((inputs["positions"] == 0).any())
        self._step = 0 if begins else self._step + 1
        call = self._counts[program]
        self._counts[program] += 1
        if self._step in self.steps or call in self.calls:
            self._write(session, program, phase, call, inputs)

    def after_launch(self, session: Session, program: str) -> None:
        """Do nothing: states are read before the launch."""

    def _write(
        self,
        session: Session,
        program: str,
        phase: str,
        call: int,
        inputs: Mapping[str, npt.NDArray[np.generic]],
    ) -> None:
        states = logical_states(session, program)
        name = f"{program}.call{call}.{self.ending}"
        arrays: dict[str, Array] = {**inputs, **states}
        if not self.captured:
            text = print_module(session.module).encode()
            write_inside(self.folder, self.folder / MODULE, text, parents=True)
        captured: Content = lambda file: write_arrays(file, arrays)  # noqa: E731
        if self.ending != "npz":
            captured = safetensors_bytes(arrays)
        write_inside(self.folder, self.folder / name, captured, parents=True)
        replay = (
            f"graphgen run {MODULE} --program {program} --inputs {name} --weights CHECKPOINT"
            " --on cpu"
        )
        self.captured.append(
            Captured(name, program, phase, self._step, call, tuple(inputs), tuple(states), replay)
        )
        content = {"format": FORMAT, "captures": [asdict(one) for one in self.captured]}
        text = json.dumps(content, indent=1) + "\n"
        write_inside(self.folder, self.folder / MANIFEST, text.encode())


def logical_states(session: Session, program: str) -> dict[str, Array]:
    """The states that a program takes, by name, in their logical types."""
    module = session.module
    taken = {value.name for value in module.function(program).args}
    rows = [row for row in module.entries(Role.STATE) if row.name in taken]
    return {row.name: _logical(session, row) for row in rows}


def _logical(session: Session, row: Entry) -> Array:
    ranks = session.module.ranks
    parts: Sequence[Array] = np.split(np.asarray(session.state(row.name)), ranks)
    if not row.unpack:
        return parts[0]
    layouts = default_layouts(session.module)
    return unpack_state(session.module.function(row.unpack), parts, layouts=layouts)
