"""Wrong rewrites that ordinary calls of small models do not show, each with a call that does.

Four kinds: *programs* never run, *situations* never made, models too small (*sizes*), and numbers
never drawn (*values*). A bug names the op that is rewritten wrongly, and comes with a scene: one
call, written by hand, in which the two programs differ. The scene proves that the bug is one; it
is not given to what looks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

import graphgen.passes.pipelines  # noqa: F401
from graphgen.build import Builder
from graphgen.eval import MEANING, NATIVE, Array
from graphgen.exec.session import Outcome, ProgramCall, Runner, Workload
from graphgen.ir import Dim, Module, Op, Role, Value, dtype, tensor
from graphgen.ir.clone import bind_function, clone_module
from graphgen.models import build, build_module, known_shape
from graphgen.models.llama import LLAMA
from graphgen.models.mistral import MISTRAL
from graphgen.passes.core import parse_pipeline, run_pipeline
from tests.oracles.planted_bugs import CONFIG, WINDOWED, Bug, Planted, rebuild

# A difference in float64 that proves a bug; in the program's own types it is ten budgets and this.
SHOWN, SHOWN_ROUNDED = 1e-6, 1e-3

# Mini models, wide twins, and one whose prefill attends to more slots than it has tokens.
MODELS: Mapping[str, Callable[[str], Module]] = {
    "llama": lambda element: build_module(LLAMA, CONFIG, dtype(element)),
    "mistral": lambda element: build_module(MISTRAL, WINDOWED, dtype(element)),
    "gpt2": lambda element: build(known_shape("gpt2"), dtype(element), mini=True),
    "opt": lambda element: build(known_shape("opt-125m"), dtype(element), mini=True),
    "wide llama": lambda element: build(known_shape("llama-3.1-8b"), dtype(element), twin="wide"),
    "chunked llama": lambda element: chunked(element),
}


def chunked(element: str) -> Module:
    """Prefill takes four tokens a row and attends to 16 slots, as a long prompt in parts needs."""
    module = build_module(LLAMA, CONFIG, dtype(element))
    symbolic = clone_module(module).functions["prefill"]
    run_pipeline(module, parse_pipeline("specialize{batch=[2],context=[4],tokens=[16]}"))
    dims: dict[str, Dim] = {"B": 2, "S": 4, "C": 16, "R": 2, "M": 16}
    made = bind_function(symbolic, dims, dims)
    made.name = "prefill.b2.s4"
    module.functions[made.name] = made
    return module


@cache
def model(source: str, element: str, after: str) -> Module:
    """A model after a pipeline; shared, so not to be changed."""
    module = MODELS[source](element)
    run_pipeline(module, parse_pipeline(after))
    return module


@dataclass(frozen=True, slots=True)
class Scene:
    """One call, written by hand.

    Attributes:
        dims: B, S, C, R and M.
        positions: s32 [B,S]; -1 for padding.
        tokens: s32 [B,S]; ordinary ids by default.
        rows: rows of the cache; in order by default.
        weights: changes of weights whose names end so.
        inputs: other inputs.
        filled: whether the caches hold numbers at the start; else zeros.
    """

    dims: Mapping[str, Dim]
    positions: Sequence[Sequence[int]]
    tokens: Sequence[Sequence[int]] | None = None
    rows: Sequence[int] | None = None
    weights: Mapping[str, Callable[[Array], Array]] = field(
        default_factory=dict[str, Callable[[Array], Array]]
    )
    inputs: Mapping[str, Sequence[float] | Sequence[Sequence[float]]] = field(
        default_factory=dict[str, Sequence[float]]
    )
    filled: bool = True

    def workload(self, module: Module, phase: str) -> Workload:
        """The call, with weights and caches of the module."""
        positions = np.array(self.positions, np.int32)
        rows, size = positions.shape
        drawn = np.random.default_rng(5)
        tokens = self.tokens or drawn.integers(3, 60, (rows, size))
        inputs: dict[str, Array] = {
            "tokens": np.array(tokens, np.int32),
            "positions": positions,
            "lengths": (positions.max(1) + 1).astype(np.int32),
            "seq_ids": np.array(self.rows or range(rows), np.int32),
            **{name: np.array(given, np.float32) for name, given in self.inputs.items()},
        }
        weights = {
            row.name: self._weight(row.name, row.logical.dims, drawn)
            for row in module.entries(Role.WEIGHT)
        }
        shared = {"R": self.dims["R"], "M": self.dims["M"]}
        states: dict[str, Array] = {
            row.name: drawn.normal(0, 1, row.logical.bind(shared).dims) * self.filled
            for row in module.entries(Role.STATE)
        }
        active = tuple(row for row in range(rows) if positions[row].max() >= 0)
        call = ProgramCall(phase, self.dims, inputs, active)
        return Workload(weights, (call,), shared, states)

    def _weight(self, name: str, dims: Sequence[int], drawn: np.random.Generator) -> Array:
        spread = 0.1 if len(dims) == 1 else dims[-1] ** -0.5
        centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        made: Array = drawn.normal(centre, spread, tuple(dims)).astype(np.float32)
        for end, change in self.weights.items():
            made = change(made) if name.endswith(end) else made
        return made


@dataclass(frozen=True, slots=True)
class Unseen:
    """A bug of one of the four kinds.

    Attributes:
        kind: programs, situations, sizes or values.
        bug: the wrong rewrite: rule, op, program, scope, element type, pipeline before it.
        scene: a call that shows it.
        source: a name of ``MODELS``.
    """

    kind: str
    bug: Bug
    scene: Scene
    source: str = "llama"

    @property
    def name(self) -> str:
        """The rule's."""
        return self.bug.name

    def module(self) -> Module:
        """The module that the planted pass is given; not to be changed."""
        return model(self.source, self.bug.element, self.bug.after)

    def planted(self, harmless: bool = False) -> Planted:
        """The pass."""
        return Planted(self.bug, harmless)

    @property
    def number(self) -> int:
        """The number of the wrong application among those of the pass, from 1."""
        planted = self.planted()
        run_pipeline(clone_module(self.module()), [planted])
        return planted.history.index(True) + 1

    def shown(self, harmless: bool = False) -> tuple[float, float]:
        """Differences in the scene that the planted pass makes: in float64, in its own types."""
        right, wrong = self.module(), clone_module(self.module())
        run_pipeline(wrong, [self.planted(harmless)])
        phase = right.functions[self.bug.program].phase
        workload = self.scene.workload(right, phase)
        worst: list[float] = []
        for arithmetic in (MEANING, NATIVE):
            with np.errstate(all="ignore"):
                a, b = (
                    Runner(module, workload, arithmetic=arithmetic).outcomes()[0]
                    for module in (right, wrong)
                )
            worst.append(difference(a, b))
        return worst[0], worst[1]


