"""Fewer and smaller collectives: by text, and by numbers on all ranks of random programs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graphgen.build import Builder
from graphgen.eval import MEANING, Array, evaluate_ranks
from graphgen.ir import RANK, Function, Module, Value, dtype, tensor
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16, f32, s32
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.sharding.collective_cost import total
from graphgen.passes.spmd.merge_collectives import MergeCollectives
from graphgen.text import parse, print_module
from tests.oracles.layouts import sent
from tests.passes.spmd.test_random_modules import MESHES, random_module

HEAD = "module @m level=sharded mesh=tp:4 {\n}\n\nfunc @f {\n"
APART = MergeCollectives(small=0)


def body(text: str) -> str:
    """A program of four ranks from the lines of its body."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return HEAD + "".join(f"  {line}\n" for line in lines) + "}\n"


def merged(text: str, item: MergeCollectives = APART) -> tuple[str, Journal]:
    """The lines of the body afterwards, and what was done."""
    module = parse(body(text))
    journal = Journal()
    run_pipeline(module, [item], journal=journal)
    run_pipeline(module, parse_pipeline("dce"))
    printed = print_module(module, locs=False)
    return printed.split("func @f {\n")[1].strip().removesuffix("}").strip(), journal


def names(text: str) -> list[str]:
    return [line.split(" = ")[1].split("(")[0] for line in text.splitlines() if ") " in line]


