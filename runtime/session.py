"""A session: programs, weights and one KV cache, advanced step by step.

:meth:`Session.step` is the general step, of some rows in any order; :meth:`Session.prefill` and
:meth:`Session.decode` are the two steps of generation, over all rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.eval import numpy_dtype
from graphgen.ir import RANK, Module, Role, TensorType
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import join, put
from graphgen.runtime.buckets import ProgramSize, ProgramTable
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.step_call import Draw, Floats, Index, Ints, StepCall

Logits = npt.NDArray[np.float32]
# Logits, or tokens from programs that choose them.
StepOutput = npt.NDArray[np.float32]
Outputs = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class RowResults:
    """The outputs of one step: for each row of the call, in its order.

    Rows and columns without a token are undefined.

    Attributes:
        outputs: by name; [n,...] for an output per row, [n,S,...] for one per token.
    """

    outputs: Mapping[str, npt.NDArray[np.generic]]

    @property
    def logits(self) -> Logits | None:
        """f32 [n,V] of each row's last token, or [n,S,V] from programs that give every token's.

        ``None`` from programs that give tokens only.
        """
        return cast("Logits | None", self.outputs.get("logits"))

    @property
    def tokens(self) -> Ints | None:
        """s32 [n]: the tokens that follow, from programs that choose them."""
        return cast("Ints | None", self.outputs.get("next_tokens"))

    @property
    def hidden_states(self) -> tuple[Floats, ...]:
        """f32 [n,S,E] each, as transformers' ``output_hidden_states``; empty if not built for."""
        count = sum(name.startswith("hidden_states.") for name in self.outputs)
        return tuple(cast("Floats", self.outputs[f"hidden_states.{n}"]) for n in range(count))


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
        table: the programs by phase, rows and bucket.
        rows: R, rows of the cache; programs may take fewer.
        slots: M, positions of a cache row.
        limit: longest sequence that the decode programs reach, at most M.
        lengths: s32 [R], tokens in each row so far.
        input_name: ``tokens``, or ``inputs_embeds`` for programs that take embeddings.
        chooses: programs return tokens, beside or instead of logits.
        draws: those tokens are sampled, with settings given at each step.
        deterministic: sampling uses a constant instead of random numbers.
        candidates: number of best tokens that sampling considers; 0 for all.
        observers: notified of each launch, for measurements and captured inputs.
        keeps: sampling takes the least number of tokens that top_p keeps.
    """

    def __init__(self, programs: ExecutableCache, weights: Mapping[str, DeviceValue]) -> None:
        self.programs = programs
        self.module: Module = programs.module
        interface = self.module.interface
        self._states = [row.name for row in self.module.entries(Role.STATE)]
        self._outputs = [row.name for row in self.module.entries(Role.OUTPUT)]
        self.input_name: Final = "tokens" if "tokens" in interface else "inputs_embeds"
        embedded = interface[self.input_name].logical.shape[2:]
        self._width: Final = cast(int, embedded[0]) if embedded else 0
        self.chooses: Final = "next_tokens" in interface
        self.draws: Final = "sampling_params" in interface
        self.deterministic: Final = self.draws and "random" not in interface
        self.keeps: Final = "top_p_min_tokens" in interface
        self.candidates: Final = int(self.module.meta.get("global_topk", "0"))
        self._warm: set[str] = set()
        self.observers: list[LaunchObserver] = []
        self.table: Final = ProgramTable(self.module)
        self.rows: Final = self.table.rows
        self.slots: Final = self.table.slots
        self.limit: Final = self.table.limit
        self.lengths: Ints = np.zeros(self.rows, np.int32)
        self._values: dict[str, DeviceValue] = {}
        self.load_weights(weights)

    def load_weights(self, weights: Mapping[str, DeviceValue]) -> None:
        """Replace all weights and empty all rows; loaded programs stay.

        Args:
            weights: device values by name, prepared for this module.

        Raises:
            GraphgenError: GG0705 for a weight that is missing.
        """
        entries = [*self.module.entries(Role.WEIGHT), *self.module.entries(Role.PARAM)]
        used = {value.name for program in self.module.programs() for value in program.args}
        missing = sorted(({row.name for row in entries} & used) - {*weights, RANK})
        if missing:
            raise GraphgenError(
                "GG0705",
                f"{len(missing)} weights of the programs are missing, the first is '{missing[0]}'",
                help="prepare all weights of this module",
            )
        self._values = dict(weights)
        self.reset()

    @property
    def weights(self) -> Mapping[str, DeviceValue]:
        """Device values of the weights, by name."""
        return {name: value for name, value in self._values.items() if name not in self._states}

    def take_cache(self, other: Session) -> None:
        """Go on with the rows of another session with the same states.

        The other session must not run before it has taken them back: launches reuse the memory.
        """
        self.lengths = other.lengths
        for name in self._states:
            self._values[name] = other.state(name)

    def reset(self) -> None:
        """Empty all rows."""
        self.lengths = np.zeros(self.rows, np.int32)
        for name in self._states:
            zeros = _zeros(self.module.interface[name].physical)
            self._values[name] = put([zeros] * self.module.ranks)

    def warm_up(self) -> None:
        """Compile or load every program and launch it once; no row changes."""
        for size in self.table.sizes:
            if size.name not in self._warm:
                self._warm_up(size)

    def step(
        self,
        tokens: npt.ArrayLike,
        positions: npt.ArrayLike,
        seq_ids: npt.ArrayLike | None = None,
        draw: Draw | None = None,
    ) -> RowResults:
        """Append tokens to some rows of the cache.

        A row goes on at its first position: what it held from there on is replaced, so position 0
        begins it again. Rows that are not in ``seq_ids`` keep their cache. One token a row goes
        through the decode programs, several through the prefill programs. Where a row goes on
        beyond the largest prefill bucket, or there is none, several go through the decode programs
        one after the other. A call of more rows than the largest program is split.

        Args:
            tokens: s32 [n,S], or f32 [n,S,E] for programs that take ``inputs_embeds``.
            positions: s32 [n,S], consecutive in each row; -1 for padding, left or right.
            seq_ids: s32 [n], the cache row of each row, each at most once; by default 0 to n - 1.
            draw: sampling inputs of the n rows, for programs that sample.

        Raises:
            GraphgenError: GG0701 for a prompt longer than the largest prefill bucket or a sequence
                longer than the largest decode bucket; GG0705 for inputs that contradict each other
                or the lengths of the rows.
        """
        places = np.asarray(positions, np.int32)
        ids = np.arange(len(places)) if seq_ids is None else seq_ids
        given: npt.NDArray[np.int32 | np.float32] = (
            np.asarray(tokens, np.int32) if not self._width else np.asarray(tokens, np.float32)
        )
        call = StepCall(given, places, np.asarray(ids, np.int32), draw)
        call.check(self._width, self.lengths)
        columns = np.flatnonzero((places >= 0).any(0))
        phase = self._phase(call, len(columns))
        self._check_size(phase, call, len(columns))
        parts = [columns] if phase == "prefill" else list(columns[:, None])
        return self._collect(call, self._run_parts(phase, call, parts))

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
            draw: sampling inputs of R rows, for programs that sample.

        Returns:
            f32 [R,V]: the logits of each prompt's last token, or s32 [R]: the tokens that follow;
            rows without a prompt are undefined.

        Raises:
            GraphgenError: GG0701 if a prompt is longer than the largest bucket.
        """
        self._needs_tokens()
        width = longest = max((len(prompt) for prompt in prompts), default=0)
        phase = "prefill" if self.table.buckets("prefill") else "decode"
        if phase == "prefill":
            width = self.table.find(phase, 1, longest).bucket
        tokens = np.zeros((self.rows, width), np.int32)
        positions = np.full((self.rows, width), -1, np.int32)
        for row, prompt in enumerate(prompts):
            size = len(prompt)
            start = width - size if padding == "left" else 0
            tokens[row, start : start + size] = prompt
            positions[row, start : start + size] = np.arange(size, dtype=np.int32)
        call = StepCall(tokens, positions, np.arange(self.rows, dtype=np.int32), draw)
        self._check_size(phase, call, width)
        columns = np.arange(width)
        parts = [columns] if phase == "prefill" else list(columns[:, None])
        return self._answer(self._collect(call, self._run_parts(phase, call, parts)))

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
            draw: sampling inputs of R rows, for programs that sample.

        Returns:
            f32 [R,V]: the logits after that token, or s32 [R]: the tokens that follow; idle rows
            are undefined.

        Raises:
            GraphgenError: GG0701 if a row has no slot left.
        """
        self._needs_tokens()
        mask = np.ones(self.rows, np.bool_) if active is None else np.asarray(active, np.bool_)
        positions = np.where(mask, self.lengths, -1).astype(np.int32)[:, None]
        column = np.where(mask, np.asarray(tokens, np.int32), 0).astype(np.int32)[:, None]
        call = StepCall(column, positions, np.arange(self.rows, dtype=np.int32), draw)
        self._check_size("decode", call, 1)
        return self._answer(self._collect(call, self._run_parts("decode", call, [np.arange(1)])))

    def state(self, name: str) -> DeviceValue:
        """The device value of a state (GG0705 for an unknown name)."""
        if name not in self._states:
            raise GraphgenError("GG0705", f"no state is called {name}")
        return self._values[name]

    def _needs_tokens(self) -> None:
        """Refuse tokens for programs that take embeddings (GG0705)."""
        if self._width:
            raise GraphgenError(
                "GG0705",
                f"these programs take {self.input_name}, not tokens",
                help="call step with the embeddings, or compile without inputs_embeds",
            )

    def _answer(self, result: RowResults) -> StepOutput:
        return cast(StepOutput, result.outputs["next_tokens" if self.chooses else "logits"])

    def _phase(self, call: StepCall, width: int) -> str:
        """The programs that a step goes through."""
        prefill, decode = self.table.buckets("prefill"), self.table.buckets("decode")
        if not prefill or not decode:
            return "prefill" if prefill else "decode"
        beyond = call.starts[call.lengths > prefill[-1]]
        going_on = len(beyond) > 0 and bool((beyond > 0).all())
        return "decode" if width == 1 or going_on else "prefill"

    def _check_size(self, phase: str, call: StepCall, width: int) -> None:
        """Refuse a step that is too long before any part of it runs (GG0701)."""
        needed = int(call.lengths.max(initial=0))
        self.table.find(phase, 1, max(needed, width) if phase == "prefill" else needed)

    def _run_parts(
        self, phase: str, call: StepCall, parts: Iterable[Index]
    ) -> Iterator[tuple[Index, Index, Outputs]]:
        """Run some columns after the others, each for as many rows as a program has."""
        most = self.table.batches(phase)[-1]
        for columns in parts:
            active = np.flatnonzero((call.positions[:, columns] >= 0).any(1))
            for start in range(0, len(active), most):
                rows = active[start : start + most]
                yield rows, columns, self._run(phase, call.part(rows, columns))

    def _collect(self, call: StepCall, parts: Iterable[tuple[Index, Index, Outputs]]) -> RowResults:
        """The outputs of all parts in the rows and columns of the call."""
        rows, width = call.positions.shape
        collected: Outputs = {}
        for where, columns, outputs in parts:
            if len(where) == rows and len(columns) == width:
                return RowResults(outputs)
            for name, part in outputs.items():
                per_token = self._is_per_token(name)
                lead = (rows, width) if per_token else (rows,)
                home = collected.setdefault(
                    name, np.zeros((*lead, *part.shape[len(lead) :]), part.dtype)
                )
                home[np.ix_(where, columns) if per_token else where] = part
        if not collected:
            raise GraphgenError("GG0705", "no row of the step has a token", help="leave it out")
        return RowResults(collected)

    def _is_per_token(self, name: str) -> bool:
        return self.module.interface[name].logical.rank == 3

    def _run(self, phase: str, call: StepCall) -> Outputs:
        """Run one program for at most as many rows as it has; the outputs of those rows."""
        lengths, (count, width) = call.lengths, call.positions.shape
        needed = int(lengths.max())
        size = self.table.find(phase, count, max(needed, width) if phase == "prefill" else needed)
        if self.draws and call.draw is None:
            raise GraphgenError(
                "GG0705", "these programs draw tokens, and were not told how", help="sample"
            )
        if size.name not in self._warm:
            self._warm_up(size)
        # A program of R rows finds each row in its place; one of fewer looks seq_ids up.
        home = call.seq_ids if size.batch == self.rows else np.arange(count, dtype=np.int32)
        inputs = self._idle_inputs(size)
        inputs[self.input_name][home, :width] = call.tokens
        inputs["positions"][home, :width] = call.positions
        inputs["lengths"][home] = lengths
        inputs["seq_ids"][home] = call.seq_ids
        if call.draw is not None and self.draws:
            inputs["sampling_params"][home] = call.draw.params
            if not self.deterministic:
                inputs["random"][home] = call.draw.random
            if self.keeps and call.draw.kept is not None:
                inputs["top_p_min_tokens"][home] = call.draw.kept
        self.lengths[call.seq_ids] = lengths
        for observer in tuple(self.observers):
            observer.before_launch(self, size.name, inputs)
        outputs = self._launch(size.name, inputs)
        for observer in tuple(self.observers):
            observer.after_launch(self, size.name)
        return {
            name: array[home, :width] if self._is_per_token(name) else _rows(array, home)
            for name, array in outputs.items()
        }

    def _warm_up(self, size: ProgramSize) -> None:
        """Launch once with all rows idle, which changes no state.

        XLA plans its matrix kernels during a program's first launch; its half a second counts as
        compilation, not as time to the first token.
        """
        self.programs.get(size.name)
        start = time.perf_counter()
        self._launch(size.name, self._idle_inputs(size))
        self.programs.charge(size.name, time.perf_counter() - start)
        self._warm.add(size.name)

    def _idle_inputs(self, size: ProgramSize) -> Outputs:
        """The inputs of a call in which no row takes part."""
        shape = (size.batch, size.tokens)
        tokens = np.zeros((*shape, self._width), np.float32) if self._width else None
        inputs: Outputs = {
            self.input_name: np.zeros(shape, np.int32) if tokens is None else tokens,
            "positions": np.full(shape, -1, np.int32),
            "lengths": np.zeros(size.batch, np.int32),
            # Row R does not exist: what an idle row writes is dropped.
            "seq_ids": np.full(size.batch, self.rows, np.int32),
        }
        if self.draws:
            inputs["sampling_params"] = np.ones((size.batch, 3), np.float32)
            if not self.deterministic:
                inputs["random"] = np.zeros(size.batch, np.float32)
            if self.keeps:
                inputs["top_p_min_tokens"] = np.ones(size.batch, np.int32)
        return inputs

    def _launch(self, name: str, inputs: Outputs) -> Outputs:
        program = self.programs.get(name)
        ranks = self.module.ranks
        values = {key: put([array] * ranks) for key, array in inputs.items()}
        results = program.launch({**self._values, **values})
        for state in self._states:
            self._values[state] = join(results[state])
        # Reading the results waits for the launch, which keeps at most one in flight.
        return {output: np.asarray(results[output][0]) for output in self._outputs}


def _rows(array: npt.NDArray[np.generic], rows: Ints) -> npt.NDArray[np.generic]:
    """Some rows, without a copy if they are all in order."""
    if len(rows) == len(array) and (rows == np.arange(len(rows))).all():
        return array
    return array[rows]


def _zeros(type_: TensorType) -> npt.NDArray[np.generic]:
    return np.zeros(type_.dims, numpy_dtype(type_.dtype))
