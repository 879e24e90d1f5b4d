"""The rounds of a case: a read of the weights, then a turn of each engine, in alternation."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.comparison.agreement import agreement
from benchmarks.comparison.engine_process import (
    EngineFailedError,
    EngineMissingError,
    EngineProcess,
)
from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError
from benchmarks.comparison.measured import Measured
from benchmarks.engines import OURS, listed
from benchmarks.real_time_priority import at_real_time, threads_of
from graphgen.lowering.cpu.memory_bandwidth import read_bandwidth

# Decode steps of the turn before the first round.
WARM_STEPS = 3
Engines = dict[str, EngineProcess]


def say(message: str) -> None:
    """Tell what happens, beside the results."""
    print(message, file=sys.stderr, flush=True)


def start_engines(names: Sequence[str], pythons: Mapping[str, str]) -> Engines:
    """The engines that are installed, a message for each that is not.

    Args:
        names: of :data:`benchmarks.engines.ENGINES`, or modules.
        pythons: interpreters by engine, where not this one.
    """
    engines: Engines = {}
    for name in names:
        entry, python = listed(name), pythons.get(name, sys.executable)
        try:
            engines[name] = EngineProcess(name, entry.module, python)
        except EngineMissingError as missing:
            say(
                f"{name} is left out: {missing} ({python}); "
                f"pip install {entry.install}, --python {name}=/its/bin/python"
            )
        except (EngineFailedError, OSError) as failed:
            say(f"{name} is left out: it does not start ({python}): {failed}")
    return engines


class Rounds:
    """Measures cases with the same engines; an engine whose process ends is left out from then on.

    Args:
        engines: running.
        files: the model.
        parameters: of the model.
        text: token ids that prompts are cut from.
        rounds: turns of each engine.
        steps: decode steps a turn.
        alone: whether turns and reads run at a real-time priority.
    """

    def __init__(
        self,
        engines: Engines,
        files: ModelFiles,
        parameters: int,
        text: Sequence[int],
        rounds: int,
        steps: int,
        alone: bool = False,
    ) -> None:
        self.engines, self._files, self._parameters = engines, files, parameters
        self._text, self._rounds, self._steps = text, rounds, steps
        self._alone = alone
        self.threads = len(os.sched_getaffinity(0))

    def measure(self, case: Case) -> Measured | None:
        """The best of all rounds; ``None`` where graphgen has no such case."""
        prompts = prompts_of(self._text, case)
        ready = [name for name in list(self.engines) if self._opened(name, case, prompts)]
        if OURS not in ready:
            return None
        measured = Measured(case)
        size = int(self._parameters * WIDTHS[case.weights])
        for _ in range(self._rounds):
            with at_real_time(threads_of() if self._alone else ()):
                measured.floor_s = min(measured.floor_s, size / read_bandwidth(size))
            turns = self._turns(ready, case, prompts)
            for name, turn in turns.items():
                measured.note(name, "prefill", turn.prefill_s)
                measured.note(name, "decode", statistics.median(turn.steps_s))
            for name in turns.keys() - {OURS}:
                measured.tokens[name] = agreement(turns[OURS], turns[name], case.weights)
        return measured

    def perplexities(self, weights: str, windows: Sequence[Sequence[int]]) -> dict[str, float]:
        """Of each engine that gives it, with the weights of the case that was opened last."""
        out: dict[str, float] = {}
        predicted = sum(len(window) - 1 for window in windows)
        for name in list(self.engines):
            say(f"perplexity in {weights}: {name}")
            try:
                out[name] = math.exp(self.engines[name].nats(windows) / predicted)
            except UnsupportedError:
                continue
            except EngineFailedError as failed:
                self._failed(name, f"perplexity in {weights}", failed)
        return out

    def _opened(self, name: str, case: Case, prompts: Sequence[Sequence[int]]) -> bool:
        """Whether an engine is ready for a case, after a short turn."""
        say(f"opening {case.name}: {name}")
        try:
            self.engines[name].open(case, self._files, self.threads)
            self.engines[name].turn(prompts, WARM_STEPS)
        except UnsupportedError as reason:
            say(f"{case.name} without {name}: {reason}")
            return False
        except EngineFailedError as failed:
            self._failed(name, case.name, failed)
            return False
        return True

    def _turns(
        self, ready: list[str], case: Case, prompts: Sequence[Sequence[int]]
    ) -> dict[str, Turn]:
        turns: dict[str, Turn] = {}
        for name in list(ready):
            try:
                turns[name] = self.engines[name].turn(prompts, self._steps, alone=self._alone)
            except EngineFailedError as failed:
                self._failed(name, case.name, failed)
                ready.remove(name)
        return turns

    def _failed(self, name: str, what: str, failed: EngineFailedError) -> None:
        """Report it; ours must not fail."""
        if name == OURS:
            raise failed
        say(f"{what} without {name}: {failed}")
        if self.engines[name].ended:
            self.engines.pop(name).close()


# Bytes of a weight, without scales.
WIDTHS: Mapping[str, float] = {"f32": 4, "bf16": 2, "int8": 1, "int4": 0.5}


def prompts_of(text: Sequence[int], case: Case) -> list[list[int]]:
    """Parts of a text, one a row, each beginning at another place."""
    room = len(text) - case.prompt
    starts = [row * room // max(case.batch, 2) for row in range(case.batch)]
    return [list(text[start : start + case.prompt]) for start in starts]


def windows_of(text: Sequence[int], width: int) -> list[list[int]]:
    """The whole text in windows, as ``graphgen perplexity`` cuts it."""
    return [list(text[start : start + width]) for start in range(0, len(text) - 1, width)]


def close_all(engines: Iterable[EngineProcess]) -> None:
    """End them."""
    for engine in engines:
        engine.close()
