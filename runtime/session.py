"""A session: programs, weights and one KV cache, advanced step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.eval import numpy_dtype
from graphgen.ir import Module, Role, TensorType
from graphgen.lowering.cpu import CpuProgram, DeviceValue
from graphgen.lowering.cpu.pjrt import join, put
from graphgen.runtime.buckets import choose_bucket
from graphgen.runtime.executable_cache import ExecutableCache

Ints = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]
# Logits, or tokens from programs that choose them.
StepOutput = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampling inputs of one step.

    Attributes:
        params: f32 [R,3]: top_k (0 for all), the end of top_p, and temperature (0 for the best
            token) per row.
        random: f32 [R], numbers in [0, 1).
        kept: s32 [R], tokens that top_p keeps at least; for programs that take them.
    """

    params: npt.NDArray[np.float32]
    random: npt.NDArray[np.float32]
    kept: npt.NDArray[np.int32] | None = None


class LaunchObserver(Protocol):
    """Observes each launch of a session's programs; warm-up launches are not observed."""

    def before_launch(
        self, session: Session, program: str, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Notify of the next launch, whose states the session still has.

        Args:
            session: the session.
            program: the function's name.
            inputs: the program's inputs by name.
        """
        ...

    def after_launch(self, session: Session, program: str) -> None:
        """Notify of the end of a launch: its outputs were read."""
        ...


class Session:
    """Runs the entry programs of a module over one cache of R rows.

    Args:
        programs: the compiled programs.
        weights: device values by name.

    Attributes:
        rows: R, which is also the batch of every step.
        slots: M, positions of a cache row.
        lengths: s32 [R], tokens in each row so far.
        chooses: programs return tokens instead of logits.
        draws: those tokens are sampled, with settings given at each step.
        deterministic: sampling uses a constant instead of random numbers.
        candidates: number of best tokens that sampling considers; 0 for all.
        observers: notified of each launch, for measurements and captured inputs.
        keeps: sampling takes the least number of tokens that top_p keeps.
    """

    def __init__(self, programs: ExecutableCache, weights: Mapping[str, DeviceValue]) -> None:
        self.programs = programs
        self.module: Module = programs.module
        self._values: dict[str, DeviceValue] = dict(weights)
        self._states = [row.name for row in self.module.entries(Role.STATE)]
        self.chooses: Final = "next_tokens" in self.module.interface
        self.draws: Final = "sampling_params" in self.module.interface
        self.deterministic: Final = self.draws and "random" not in self.module.interface
        self.keeps: Final = "top_p_min_tokens" in self.module.interface
        self.candidates: Final = int(self.module.meta.get("global_topk", "0"))
        self._warm: set[str] = set()
        self.observers: list[LaunchObserver] = []
        self.buckets: dict[str, dict[int, str]] = {"prefill": {}, "decode": {}}
        for function in self.module.programs():
            dims = function.dims
            self.rows = _int(dims["R"])
            self.slots = _int(dims["M"])
            self.buckets[function.phase][_int(dims["C"])] = function.name
        self.lengths: Ints = np.zeros(self.rows, np.int32)
        self.reset()

    def reset(self) -> None:
        """Empty all rows."""
        self.lengths = np.zeros(self.rows, np.int32)
        for name in self._states:
            zeros = _zeros(self.module.interface[name].physical)
            self._values[name] = put([zeros] * self.module.ranks)

    def prefill(
        self,
        prompts: Sequence[Sequence[int]],
        padding: str = "right",
        draw: Draw | None = None,
    ) -> StepOutput:
        """Process prompts, replacing the contents of their rows.

        Args:
            prompts: token ids per row; an empty prompt leaves its row unchanged.
            padding: the padded side of shorter prompts, ``left`` or ``right``; the result does not
                depend on it.
            draw: sampling inputs, for programs that sample.

        Returns:
            f32 [R,V]: the logits of each prompt's last token, or s32 [R]: the tokens that follow;
            rows without a prompt are undefined.

        Raises:
            GraphgenError: GG0701 if a prompt is longer than the largest bucket.
        """
        longest = max((len(prompt) for prompt in prompts), default=0)
        bucket = choose_bucket(list(self.buckets["prefill"]), longest, "a prompt")
        tokens = np.zeros((self.rows, bucket), np.int32)
        positions = np.full((self.rows, bucket), -1, np.int32)
        lengths = np.zeros(self.rows, np.int32)
        for row, prompt in enumerate(prompts):
            size = len(prompt)
            start = bucket - size if padding == "left" else 0
            tokens[row, start : start + size] = prompt
            positions[row, start : start + size] = np.arange(size, dtype=np.int32)
            lengths[row] = size
        active = lengths > 0
        self.lengths = np.where(active, lengths, self.lengths)
        return self._call(self.buckets["prefill"][bucket], tokens, positions, active, draw)

    def decode(
        self,
        tokens: Sequence[int],
        active: Sequence[bool] | None = None,
        draw: Draw | None = None,
    ) -> StepOutput:
        """Append one token to each active row.

        Args:
            tokens: one token per row; ignored for idle rows.
            active: True for the rows that take part, all by default. The cache of an idle row does
                not change.
            draw: sampling inputs, for programs that sample.

        Returns:
            f32 [R,V]: the logits after that token, or s32 [R]: the tokens that follow; idle rows
            are undefined.

        Raises:
            GraphgenError: GG0701 if a row has no slot left.
        """
        mask = np.ones(self.rows, np.bool_) if active is None else np.asarray(active, np.bool_)
        positions = np.where(mask, self.lengths, -1).astype(np.int32)[:, None]
        needed = int(np.max(np.where(mask, self.lengths + 1, 1)))
        bucket = choose_bucket(list(self.buckets["decode"]), needed, "a sequence")
        self.lengths = np.where(mask, self.lengths + 1, self.lengths).astype(np.int32)
        column = np.where(mask, np.asarray(tokens, np.int32), 0).astype(np.int32)[:, None]
        return self._call(self.buckets["decode"][bucket], column, positions, mask, draw)

    def state(self, name: str) -> DeviceValue:
        """The device value of a state (GG0705 for an unknown name)."""
        if name not in self._states:
            raise GraphgenError("GG0705", f"no state is called {name}")
        return self._values[name]

    def _call(
        self,
        name: str,
        tokens: Ints,
        positions: Ints,
        active: npt.NDArray[np.bool_],
        draw: Draw | None,
    ) -> StepOutput:
        if self.draws and draw is None:
            raise GraphgenError(
                "GG0705", "these programs draw tokens, and were not told how", help="sample"
            )
        if name not in self._warm:
            self._warm_up(name, tokens.shape)
        return self._launch(name, tokens, positions, active, draw)

    def _warm_up(self, name: str, shape: tuple[int, ...]) -> None:
        """Launch once with all rows idle, which changes no state.

        XLA plans its matrix kernels during a program's first launch; its half a second counts as
        compilation, not as time to the first token.
        """
        self.programs.get(name)
        start = time.perf_counter()
        idle = np.zeros(self.rows, np.bool_)
        nowhere = np.full(shape, -1, np.int32)
        self._launch(name, np.zeros(shape, np.int32), nowhere, idle, None)
        self.programs.charge(name, time.perf_counter() - start)
        self._warm.add(name)

    def _launch(
        self,
        name: str,
        tokens: Ints,
        positions: Ints,
        active: npt.NDArray[np.bool_],
        draw: Draw | None,
    ) -> StepOutput:
        program = self.programs.get(name)
        rows = np.arange(self.rows, dtype=np.int32)
        inputs: dict[str, npt.NDArray[np.generic]] = {
            "tokens": tokens,
            "positions": positions,
            "lengths": np.where(active, self.lengths, 0).astype(np.int32),
            # Row R does not exist: what an idle row writes is dropped.
            "seq_ids": np.where(active, rows, self.rows).astype(np.int32),
        }
        if self.draws:
            chosen = draw or Draw(
                np.ones((self.rows, 3), np.float32), np.zeros(self.rows, np.float32)
            )
            inputs["sampling_params"] = chosen.params
            if not self.deterministic:
                inputs["random"] = chosen.random
            if self.keeps:
                ones = np.ones(self.rows, np.int32)
                inputs["top_p_min_tokens"] = ones if chosen.kept is None else chosen.kept
        observers = tuple(self.observers) if name in self._warm else ()
        for observer in observers:
            observer.before_launch(self, name, inputs)
        output = self._run(program, inputs)
        for observer in observers:
            observer.after_launch(self, name)
        return output

    def _run(
        self, program: CpuProgram, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> StepOutput:
        """Launch a program, keep its states and read its output."""
        ranks = self.module.ranks
        values = {key: put([array] * ranks) for key, array in inputs.items()}
        results = program.launch({**self._values, **values})
        for state in self._states:
            self._values[state] = join(results[state])
        # Reading the result waits for the launch, which keeps at most one in flight.
        return np.asarray(results["next_tokens" if self.chooses else "logits"][0])


def _int(value: object) -> int:
    assert isinstance(value, int), value
    return value


def _zeros(type_: TensorType) -> npt.NDArray[np.generic]:
    return np.zeros(type_.dims, numpy_dtype(type_.dtype))
