"""The inputs and results of one launch: a step's rows in their places of a program's batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEP_COUNTS, STEP_RANDOM, STOP_TOKENS, STOPS
from graphgen.ir import ADAPTER_IDS, VERIFY_TREE, VERIFYING, Module, Role
from graphgen.json_value import parse_json
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.stage_links import on_host
from graphgen.ops.token_tree import ANCESTORS
from graphgen.runtime.session.adapter_slots import AdapterSlots
from graphgen.runtime.session.buckets import ProgramSize
from graphgen.runtime.session.row_results import Outputs, some_rows
from graphgen.runtime.session.step_call import Ints, StepCall


def step_numbers(module: Module) -> tuple[int, ...]:
    """Sizes of the random numbers of one of several steps: none for one number, (3,) for three.

    Three are those of a fused speculative step: of the acceptance of a proposal, of the draw in its
    place, and of the draft's.
    """
    row = module.interface.get(STEP_RANDOM)
    return cast("tuple[int, ...]", row.logical.shape[2:]) if row is not None else ()


@dataclass(frozen=True, slots=True)
class LaunchInputs:
    """The inputs that the programs of a module have.

    Attributes:
        tokens: name of the input of tokens or embeddings.
        width: E of embeddings; 0 for tokens.
        rows: R, rows of the cache.
        draws: the programs sample.
        deterministic: they sample without random numbers.
        keeps: they take the least number of tokens that top_p keeps.
        features: of programs that take features beside tokens, the input's name and W.
        numbers: further sizes of the random numbers of each of several steps.
        adapters: s32 [R], the slot of each row's adapter at the time of a launch, -1 for none;
            ``None`` for programs without adapters.
    """

    tokens: str
    width: int
    rows: int
    draws: bool
    deterministic: bool
    keeps: bool
    features: Mapping[str, tuple[str, int]]
    numbers: tuple[int, ...] = ()
    adapters: Ints | None = None

    def home(self, size: ProgramSize, call: StepCall) -> Ints:
        """s32 [n]: the place of each row of a step in the batch of a program.

        A program of R rows finds each row in its place; one of fewer looks ``seq_ids`` up.
        """
        return (
            call.seq_ids
            if size.batch == self.rows
            else np.arange(len(call.seq_ids), dtype=np.int32)
        )

    def of(self, size: ProgramSize, call: StepCall) -> Outputs:
        """The inputs by name; rows that do not take part are idle.

        Raises:
            GraphgenError: GG0705 for a step without sampling inputs where the programs sample.
        """
        # A program that verifies gives logits alone.
        if self.draws and call.draw is None and size.phase not in VERIFYING:
            raise GraphgenError(
                "GG0705",
                "these programs sample, and the step has no sampling inputs",
                help="pass draw, the sampling inputs of its rows",
            )
        home, width = self.home(size, call), call.positions.shape[1]
        inputs = self.idle(size)
        inputs[self.tokens][home, :width] = call.tokens
        inputs["positions"][home, :width] = call.positions
        inputs["lengths"][home] = call.lengths
        inputs["seq_ids"][home] = call.seq_ids
        if self.adapters is not None:
            inputs[ADAPTER_IDS][home] = self.adapters[call.seq_ids]
        if size.name in self.features:
            self._put_features(inputs[self.features[size.name][0]], home, call)
        if call.ancestors is not None:
            inputs[ANCESTORS][home, :width, :width] = call.ancestors
        if call.limits is not None:
            inputs[STEP_COUNTS][home] = call.limits.counts
            inputs[STOP_TOKENS][home, : call.limits.stops.shape[1]] = call.limits.stops
        if call.draw is not None and self.draws:
            inputs["sampling_params"][home] = call.draw.params
            if not self.deterministic:
                inputs["random" if size.steps == 1 else STEP_RANDOM][home] = call.draw.random
            if self.keeps and call.draw.kept is not None:
                inputs["top_p_min_tokens"][home] = call.draw.kept
        return inputs

    def _put_features(self, inputs: npt.NDArray[np.generic], home: Ints, call: StepCall) -> None:
        """Put the features of a step in their places, as many numbers a token as there are."""
        given = None if call.features is None else call.features.shape[2]
        if call.features is None or given != inputs.shape[2]:
            raise GraphgenError(
                "GG0705",
                f"these programs take features of {inputs.shape[2]} numbers a token, not {given}",
                help="give step the features of the target, or those that the draft predicted",
            )
        inputs[home, : call.positions.shape[1]] = call.features

    def results(
        self, outputs: Outputs, size: ProgramSize, call: StepCall, per_token: Callable[[str], bool]
    ) -> Outputs:
        """The outputs of the rows and columns of a step, of those of a program."""
        home, width = self.home(size, call), call.positions.shape[1]
        return {
            name: array[home, :width] if per_token(name) else some_rows(array, home)
            for name, array in outputs.items()
        }

    def idle(self, size: ProgramSize) -> Outputs:
        """The inputs of a call in which no row takes part."""
        shape = (size.batch, size.tokens)
        tokens = np.zeros((*shape, self.width), np.float32) if self.width else None
        inputs: Outputs = {
            self.tokens: np.zeros(shape, np.int32) if tokens is None else tokens,
            "positions": np.full(shape, -1, np.int32),
            "lengths": np.zeros(size.batch, np.int32),
            # Row R does not exist: what an idle row writes is dropped.
            "seq_ids": np.full(size.batch, self.rows, np.int32),
        }
        if self.adapters is not None:
            inputs[ADAPTER_IDS] = np.full(size.batch, -1, np.int32)
        if size.name in self.features:
            name, width = self.features[size.name]
            inputs[name] = np.zeros((*shape, width), np.float32)
        if size.phase == VERIFY_TREE:
            inputs[ANCESTORS] = np.zeros((*shape, size.tokens), np.int32)
        if size.steps > 1:
            inputs[STEP_COUNTS] = np.zeros(size.batch, np.int32)
            inputs[STOP_TOKENS] = np.full((size.batch, STOPS), -1, np.int32)
        if self.draws:
            inputs["sampling_params"] = np.ones((size.batch, 3), np.float32)
            if not self.deterministic and size.steps > 1:
                inputs[STEP_RANDOM] = np.zeros((size.batch, size.steps, *self.numbers), np.float32)
            elif not self.deterministic:
                inputs["random"] = np.zeros(size.batch, np.float32)
            if self.keeps:
                inputs["top_p_min_tokens"] = np.ones(size.batch, np.int32)
        return inputs


def launch_inputs(
    module: Module, tokens: str, rows: int, adapters: AdapterSlots | None = None
) -> LaunchInputs:
    """The inputs that the programs of a module have.

    Args:
        module: the programs.
        tokens: name of the input of tokens or embeddings.
        rows: R, rows of the cache.
        adapters: of the session.
    """
    interface = module.interface
    draws = "sampling_params" in interface
    embedded = interface[tokens].logical.shape[2:]
    return LaunchInputs(
        tokens,
        cast(int, embedded[0]) if embedded else 0,
        rows,
        draws,
        draws and "random" not in interface,
        "top_p_min_tokens" in interface,
        _features(module, tokens),
        step_numbers(module),
        adapters.of_rows if adapters is not None else None,
    )


def _features(module: Module, tokens: str) -> dict[str, tuple[str, int]]:
    """The input of numbers for each token, beside ``tokens``, of programs that have one."""
    found: dict[str, tuple[str, int]] = {}
    for function in module.programs():
        for value in function.args:
            row = module.interface.get(value.name or "")
            if row is None or row.role is not Role.INPUT or row.name in (tokens, STEP_RANDOM):
                continue
            if row.logical.dtype.is_float and len(row.logical.shape) == 3:
                found[function.name] = (row.name, cast(int, row.logical.shape[2]))
    return found


# As ``limit-expert-capacity`` and the models call them; an artifact runs without either.
_CAPACITIES, _COUNTS = "expert_capacities", "expert_counts"
Results = Mapping[str, Sequence[DeviceValue]]


@dataclass(slots=True)
class DroppedChoices:
    """Choices of experts of the launches so far, those of padding included.

    Attributes:
        dropped: that experts had no place for.
        made: all of them.
    """

    dropped: int = 0
    made: int = 0

    def note(self, counts: npt.NDArray[np.generic], capacity: int) -> None:
        """Add the choices [L,E] of a launch with experts of a capacity; 0 is for all tokens."""
        numbers = counts.astype(np.int64)
        self.made += int(numbers.sum())
        if capacity:
            self.dropped += int(np.maximum(numbers - capacity, 0).sum())


class LaunchOutputs:
    """Reads outputs by name.

    Args:
        module: of the programs.

    Attributes:
        choices: of experts; ``None`` where none are dropped.
    """

    def __init__(self, module: Module) -> None:
        rows = [row.name for row in module.entries(Role.OUTPUT)]
        self._names = [name for name in rows if name != _COUNTS]
        self._capacities = cast("Mapping[str, int]", parse_json(module.meta.get(_CAPACITIES, "{}")))
        self.choices = DroppedChoices() if _COUNTS in rows and self._capacities else None

    def of(self, results: Results) -> dict[str, Sequence[DeviceValue]]:
        """The outputs among the results of a launch."""
        return {name: results[name] for name in (*self._names, _COUNTS) if name in results}

    def wait(self, results: Results) -> Outputs:
        """The outputs on the host, once the launch has ended; choices are not counted."""
        return {name: on_host(results[name][0]) for name in self._names if name in results}

    def read(self, program: str, results: Results) -> Outputs:
        """The same, with the choices counted."""
        outputs = self.wait(results)
        if self.choices is not None and _COUNTS in results:
            capacity = self._capacities.get(program, 0)
            self.choices.note(on_host(results[_COUNTS][0]), capacity)
        return outputs