def difference(a: Outcome, b: Outcome) -> float:
    """The largest relative difference of two outcomes; infinite where one alone is a number."""
    return max(_apart(a[name], b[name]) for name in a)


def _apart(a: Array, b: Array) -> float:
    first, second = (np.ma.filled(array.astype(np.float64), 0.0) for array in (a, b))
    if (np.isfinite(first) != np.isfinite(second)).any():
        return np.inf
    numbers = np.isfinite(first)
    largest = float(np.abs(first[numbers]).max(initial=1e-30))
    return float(np.abs(first[numbers] - second[numbers]).max(initial=0.0)) / largest


def at_least(bound: float) -> Callable[[Value, Builder], Value]:
    """No smaller than a number."""
    return lambda value, b: b.binary("maximum", value, bound)


def at_most(bound: float) -> Callable[[Value, Builder], Value]:
    """No greater than a number."""
    return lambda value, b: b.binary("minimum", value, bound)


def through(name: str) -> Callable[[Value, Builder], Value]:
    """Converted to another type and back."""
    return lambda value, b: b.convert(b.convert(value, dtype(name)), value.dtype)


def starts(positions: Value, b: Builder) -> Value:
    """s32 [B]: the first position of each row of s32 [B,S]."""
    real = b.compare(positions, b.full(0, positions.type), "GE")
    return b.reduce(b.select(real, positions, b.full(2**30, positions.type)), [1], "minimum")


def number(dim: Dim) -> int:
    """A size that is known."""
    assert isinstance(dim, int)
    return dim


def given(b: Builder, name: str) -> Value:
    """An argument of the program."""
    found = b.function.arg(name)
    assert found is not None
    return found


def known(op: Op) -> tuple[int, ...]:
    """The sizes of a result, all of them known."""
    return tuple(number(dim) for dim in op.result.shape)


def zeros(b: Builder, like: Value, shape: Sequence[Dim]) -> Value:
    """Zeros of the type of ``like``'s elements."""
    return b.full(0.0, tensor(like.dtype, tuple(shape)))


def front(count: int, dim: int = 1) -> Callable[[Op, Builder], Sequence[Value]]:
    """The result along ``dim`` up to ``count``, and zeros from there on."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        made = rebuild(op, b)[0]
        shape = list(made.shape)
        shape[dim] = number(shape[dim]) - count
        return [b.concatenate([b.slice_dim(made, dim, 0, count), zeros(b, made, shape)], dim)]

    return wrong


def dims(batch: int, active: int, attended: int, rows: int, slots: int) -> dict[str, Dim]:
    """Sizes of a call."""
    return {"S": active, "B": batch, "C": attended, "R": rows, "M": slots}


def prompts(active: int, *lengths: int, start: int = 0) -> list[list[int]]:
    """Positions of prompts, padded on the right."""
    return [[start + i if i < length else -1 for i in range(active)] for length in lengths]


def steps(*positions: int) -> list[list[int]]:
    """Positions of one token a row."""
    return [[position] for position in positions]
