"""Counts what each pass of a compilation does: ops, rules, and calls of functions.

Counters are put around methods of the IR and of the rewriter for the time of a compilation, so
that nothing is counted where nobody asks. Counts repeat only in a process that has compiled nothing
before: tables of interned attributes and inferred types are empty there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final
from unittest.mock import patch

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Block, Function, Module, Op, dtype
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, Rewriter, run_pipeline
from graphgen.passes.core.contract import Checker
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.core.rule import Rule
from graphgen.passes.pipelines import default

ROOT: Final = Path(__file__).resolve().parents[2]
# How many more of a count than recorded are too many.
MOST: Final = 1.02
# Calls depend on the interpreter: 3.12 inlines comprehensions.
COUNTS_CALLS: Final = sys.version_info[:2] == (3, 11)
# Step -> kind of work -> how much.
Work = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Compilation:
    """What is compiled: programs for the CPU, of one row and 2048 tokens or slots.

    Attributes:
        model: a name of a known shape.
        phases: of the programs.
        layers: how many; ``None`` for all.
        mini: its mini twin.
    """

    model: str
    phases: tuple[str, ...]
    layers: int | None = None
    mini: bool = False


COMPILATIONS: Final = {
    "llama-3.1-405b": Compilation("llama-3.1-405b", ("decode",), layers=32),
    "deepseek-v3": Compilation("deepseek-v3", ("prefill",), layers=8),
    "gpt-oss-20b mini": Compilation("gpt-oss-20b", ("prefill", "decode"), mini=True),
}


@dataclass(slots=True)
class WorkCounter:
    """Counts work by step: ``build``, each pass, ``verify`` after all of them, ``emit``.

    Attributes:
        steps: what was counted.
    """

    steps: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    _now: Counter[str] = field(default_factory=Counter[str])
    _ours: dict[CodeType, bool] = field(default_factory=dict[CodeType, bool])

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """What is done inside belongs to ``name``, and not to the step around it."""
        outer, self._now = self._now, self.steps.setdefault(name, Counter())
        try:
            yield
        finally:
            self._now = outer

    def numbered(self, name: str) -> str:
        """``cse``, then ``cse.2``."""
        number = 1 + sum(known.split(".")[0] == name for known in self.steps)
        return name if number == 1 else f"{name}.{number}"

    def visits(self, walk: Callable[[Block], Iterator[Op]]) -> Callable[[Block], Iterator[Op]]:
        """Count the ops that a walk gives."""

        def counted(block: Block) -> Iterator[Op]:
            for op in walk(block):
                self._now["visited"] += 1
                yield op

        return counted

    def before(self, kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Count each use of a method."""

        def counted(*given: Any, **options: Any) -> Any:
            self._now[kind] += 1
            return method(*given, **options)

        return counted

    def attempts(self, apply_rules: Callable[..., None]) -> Callable[..., None]:
        """Count each time that a rule is applied to an op."""

        def counted(rewriter: Rewriter, function: Function, rules: Iterable[Rule]) -> None:
            wrapped = [replace(rule, apply=self.before("attempts", rule.apply)) for rule in rules]
            apply_rules(rewriter, function, wrapped)

        return counted

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count what is done inside."""
        with (
            patch.object(Block, "__iter__", self.visits(Block.__iter__)),
            patch.object(Block, "__reversed__", self.visits(Block.__reversed__)),
            patch.object(Op, "__init__", self.before("created", Op.__init__)),
            patch.object(Block, "erase", self.before("erased", Block.erase)),
            patch.object(Rewriter, "apply_rules", self.attempts(Rewriter.apply_rules)),
        ):
            if COUNTS_CALLS:
                sys.setprofile(self._profile)
            try:
                yield
            finally:
                sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        """Count calls of our functions, and of functions in C by these."""
        if event not in ("call", "c_call"):
            return
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            path = Path(code.co_filename)
            ours = path.is_relative_to(ROOT / "graphgen")
            self._ours[code] = ours
        if ours:
            self._now["calls"] += 1


def work_of(compilation: Compilation) -> Work:
    """The work of a compilation, in this process, which has compiled nothing of the kind."""
    counter = WorkCounter()
    with counter.counting():
        with counter.step("build"):
            module = build(
                known_shape(compilation.model),
                dtype("bf16"),
                phases=compilation.phases,
                mini=compilation.mini,
                layers=compilation.layers,
            )
        run_counted(module, default(CompileConfig(context=(2048,), tokens=(2048,))), counter)
        with counter.step("emit"):
            for program in module.programs():
                emit_stablehlo(module, program)
    return {name: dict(sorted(counts.items())) for name, counts in counter.steps.items()}


def run_counted(module: Module, passes: list[Pass], counter: WorkCounter) -> None:
    """Run a pipeline, each pass as a step of its own."""
    verify = Checker.after

    def counted_pass(item: Pass, *given: Any) -> Any:
        with counter.step(counter.numbered(item.name)):
            return run_pass(item, *given)

    def counted_verify(checker: Checker, item: Pass, rewriter: Rewriter) -> bool | None:
        with counter.step("verify"):
            return verify(checker, item, rewriter)

    with (
        patch("graphgen.passes.core.pipeline.run_pass", counted_pass),
        patch.object(Checker, "after", counted_verify),
        counter.step("pipeline"),
    ):
        run_pipeline(module, passes)


def comparable(counts: Mapping[str, Work]) -> dict[str, Work]:
    """The counts that this interpreter repeats: calls on Python 3.11 alone."""
    return {
        model: {
            step: {kind: n for kind, n in work.items() if COUNTS_CALLS or kind != "calls"}
            for step, work in steps.items()
        }
        for model, steps in counts.items()
    }


def increases(recorded: Mapping[str, Work], now: Mapping[str, Work]) -> list[str]:
    """A line for each count that has grown by more than 2 %, with the model and the pass."""
    lines: list[str] = []
    for model, steps in now.items():
        for step, counts in steps.items():
            before = recorded.get(model, {}).get(step, {})
            lines += [
                f"{model}: {step}: {kind} {before.get(kind, 0)} -> {count}"
                for kind, count in counts.items()
                if count > MOST * before.get(kind, 0)
            ]
    return lines
