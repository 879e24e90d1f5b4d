"""Random graphs over the whole op table, grown from the samples of every op.

Every op is put in with the operands of one of its samples: an array the sample asks for, a value
the graph has already made, perhaps cut or stretched to the shape, or a new argument. Two kinds of
values keep apart what may differ from what must not. A *rounded* value (the result of float
arithmetic) is moved around but not computed with, because a comparison or a truncation would make
a last place into a different number. An *odd* value (it may hold infinities, NaN, the ends of a
type) is not summed, because the order of a sum then decides the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from random import Random

import numpy as np

from graphgen.build import Builder
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import AttrValue, DType, Module, Op, TensorType, Value, dtype, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ir.module import Function
from graphgen.ops import OPS
from tests.graphgen.eval.test_composites import CASES, EXACT, FLOATS, Sizes
from tests.oracles.op_samples import BY_OP, Sample, program
from tests.oracles.random_control import CONTROLS
from tests.oracles.sample import any_array

# Say where elements go; what is in them does not matter.
MOVES = frozenset(
    (
        *("reshape", "transpose", "slice", "concatenate", "pad", "broadcast_in_dim", "reverse"),
        *("select", "copy", "take", "gather", "dynamic_slice", "dynamic_update_slice"),
        *("optimization_barrier", "all_gather", "all_to_all", "collective_permute"),
    )
)


@dataclass(frozen=True, slots=True)
class Known:
    """A value of the graph, and whether it is rounded or odd."""

    value: Value
    rounded: bool = False
    odd: bool = False


@cache
def _attrs() -> dict[str, dict[str, AttrValue]]:
    """The attributes of every sample by its name, read from its text."""
    samples = [sample for found in BY_OP.values() for sample in found]
    assert len({sample.name for sample in samples}) == len(samples)
    ops = program(samples).function("f").block
    return {sample.name: dict(op.attrs) for sample, op in zip(samples, ops, strict=True)}


class Grower:
    """Grows one graph.

    Args:
        seed: of everything random.
        ranks: 1, or how many ranks the collectives are over.

    Attributes:
        module: at level ``logical``; its function is called ``f``.
        given: the arguments of each rank.
        rounded: names of the outputs that are rounded.
    """

    def __init__(self, seed: int, ranks: int = 1) -> None:
        self.random = Random(seed)
        self.numbers = np.random.default_rng(seed)
        level = "sharded" if ranks > 1 else "logical"
        self.module = Module("random", level, {"tp": ranks} if ranks > 1 else {})
        self.function = self.module.add(Function("f"))
        self.b = Builder(self.function)
        self.given: list[dict[str, Array]] = [{} for _ in range(ranks)]
        self.known: list[Known] = []
        self.rounded: set[str] = set()

    def grow(self, names: Sequence[str]) -> None:
        """Put in these ops in order; every value that nothing reads becomes an output."""
        with self.b:
            for name in names:
                self._put(name)
        unread = [item for item in self.known if not item.value.users and item.value.op]
        self.function.outputs = [(f"y{i}", item.value) for i, item in enumerate(unread)]
        self.rounded = {f"y{i}" for i, item in enumerate(unread) if item.rounded}

    def histogram(self) -> Counter[str]:
        """How many of each op the graph has."""
        return Counter(op.name for op in self.function.block)

    def _put(self, name: str) -> None:
        made = COLLECTIVES.get(name) or CONTROLS.get(name)
        if made is not None:
            self._add(made(self))
        elif name in CASES:
            self._composite(name)
        else:
            self._simple(self.random.choice([s for s in BY_OP[name] if s.name not in UNLIKE_XLA]))

    def _simple(self, sample: Sample) -> None:
        arrays = sample.arrays()
        names = {f"x{i}" for i in range(len(arrays))}
        asked = set(sample.given) & names if self.random.random() < 0.5 else _needed(sample)
        operands = [
            self._operand(sample.op, array, dtype(text.split("[")[0]).name, f"x{i}" in asked)
            for i, (array, text) in enumerate(zip(arrays, sample.types, strict=True))
        ]
        self._add(self.b.emit(sample.op, operands, _attrs()[sample.name]))

    def _composite(self, name: str) -> None:
        seed, kind = self.random.randrange(10**6), self.random.choice(FLOATS)
        # Its f32 scales are of numbers that were rounded to the type of the operands.
        case = CASES[name](Sizes(seed, f32 if name == "rms_norm_quantize" else kind))
        operands: list[Value] = []
        for value, array in zip(case.op.operands, case.given.values(), strict=True):
            # What says where (positions, rows, masks) belongs together; floats may be any.
            asked = not value.dtype.is_float or name in ("attention", "rope")
            operands.append(self._operand(name, array, value.dtype.name, asked))
        self._add(self.b.emit(name, operands, dict(case.op.attrs)))

    def _operand(self, op: str, array: Array, kind: str, asked: bool) -> Value:
        type_ = tensor(dtype(kind), array.shape)
        if not asked:
            fitting = [item for item in self.known if self._may(op, item, type_)]
            same = [item for item in fitting if item.value.type is type_]
            if same and self.random.random() < 0.8:
                return self.random.choice(same).value
            if fitting and self.random.random() < 0.6:
                return self._fit(self.random.choice(fitting), type_)
        return self._argument(type_, array, odd=asked)

    def _may(self, op: str, item: Known, type_: TensorType) -> bool:
        """Whether ``op`` may read a value of this kind."""
        if item.value.dtype is not type_.dtype or (0 in item.value.shape) != (0 in type_.shape):
            return False
        if op in MOVES or not (item.rounded or _has_places(item.value.dtype)):
            return True
        if op == "bitcast_convert":
            # Which bits a NaN has, or a zero's sign, is nobody's promise.
            return item.value.op is None
        return not item.rounded and not item.odd

    def _fit(self, item: Known, type_: TensorType) -> Value:
        """Elements of a value, as many and in the shape that is wanted."""
        b, have, wanted = self.b, prod(item.value.type.dims), prod(type_.dims)
        flat = b.reshape(item.value, (have,))
        if have > wanted:
            first = self.random.randint(0, have - wanted)
            cut: dict[str, AttrValue] = {"start_indices": (first,), "strides": (1,)}
            flat = b.emit("slice", [flat], {**cut, "limit_indices": (first + wanted,)}).result
        elif have < wanted:
            zero = b.literal(0, type_.dtype)
            low = self.random.randint(0, wanted - have)
            flat = b.pad(flat, zero, [low], [wanted - have - low])
        made = b.reshape(flat, type_.shape)
        self.known.append(Known(made, item.rounded, item.odd))
        return made

    def _argument(self, type_: TensorType, array: Array, odd: bool) -> Value:
        value = self.function.block.add_arg(type_, f"a{len(self.function.args)}")
        for index, arrays in enumerate(self.given):
            mine = array if odd or not index else any_array(self.numbers, type_)
            arrays[value.name or ""] = np.asarray(mine, numpy_dtype(type_.dtype))
        # The first rank has the sample's own numbers, which may be odd where none were asked for.
        odd = odd or not np.isfinite(np.asarray(array, np.complex128)).all()
        self.known.append(Known(value, odd=odd and _has_places(type_.dtype)))
        return value

    def _add(self, op: Op) -> None:
        of = {item.value: item for item in self.known}
        read = [of[value] for value in op.operands if value in of]
        odd = any(item.odd for item in read)
        exact = op.name in MOVES or op.name in EXACT or op.name in CONTROLS
        for result in op.results:
            # What is rounded to an integer was a rounded quotient before; so are bytes of scales.
            may = _has_places(result.dtype) or op.name in QUANTIZING
            rounded = any(item.rounded for item in read) if exact else may
            self.known.append(Known(result, rounded, odd and _has_places(result.dtype)))


def _has_places(kind: DType) -> bool:
    """Whether numbers of the type, or their parts, are floats."""
    return kind.is_float or kind.is_complex


def _needed(sample: Sample) -> set[str]:
    """Operands that make no sense at random: where a sample says which places to look at."""
    places = {"gather": 1, "scatter": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "take": 1}
    # Matrices far from singular ones.
    places |= {"triangular_solve": 0, "cholesky": 0}
    first = places.get(sample.op)
    return set() if first is None else {key for key in sample.given if int(key[1:]) >= first}


def _collective(attrs: dict[str, AttrValue], name: str) -> Callable[[Grower], Op]:
    def make(g: Grower) -> Op:
        kind = g.random.choice([*FLOATS, s32])
        type_ = tensor(kind, (4, 2))
        value = g._operand(name, any_array(g.numbers, type_), kind.name, False)
        return g.b.emit(name, [value], attrs)

    return make


_GROUP: AttrValue = ((0, 1),)
COLLECTIVES: dict[str, Callable[[Grower], Op]] = {
    name: _collective(attrs, name)
    for name, attrs in {
        "all_reduce": {"kind": "add", "replica_groups": _GROUP},
        "all_gather": {"dimension": 1, "replica_groups": _GROUP},
        "reduce_scatter": {"kind": "add", "dimension": 0, "replica_groups": _GROUP},
        "all_to_all": {"split_dimension": 0, "concat_dimension": 1, "replica_groups": _GROUP},
        "collective_permute": {"source_target_pairs": ((0, 1), (1, 0))},
    }.items()
}
# XLA's powers take unsigned exponents from half of their range on as negative ones, and of signed
# exponents the low six bits alone: 64 to the 64th is 1.
UNLIKE_XLA = {f"power-{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64)}
SIMPLE = tuple(sorted(name for name in BY_OP if name not in COLLECTIVES))
COMPOSITE = tuple(sorted(set(CASES) - {"accept"}))
QUANTIZING = frozenset(("quantize", "quantize_rows", "rms_norm_quantize"))
# Ops that are not grown, and why.
LEFT_OUT: dict[str, str] = {
    "call": "its function is a program of its own; tests/passes/outline/test_outline_layers.py",
    "accept": "its draws depend on how sums of its operands are rounded",
    "custom_call": "it cannot be evaluated",
    "hlo.opaque": "it cannot be evaluated",
    "rng": "it cannot be evaluated",
}


def supported() -> set[str]:
    """The ops that graphs are grown from."""
    return set(OPS) - set(LEFT_OUT)


def names_for(seed: int, count: int, ranks: int) -> list[str]:
    """Which ops graph number ``seed`` gets: all of them in turn, and some at random."""
    table = [*SIMPLE, *COMPOSITE]
    random = Random(f"ops {seed}")
    chosen = [table[(seed * count + i) % len(table)] for i in range(count)]
    if ranks > 1:
        chosen += [random.choice(sorted(COLLECTIVES)) for _ in range(3)]
    random.shuffle(chosen)
    chosen.insert(random.randrange(len(chosen) + 1), random.choice(sorted(CONTROLS)))
    return chosen