ALL = "replica_groups=[[0,1,2,3]]"
PAIRS = "replica_groups=[[0,1],[2,3]]"
# Name of the rule, program, ops that are left.
CASES = {
    "sum-of-sums": (
        f"""
        arg %x : f32[4]
        arg %z : f32[4]
        %a = reduce_scatter(%x) kind=add dimension=0 {PAIRS} : f32[2]
        %b = reduce_scatter(%z) kind=add dimension=0 {PAIRS} : f32[2]
        %y = subtract(%a, %b) : f32[2]
        return y = %y
        """,
        "subtract reduce_scatter",
    ),
    "slice-of-gather": (
        f"""
        arg %rank : s32[1]
        arg %x : f32[4]
        %a = all_gather(%x) dimension=0 {PAIRS} : f32[8]
        %t = constant() value=s32[4](0,4,0,4) : s32[4]
        %r = reshape(%rank) shape=[] : s32[]
        %s = dynamic_slice(%t, %r) slice_sizes=[1] : s32[1]
        %i = reshape(%s) shape=[] : s32[]
        %c = dynamic_slice(%a, %i) slice_sizes=[4] : f32[4]
        %y = negate(%c) : f32[4]
        return y = %y
        """,
        "negate",
    ),
    "slice-of-sum": (
        f"""
        arg %rank : s32[1]
        arg %x : f32[2,8]
        %a = all_reduce(%x) kind=maximum {ALL} : f32[2,8]
        %t = constant() value=s32[](2) : s32[]
        %z = constant() value=s32[](0) : s32[]
        %r = reshape(%rank) shape=[] : s32[]
        %i = multiply(%t, %r) : s32[]
        %y = dynamic_slice(%a, %z, %i) slice_sizes=[2,2] : f32[2,2]
        return y = %y
        """,
        "reduce_scatter",
    ),
    "gather-of-scatter": (
        f"""
        arg %x : f32[4]
        %a = reduce_scatter(%x) kind=minimum dimension=0 {ALL} : f32[1]
        %y = all_gather(%a) dimension=0 {ALL} : f32[4]
        return y = %y
        """,
        "all_reduce",
    ),
    "permute-of-permute": (
        """
        arg %x : f32[4]
        %a = collective_permute(%x) source_target_pairs=[[0,1],[1,2],[3,0]] : f32[4]
        %y = collective_permute(%a) source_target_pairs=[[1,3],[2,2],[3,1]] : f32[4]
        return y = %y
        """,
        "collective_permute",
    ),
    "exchange-and-back": (
        f"""
        arg %x : f32[4,2]
        %a = all_to_all(%x) split_dimension=0 concat_dimension=1 {PAIRS} : f32[2,4]
        %b = all_to_all(%a) split_dimension=1 concat_dimension=0 {PAIRS} : f32[4,2]
        %y = negate(%b) : f32[4,2]
        return y = %y
        """,
        "negate",
    ),
    "nothing-to-exchange": (
        """
        arg %x : f32[4]
        %a = all_reduce(%x) kind=add replica_groups=[[0],[1],[2],[3]] : f32[4]
        %b = collective_permute(%a) source_target_pairs=[[1,1],[0,0],[2,2],[3,3]] : f32[4]
        %y = negate(%b) : f32[4]
        return y = %y
        """,
        "negate",
    ),
    "elementwise-before": (
        f"""
        arg %x : f32[2,3]
        arg %s : f32[]
        %a = all_gather(%x) dimension=0 {PAIRS} : f32[4,3]
        %t = transpose(%a) permutation=[1,0] : f32[3,4]
        %y = convert(%t) dtype=bf16 : bf16[3,4]
        return y = %y
        """,
        "convert all_gather transpose",
    ),
    "widening-behind": (
        f"""
        arg %x : bf16[4,2]
        %a = convert(%x) dtype=f32 : f32[4,2]
        %y = all_to_all(%a) split_dimension=0 concat_dimension=1 {PAIRS} : f32[2,4]
        return y = %y
        """,
        "all_to_all convert",
    ),
    "broadcast-behind": (
        f"""
        arg %x : f32[2]
        %a = broadcast_in_dim(%x) shape=[3,2] dimensions=[1] : f32[3,2]
        %y = all_gather(%a) dimension=1 {ALL} : f32[3,8]
        return y = %y
        """,
        "all_gather broadcast_in_dim",
    ),
    "slice-before": (
        f"""
        arg %x : f32[3,4]
        %a = all_gather(%x) dimension=0 {PAIRS} : f32[6,4]
        %y = slice(%a) start_indices=[0,3] limit_indices=[6,4] : f32[6,1]
        return y = %y
        """,
        "slice all_gather",
    ),
    "reduce-before": (
        f"""
        arg %x : f32[3,4]
        %a = all_gather(%x) dimension=1 {ALL} : f32[3,16]
        %y = reduce(%a) dimensions=[1] kind=add : f32[3]
        return y = %y
        """,
        "reduce all_reduce",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_rule(name: str):
    text, left = CASES[name]
    module = parse(body(text))
    given_ = clone_module(module)
    made, journal = merged(text)
    applied = journal.of_pass("merge-collectives")
    assert {item.rule for item in applied} == {name}
    assert names(made) == left.split()
    assert all("less a rank" in item.gain and str(item).endswith(item.gain) for item in applied)
    equal_on_all_ranks(given_, parse(HEAD + "  " + made + "\n}\n"), 3)


def equal_on_all_ranks(before: Module, after: Module, seed: int) -> None:
    """Every output of every rank is the same, in double precision, and no more is sent."""
    given_ = inputs(before.function("f"), before.ranks, seed)
    wanted = evaluate_ranks(before.function("f"), given_, MEANING)
    found = evaluate_ranks(after.function("f"), given_, MEANING)
    for rank, outputs in enumerate(wanted):
        for name, array in outputs.items():
            np.testing.assert_allclose(found[rank][name], array, rtol=1e-12, atol=1e-12)
    assert total(after.function("f").ops) <= total(before.function("f").ops)


def inputs(function: Function, ranks: int, seed: int) -> list[dict[str, Array]]:
    """Other numbers on every rank, save what says which rank it is."""
    random = np.random.default_rng(seed)
    return [
        {
            value.name or "": np.full((1,), rank, np.int32)
            if value.name == RANK
            else random.normal(size=value.type.dims).astype(MEANING.dtype(value.dtype))
            for value in function.args
        }
        for rank in range(ranks)
    ]


MISSES = {
    "sum-of-sums": (
        f"""
        arg %x : f32[4]
        %a = all_reduce(%x) kind=add {ALL} : f32[4]
        %b = all_reduce(%x) kind=add {PAIRS} : f32[4]
        %y = add(%a, %b) : f32[4]
        return y = %y
        """,
        "the operands are not combined alike",
    ),
    "slice-of-gather": (
        f"""
        arg %rank : s32[1]
        arg %x : f32[4]
        %a = all_gather(%x) dimension=0 {ALL} : f32[16]
        %t = constant() value=s32[4](0,8,4,12) : s32[4]
        %r = reshape(%rank) shape=[] : s32[]
        %s = dynamic_slice(%t, %r) slice_sizes=[1] : s32[1]
        %i = reshape(%s) shape=[] : s32[]
        %y = dynamic_slice(%a, %i) slice_sizes=[4] : f32[4]
        return y = %y
        """,
        "rank 1 takes another part than its own",
    ),
    "slice-of-sum": (
        f"""
        arg %rank : s32[1]
        arg %x : f32[4]
        %a = all_reduce(%x) kind=add {ALL} : f32[4]
        %r = reshape(%rank) shape=[] : s32[]
        %y = dynamic_slice(%a, %r) slice_sizes=[1] : f32[1]
        return y = %y
        return a = %a
        """,
        "others read the whole sum",
    ),
    "gather-of-scatter": (
        f"""
        arg %x : f32[4,4]
        %a = reduce_scatter(%x) kind=add dimension=0 {ALL} : f32[1,4]
        %y = all_gather(%a) dimension=1 {ALL} : f32[1,16]
        return y = %y
        """,
        "parts are joined otherwise than they were cut",
    ),
    "elementwise-before": (
        f"""
        arg %x : f32[4]
        %a = all_gather(%x) dimension=0 {ALL} : f32[16]
        %y = negate(%a) : f32[16]
        return y = %y
        """,
        "no less would be sent",
    ),
    "slice-before": (
        f"""
        arg %x : f32[4]
        %a = all_gather(%x) dimension=0 {ALL} : f32[16]
        %y = slice(%a) start_indices=[0] limit_indices=[4] : f32[4]
        return y = %y
        """,
        "parts of ranks are left out",
    ),
    "reduce-before": (
        f"""
        arg %x : f32[4]
        %a = all_reduce(%x) kind=add {ALL} : f32[4]
        %y = reduce(%a) dimensions=[0] kind=maximum : f32[]
        return y = %y
        """,
        "add over ranks does not go with maximum",
    ),
    "permute-of-permute": (
        """
        arg %x : f32[4]
        %a = collective_permute(%x) source_target_pairs=[[0,1],[1,0]] : f32[4]
        %y = collective_permute(%a) source_target_pairs=[[0,1],[1,0]] : f32[4]
        return y = %y
        return a = %a
        """,
        "others read it on its way",
    ),
}


@pytest.mark.parametrize("name", MISSES)
def test_each_rule_says_why_not(name: str):
    text, reason = MISSES[name]
    _, journal = merged(text)
    assert journal.applications == []
    miss = journal.nearest(name)
    assert miss is not None
    assert miss.why.reason == reason


GROUPS = (
    ((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((2, 0), (3, 1)), ((0,), (1,), (2,), (3,)),
)  # fmt: skip
KINDS = ("add", "maximum", "minimum")


class Ranked:
    """Grows random programs of four ranks, in which collectives follow each other closely."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.module = Module("m", level="sharded", mesh={"tp": 4})
        self.function = self.module.add(Function("f"))
        self.b = Builder(self.function, self.module)
        # The next collective is mostly one of the same ranks, along the same dimension.
        self.latest = GROUPS[0]
        self.along = 0
        self.rank = self.function.block.add_arg(tensor(s32, (1,)), RANK)
        self.values = [
            self.function.block.add_arg(tensor(kind, (4, 4)), name)
            for name, kind in (("x", f32), ("y", f32), ("z", bf16))
        ]

    def grow(self, ops: int) -> Module:
        """So many steps; outputs are the last values and some of the others."""
        steps = [
            *[self.collective] * 4, *[self.own] * 2, *[self.two] * 2, self.binary, self.convert,
            self.reduced, self.cut, self.turned, self.repeated, self.permute, self.permute,
        ]  # fmt: skip
        for _ in range(ops):
            # The latest values are the likeliest: ops follow each other.
            x = self.values[-1 - min(int(self.random.expovariate(1.5)), len(self.values) - 1)]
            made = self.random.choice(steps)(x)
            if made is not None:
                self.values.append(made)
        chosen = {self.values[-1], *self.values[: self.random.choice([0, 0, 5])]}
        self.function.outputs = [
            (f"o{i}", v) for i, v in enumerate(v for v in self.values if v in chosen)
        ]
        return self.module

    def groups(self) -> tuple[tuple[int, ...], ...]:
        if self.random.random() < 0.3:
            self.latest = GROUPS[min(int(self.random.expovariate(0.7)), len(GROUPS) - 1)]
        return self.latest

    def dim(self, x: Value, parts: int = 1) -> int | None:
        fitting = [i for i, size in enumerate(x.type.dims) if size % parts == 0]
        if fitting and (self.along not in fitting or self.random.random() < 0.3):
            self.along = self.random.choice(fitting)
        return self.along if fitting else None

    def collective(self, x: Value) -> Value | None:
        there = x.producer("all_to_all")
        if there is not None and self.random.random() < 0.5:
            dims = [there.attrs.integer(f"{kind}_dimension") for kind in ("concat", "split")]
            return self.b.all_to_all(x, there.attrs.groups("replica_groups"), *dims)
        groups, name = self.groups(), self.random.choice(("ar", "ag", "rs", "aa"))
        kind, dim = KINDS[min(int(self.random.expovariate(1)), 2)], self.dim(x, len(groups[0]))
        if name == "ar":
            return self.b.all_reduce(x, groups, kind)
        other = self.random.choice([self.dim(x), self.random.randrange(x.type.rank or 1)])
        if name == "ag" and x.type.rank and other is not None and x.type.dims[other] < 32:
            return self.b.all_gather(x, groups, other)
        if dim is None or other is None or name == "ag":
            return None
        if name == "rs":
            return self.b.reduce_scatter(x, groups, dim, kind)
        dims = (dim, other) if self.random.random() < 0.5 else (other, dim)
        if x.type.dims[dims[0]] % len(groups[0]):
            return None
        return self.b.all_to_all(x, groups, *dims)

    def two(self, x: Value) -> Value:
        """Two values, sent alike, and something of both."""
        other = self.random.choice([v for v in self.values if v.type is x.type])
        groups, kind = self.groups(), self.random.choice(KINDS)
        if not x.type.rank or self.random.random() < 0.5:
            left, right = [self.b.all_reduce(v, groups, kind) for v in (x, other)]
        else:
            left, right = [self.b.all_gather(v, groups, 0) for v in (x, other)]
        name = self.random.choice(("add", "subtract", "maximum", "multiply"))
        return self.b.binary(name, left, right)

    def permute(self, x: Value) -> Value:
        targets = self.random.sample(range(4), 4)
        pairs = [pair for pair in zip(range(4), targets, strict=True) if self.random.random() < 0.9]
        return self.b.collective_permute(x, tuple(pairs))

    def binary(self, x: Value) -> Value | None:
        same = [v for v in self.values if v.type is x.type]
        name = self.random.choice(("add", "subtract", "maximum", "multiply"))
        return self.b.binary(name, x, self.random.choice([*same, self.b.full(2.0, x.type)]))

    def convert(self, x: Value) -> Value:
        return self.b.convert(x, dtype(self.random.choice(("f32", "bf16"))))

    def own(self, x: Value) -> Value | None:
        """The part of a rank in a group, or mostly of it."""
        groups = self.groups()
        count = len(groups[0])
        dim = self.dim(x, count)
        if dim is None:
            return None
        size = x.type.dims[dim] // count
        places = {rank: group.index(rank) for group in groups for rank in group}
        table = [size * places[rank] for rank in range(4)]
        if self.random.random() < 0.2:
            self.random.shuffle(table)
        number = self.b.reshape(self.rank, ())
        start = self.b.dynamic_slice(self.b.literal(table, s32), [number], (1,))
        zero = self.b.literal(0, s32)
        starts = [self.b.reshape(start, ()) if at == dim else zero for at in range(x.type.rank)]
        sizes = [size if at == dim else whole for at, whole in enumerate(x.shape)]
        return self.b.dynamic_slice(x, starts, sizes)

    def reduced(self, x: Value) -> Value | None:
        dim = self.dim(x)
        return None if dim is None else self.b.reduce(x, [dim], self.random.choice(KINDS))

    def cut(self, x: Value) -> Value | None:
        dim = self.dim(x)
        if dim is None or x.type.dims[dim] < 2:
            return None
        return self.b.slice_dim(x, dim, self.random.randint(0, 1), x.type.dims[dim])

    def turned(self, x: Value) -> Value:
        return self.b.transpose(x, self.random.sample(range(x.type.rank), x.type.rank))

    def repeated(self, x: Value) -> Value | None:
        if x.type.rank > 2:
            return None
        return self.b.broadcast_in_dim(x, (4, *x.shape), range(1, x.type.rank + 1))


def fired(modules: Sequence[Module]) -> dict[str, int]:
    found: dict[str, int] = {}
    for seed, module in enumerate(modules):
        before = clone_module(module)
        verify(module)
        journal = Journal()
        small = (0, 64, 1 << 20)[seed % 3]
        run_pipeline(module, [MergeCollectives(small)], journal=journal)
        run_pipeline(module, parse_pipeline("dce"))
        run_pipeline(before, parse_pipeline("dce"))
        equal_on_all_ranks(before, module, seed)
        for item in journal.of_pass("merge-collectives"):
            found[item.rule] = found.get(item.rule, 0) + 1
    return found


def test_random_programs_of_ranks_mean_the_same_and_send_no_more():
    found = fired([Ranked(Random(seed)).grow(8) for seed in range(400)])
    rules = {*CASES, "join-collectives"}
    assert {name for name, count in found.items() if count >= 3} == rules, found


@settings(max_examples=100, deadline=None, derandomize=True, phases=[Phase.generate])
@given(seed=st.integers(0, 1 << 30), axes=st.sampled_from(MESHES), ops=st.integers(1, 12))
def test_partitioned_graphs_send_no_more_with_it(seed: int, axes: dict[str, int], ops: int):
    module = random_module(Random(seed), axes, ops)
    run_pipeline(module, parse_pipeline("partition,cse,dce"))
    merged_ = clone_module(module)
    run_pipeline(merged_, parse_pipeline("merge-collectives,dce"))
    for latency in (0, 64):
        for before, after in zip(module.programs(), merged_.programs(), strict=True):
            assert sent(merged_, after, latency) <= sent(module, before, latency)


READ = f"""
    arg %x : f32[4]
    %a = all_reduce(%x) kind=add {ALL} : f32[4]
    %p = hlo.opaque() opcode="partition-id" results=[u32[]] : u32[]
    %i = convert(%p) dtype=s32 : s32[]
    %y = dynamic_slice(%a, %i) slice_sizes=[1] : f32[1]
    return y = %y
"""


def test_a_program_read_from_elsewhere_asks_for_its_rank():
    made, journal = merged(READ)
    assert [item.rule for item in journal.of_pass("merge-collectives")] == ["slice-of-sum"]
    assert "reduce_scatter" in names(made)
    equal_on_all_ranks(parse(body(READ)), parse(HEAD + "  " + made + "\n}\n"), 5)
