"""Bugs planted inside the real passes: in a decomposition, a bucket, a lifted weight, a fusion.

While the broken pass runs, one of the functions it is made of is replaced by one that is wrong in
one place; the module it leaves passes the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import mock

from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS, Decomposition
from graphgen.ir import Attrs, AttrValue, Dim, Function, Module, Op, Value, attrs_of
from graphgen.ir.clone import Cloner
from graphgen.passes.canonical import fuse_projections
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, rule
from graphgen.passes.core.journal import Rewrite
from graphgen.passes.core.rule import Replacement
from graphgen.passes.legalize.cpu_products import padded_rows

# Replaces something inside a pass; gives what tells whether an application is the broken one.
Break = Callable[[], Generator[None]]


@dataclass(frozen=True, slots=True)
class Broken:
    """One bug.

    Attributes:
        name: of the bug.
        item: the pass it is in.
        breaks: replaces a function inside the pass.
        guilty: whether an application is the first that is wrong.
        tp: ranks of the model.
        shuffled: whether rows of a call must be other rows of the cache for it to show.
    """

    name: str
    item: str
    breaks: Break
    guilty: Callable[[Rewrite], bool]
    tp: int = 1
    shuffled: bool = False


@dataclass(frozen=True)
class Inside(Pass):
    """A pass with something broken inside.

    Options:
        item: the pass.
        breaks: what is broken while it runs.
    """

    name: ClassVar[str] = "inside"
    item: Pass
    breaks: Break

    @property
    def output_stage(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the pass."""
        return self.item.output_stage

    @property
    def rounding(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the pass."""
        return self.item.rounding

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Run the pass while it is broken."""
        with contextmanager(self.breaks)():
            self.item.run(module, rewriter)

    def __str__(self) -> str:
        return f"inside{{item={self.item}}}"


def decomposition(
    name: str, wrong: Decomposition, where: Callable[[Sequence[Value]], bool]
) -> Break:
    """A composite is inlined wrongly for some operand types."""
    right = DECOMPOSITIONS[name]

    def form(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
        return (wrong if where(operands) else right)(b, operands, attrs)

    def breaks() -> Generator[None]:
        with mock.patch.dict(DECOMPOSITIONS, {name: form}):
            yield

    return breaks


def with_attrs(name: str, **changes: AttrValue) -> Decomposition:
    """The right decomposition under other attributes."""
    right = DECOMPOSITIONS[name]

    def wrong(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
        return right(b, operands, attrs_of({**attrs, **changes}))

    return wrong


def with_operands(name: str, *order: int) -> Decomposition:
    """The right decomposition of operands in another order."""
    right = DECOMPOSITIONS[name]

    def wrong(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
        return right(b, [operands[index] for index in order], attrs)

    return wrong


def one_token(operands: Sequence[Value]) -> bool:
    """Whether the first operand is [B,1,...]: in decode programs."""
    return operands[0].shape[1] == 1


def sine_for_logistic(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``x * sin(x)``."""
    return [b.op("multiply", operands[0], b.unary("sine", operands[0]))]


def rows_below() -> Generator[None]:
    """Of the rows that products are padded to, those below the real ones are taken."""

    def off_by_one(rows: int) -> Rule:
        right = padded_rows(rows)

        @rule(*right.roots)
        def pad_rows(op: Op, b: Builder) -> Sequence[Value] | Replacement | NoMatch:
            found = right.apply(op, b)
            if isinstance(found, NoMatch) or op.loc.scope != "lm_head":
                return found
            (flat,) = [made for made in b.made or () if made.name == "slice"]
            count = flat.result.shape[0]
            return [b.reshape(b.slice_dim(flat.operands[0], 0, 1, count + 1), op.result.shape)]

        return pad_rows

    with mock.patch("graphgen.passes.legalize.legalization_rules.padded_rows", off_by_one):
        yield


def bucket(name: str, kind: str, change: Callable[[Op], None]) -> Break:
    """One program is cloned with its last op of a kind changed."""

    class Careless(Cloner):
        def function(self, source: Function, target: Function) -> Mapping[Value, Value]:
            copies = super().function(source, target)
            if target.name == name:
                change([op for op in target.block if op.name == kind][-1])
            return copies

    def breaks() -> Generator[None]:
        with mock.patch("graphgen.passes.programs.specialize.Cloner", Careless):
            yield

    return breaks


def swap(*order: int) -> Callable[[Op], None]:
    """Operands in another order."""
    return lambda op: op.set_operands(tuple([op.operands[index] for index in order]))


def in_place_everywhere() -> Generator[None]:
    """Every bucket takes row b of the call for row b of the cache."""

    def careless(
        *, symbols: Mapping[str, Dim], overrides: Mapping[str, AttrValue] | None = None, via: str
    ) -> Cloner:
        return Cloner(symbols=symbols, overrides={"rows": "in_place"}, via=via)

    with mock.patch("graphgen.passes.programs.specialize.Cloner", careless):
        yield


def copied(kind: str, weight: str, change: Callable[[Op], None]) -> Break:
    """One op that prepares a weight is copied with a change."""

    class Wrong(Cloner):
        def detached(self, op: Op, operands: Sequence[Value] | None = None) -> Op:
            made = super().detached(op, operands)
            if made.name == kind and any(weight in (value.name or "") for value in sources(made)):
                change(made)
            return made

    def breaks() -> Generator[None]:
        with mock.patch("graphgen.passes.weights.lift.Cloner", Wrong):
            yield

    return breaks


def sources(op: Op) -> list[Value]:
    """The arguments that an op computes with, directly or through others."""
    found: list[Value] = []
    work = list(op.operands)
    while work:
        value = work.pop()
        if value.op is None:
            found.append(value)
        else:
            work += value.op.operands
    return found


def joined_in_another_order(function: str, scope: str) -> Break:
    """The last two weights of one fused product are joined in the other order."""
    right = fuse_projections._fuse  # pyright: ignore[reportPrivateUsage]

    def wrong(plan: Any, group: Any, rewriter: Rewriter, b: Builder) -> Value:
        fused = right(plan, group, rewriter, b)
        for op in b.made or ():
            weights = op.name == "concatenate" and op.result.type.rank == 2
            if weights and (b.function.name, op.loc.scope) == (function, scope):
                *first, left, last = op.operands
                op.set_operands((*first, last, left))
        return fused

    def breaks() -> Generator[None]:
        with mock.patch("graphgen.passes.canonical.fuse_projections._fuse", wrong):
            yield

    return breaks


def at(root: str, function: str, scope: str) -> Callable[[Rewrite], bool]:
    """The application whose root is an op of this kind, there."""
    return lambda item: (
        f" = {root}(" in item.root and item.function == function and item.loc.scope == scope
    )


def ruled(text: str) -> Callable[[Rewrite], bool]:
    """The first application of a rule of this name."""
    return lambda item: item.rule == text


DECODE, SECOND = "decode.b3.c8", "decode.b3.c16"
ATTENTION_0, ATTENTION_1 = "model.layers.0.self_attn", "model.layers.1.self_attn"

INSIDE = (
    Broken(
        "eps",
        "legalize",
        decomposition("rms_norm", with_attrs("rms_norm", epsilon=1e-2), one_token),
        at("rms_norm", DECODE, "model.layers.0.input_layernorm"),
    ),
    Broken(
        "rope-tables",
        "legalize",
        decomposition("rope", with_operands("rope", 0, 2, 1), one_token),
        at("rope", DECODE, ATTENTION_0),
    ),
    Broken(
        "keys-for-values",
        "legalize",
        decomposition("attention", with_operands("attention", 0, 2, 1, 3), one_token),
        at("attention", DECODE, ATTENTION_0),
        tp=2,
    ),
    Broken(
        "sine-for-logistic",
        "legalize",
        decomposition("silu", sine_for_logistic, lambda operands: not one_token(operands)),
        at("silu", "prefill.b3.s8", "model.layers.0.mlp"),
    ),
    Broken(
        "rows-below",
        "legalize",
        rows_below,
        at("dot_general", "prefill.b3.s8", "lm_head"),
    ),
    Broken(
        "operands-of-a-bucket",
        "specialize",
        bucket(SECOND, "attention", swap(0, 2, 1, 3)),
        ruled("bucket b3.c16"),
    ),
    Broken(
        "residual-of-a-bucket",
        "specialize",
        bucket("prefill.b3.s8", "add", swap(0, 0)),
        ruled("bucket b3.s8"),
    ),
    Broken(
        "in-place-everywhere",
        "specialize",
        in_place_everywhere,
        ruled("bucket b3.s8"),
        shuffled=True,
    ),
    Broken(
        "gate-for-up",
        "lift-weights",
        copied("concatenate", "layers.1.mlp.gate_proj", swap(1, 0)),
        ruled("lift model.layers.1.mlp.gate_proj-up_proj.weight.prepared"),
    ),
    Broken(
        "part-of-rank-0",
        "lift-weights",
        copied("dynamic_slice", "layers.0.self_attn.o_proj", swap(0, 1, 1)),
        ruled("lift model.layers.0.self_attn.o_proj.weight.prepared"),
        tp=2,
    ),
    Broken(
        "keys-and-values-joined",
        "fuse-projections",
        joined_in_another_order(DECODE, ATTENTION_1),
        at("dot_general", DECODE, f"{ATTENTION_1}.k_proj"),
        tp=2,
    ),
)
