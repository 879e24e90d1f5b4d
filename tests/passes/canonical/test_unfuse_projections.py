"""Taking projections apart: side by side and head by head, with all that follows the product."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import MEANING, evaluate
from graphgen.ir import Module, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.fuse_projections import FuseProjections
from graphgen.passes.canonical.unfuse_projections import UnfuseProjections
from graphgen.passes.core import Pass, Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.workload.make_workload import make_workload
from graphgen.passes.workload.value_ranges import random_array
from graphgen.text import parse

ROWS = "lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32"
COLUMNS = "lhs_contracting_dims=[2] rhs_contracting_dims=[0] dtype=f32"
DOT = f"%y = dot_general(%x, %w) {ROWS} : f32[2,3,12]"


def thirds(value: str, kind: str = "f32") -> list[str]:
    """Three slices side by side of [2,3,12], returned."""
    lines = [
        f"%{name} = slice(%{value}) start_indices=[0,0,{at}] limit_indices=[2,3,{at + 4}] "
        f": {kind}[2,3,4]"
        for name, at in (("p", 0), ("q", 4), ("r", 8))
    ]
    return [*lines, *[f"return {name} = %{name}" for name in "pqr"]]


def module(
    body: Sequence[str], weights: Sequence[str] = ("w : f32[12,5]",), more: str = ""
) -> Module:
    """A program of x f32[2,3,5], whose outputs are not declared: nothing here asks."""
    outputs = [line.split() for line in body if line.startswith("return")]
    types = {line.split(" = ")[0]: line.rpartition(" : ")[2] for line in body}
    lines = ["module @m level=logical {", "  input %x : f32[2,3,5]"]
    lines += [f"  weight %{weight}" for weight in weights]
    lines += [f"  output %{words[1]} : {types[words[3]]}" for words in outputs]
    lines += ["}", "", "func @f phase=decode {", "  arg %x : f32[2,3,5]"]
    lines += [f"  arg %{weight}" for weight in weights]
    lines += [*[f"  {line}" for line in body], "}", "", more]
    return parse("\n".join(lines))


def dots(item: Module) -> list[str]:
    """Type of each product's weight and of its result."""
    return [
        f"{op.operands[1].type.text} -> {op.result.type.text}"
        for function in item.programs()
        for op in function.ops
        if op.name == "dot_general"
    ]


def same_numbers(before: Module, after: Module) -> None:
    random = np.random.default_rng(0)
    function = before.function("f")
    given = {value.name or "": random_array(random, value.type) for value in function.args}
    wanted = evaluate(function, given, MEANING)
    ours = evaluate(after.function("f"), given, MEANING)
    assert list(ours) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-12, atol=1e-12)


FUSED = {
    "side by side": ([DOT, *thirds("y")], ("w : f32[12,5]",)),
    "input features first": (
        [f"%y = dot_general(%x, %w) {COLUMNS} : f32[2,3,12]", *thirds("y")],
        ("w : f32[5,12]",),
    ),
    "with a bias": (
        [
            DOT,
            "%s = broadcast_in_dim(%b) shape=[2,3,12] dimensions=[2] : f32[2,3,12]",
            "%z = add(%s, %y) : f32[2,3,12]",
            *thirds("z"),
        ],
        ("w : f32[12,5]", "b : f32[12]"),
    ),
    "with a scale, a conversion and a bias": (
        [
            DOT,
            "%s = broadcast_in_dim(%a) shape=[2,3,12] dimensions=[2] : f32[2,3,12]",
            "%t = multiply(%y, %s) : f32[2,3,12]",
            "%c = convert(%t) dtype=f64 : f64[2,3,12]",
            "%d = convert(%b) dtype=f64 : f64[12]",
            "%u = broadcast_in_dim(%d) shape=[2,3,12] dimensions=[2] : f64[2,3,12]",
            "%z = add(%c, %u) : f64[2,3,12]",
            *thirds("z", "f64"),
        ],
        ("w : f32[12,5]", "a : f32[12]", "b : f32[12]"),
    ),
    "head by head": (
        [
            DOT,
            "%s = broadcast_in_dim(%b) shape=[2,3,12] dimensions=[2] : f32[2,3,12]",
            "%z = add(%y, %s) : f32[2,3,12]",
            "%h = reshape(%z) shape=[2,3,2,3,2] : f32[2,3,2,3,2]",
            *[
                f"%{name} = slice(%h) start_indices=[0,0,0,{at},0] limit_indices=[2,3,2,{at + 1},2]"
                " : f32[2,3,2,1,2]"
                for at, name in enumerate("pqr")
            ],
            "%k = reshape(%q) shape=[2,3,2,2] : f32[2,3,2,2]",
            "return p = %p",
            "return k = %k",
            "return r = %r",
        ],
        ("w : f32[12,5]", "b : f32[12]"),
    ),
    "within a head": (
        [
            f"%y = dot_general(%x, %w) {COLUMNS} : f32[2,3,12]",
            "%h = reshape(%y) shape=[2,3,2,6] : f32[2,3,2,6]",
            *[
                f"%{name} = slice(%h) start_indices=[0,0,0,{at}] limit_indices=[2,3,2,{at + 2}]"
                " : f32[2,3,2,2]"
                for at, name in zip((0, 2, 4), "pqr", strict=True)
            ],
            *[f"return {name} = %{name}" for name in "pqr"],
        ],
        ("w : f32[5,12]",),
    ),
    "every other feature": (
        [
            DOT,
            *[
                f"%{name} = slice(%y) start_indices=[0,0,{at}] limit_indices=[2,3,12] "
                "strides=[1,1,2] : f32[2,3,6]"
                for at, name in enumerate("pq")
            ],
            "return p = %p",
            "return q = %q",
        ],
        ("w : f32[12,5]",),
    ),
    "a part that is all anybody wants": (
        [DOT, *thirds("y")[1:2], "return q = %q"],
        ("w : f32[12,5]",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_what_is_fused_comes_apart(name: str):
    body, weights = FUSED[name]
    before, after = module(body, weights), module(body, weights)
    run_pipeline(after, [UnfuseProjections()])
    same_numbers(before, after)
    names = [op.name for op in after.function("f").ops]
    results = [op.result for op in after.function("f").ops if op.name == "dot_general"]
    outputs = len(before.function("f").outputs)
    assert len(results) == outputs
    # Every product is a plain one, and nothing of the fused one is left.
    function = after.function("f")
    assert all(value.type.rank == 3 for value in results)
    assert all(value.users or function.returns(value) for value in results)
    assert names.count("dot_general") == outputs
    assert "f32[2,3,12]" not in {op.result.type.text for op in after.function("f").ops}
    prepared = PreparedValues(after, function, {})
    cut = [op.operands[0] for op in function.ops if op.name == "slice"]
    assert cut
    assert all(map(prepared.of_weights, cut))


def test_fused_again_the_weight_is_the_checkpoint_s_own():
    body, weights = FUSED["with a bias"]
    item = module(body, weights)
    run_pipeline(item, [UnfuseProjections(), FuseProjections()])
    (op,) = [op for op in item.function("f").ops if op.name == "dot_general"]
    assert op.operands[1].name == "w"
    (spread,) = [op for op in item.function("f").ops if op.name == "broadcast_in_dim"]
    assert spread.operands[0].name == "b"


WHOLE = "return y = %y"
NOT_FUSED: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "given back whole": ([DOT, *thirds("y"), WHOLE], ("w : f32[12,5]",)),
    "read whole": ([DOT, "%n = negate(%y) : f32[2,3,12]", *thirds("y")], ("w : f32[12,5]",)),
    "read in another shape": (
        [DOT, "%n = reshape(%y) shape=[2,3,3,4] : f32[2,3,3,4]", *thirds("y")],
        ("w : f32[12,5]",),
    ),
    "rows are cut": (
        [
            DOT,
            "%p = slice(%y) start_indices=[0,1,0] limit_indices=[2,3,12] : f32[2,2,12]",
            "return p = %p",
        ],
        ("w : f32[12,5]",),
    ),
    "rows become features": (
        [
            DOT,
            "%h = reshape(%y) shape=[6,12] : f32[6,12]",
            "%p = slice(%h) start_indices=[0,0] limit_indices=[6,3] : f32[6,3]",
            "return p = %p",
        ],
        ("w : f32[12,5]",),
    ),
    "the slices overlap": (
        [
            DOT,
            *thirds("y")[:2],
            "%o = slice(%y) start_indices=[0,0,2] limit_indices=[2,3,12] : f32[2,3,10]",
            *[f"return {name} = %{name}" for name in "pqo"],
        ],
        ("w : f32[12,5]",),
    ),
    "not a weight": (
        [
            "%v = slice(%x) start_indices=[0,0,0] limit_indices=[1,3,5] : f32[1,3,5]",
            "%u = reshape(%v) shape=[3,5] : f32[3,5]",
            f"%y = dot_general(%x, %u) {ROWS} : f32[2,3,3]",
            "%p = slice(%y) start_indices=[0,0,0] limit_indices=[2,3,2] : f32[2,3,2]",
            "return p = %p",
        ],
        (),
    ),
    "no matrix": (
        [
            f"%y = dot_general(%x, %w) {COLUMNS} : f32[2,3,4,3]",
            "%p = slice(%y) start_indices=[0,0,0,0] limit_indices=[2,3,4,2] : f32[2,3,4,2]",
            "return p = %p",
        ],
        ("w : f32[5,4,3]",),
    ),
    "a batch": (
        [
            "%y = dot_general(%x, %w) lhs_contracting_dims=[2] rhs_contracting_dims=[1] "
            "lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[2,3,4]",
            "%p = slice(%y) start_indices=[0,0,0] limit_indices=[2,3,2] : f32[2,3,2]",
            "return p = %p",
        ],
        ("w : f32[2,5,4]",),
    ),
    "the weight is read elsewhere": (
        [DOT, *thirds("y"), DOT.replace("%y", "%z"), "return z = %z"],
        ("w : f32[12,5]",),
    ),
    "no product": (
        [
            "%p = slice(%x) start_indices=[0,0,0] limit_indices=[2,3,2] : f32[2,3,2]",
            "return p = %p",
        ],
        (),
    ),
}


def misses(item: Module) -> str:
    """The nearest miss of the rule, with where it was seen."""
    journal = Journal()
    UnfuseProjections().run(item, Rewriter("unfuse-projections", journal))
    assert journal.applications == []
    miss = journal.nearest("unfuse")
    assert miss is not None
    at = miss.why.at
    return f"{miss.why.reason} (at %{at.name if at else '?'})"


def test_what_stays_as_it_is_and_why(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for name, (body, weights) in NOT_FUSED.items():
        shown.append(f"{name}: {misses(module(body, weights))}")
    golden("passes/unfuse_misses.txt", "\n".join(shown) + "\n")


OTHER = """func @g phase=prefill {
  arg %x : f32[2,3,5]
  arg %w : f32[12,5]
  %y = dot_general(%x, %w) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : f32[2,3,12]
  return y = %y
}
"""


def test_programs_that_disagree_keep_one_weight():
    body = [DOT, *thirds("y")]
    text = "module @m level=logical {\n  input %x : f32[2,3,5]\n  weight %w : f32[12,5]\n"
    text += "".join(f"  output %{name} : f32[2,3,4]\n" for name in "pqr")
    text += "  output %y : f32[2,3,12]\n}\n\nfunc @f phase=decode {\n  arg %x : f32[2,3,5]\n"
    text += "  arg %w : f32[12,5]\n" + "".join(f"  {line}\n" for line in body) + "}\n\n" + OTHER
    reason = "another program of the module reads this weight otherwise (at %w)"
    assert misses(parse(text)) == reason


@pytest.mark.parametrize("name", ["gpt2", "bloom-560m"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_models_have_a_product_each_for_q_k_and_v(name: str, kind: str):
    item = build(known_shape(name), dtype(kind), mini=True)
    passes: list[Pass] = [Canonicalize(), UnfuseProjections()]
    verdicts = validate(item, passes, make_workload(item, shuffled=True))
    assert all(verdict.ok for verdict in verdicts)
    run_pipeline(item, passes)
    for function in item.programs():
        attentions = [op for op in function.ops if op.name == "attention"]
        assert len(attentions) == 2
        # Two layers of q, k, v, o, up and down, and the head.
        assert [op.name for op in function.ops].count("dot_general") == 2 * 6 + 1
        assert all(op.results[0].users or function.returns(op.result) for op in function.ops)


@pytest.mark.parametrize("name", ["gpt2", "bloom-560m"])
def test_one_rank_reads_the_weights_it_read_before(name: str):
    """In bytes; and where q, k and v lie side by side, the very tensors of the checkpoint."""
    item = build(known_shape(name), dtype("f32"), mini=True)
    own = {row.name for row in item.entries(Role.WEIGHT)}
    size = sum(row.physical.nbytes for row in item.entries(Role.WEIGHT))
    run_pipeline(item, default(CompileConfig()))
    for function in item.programs():
        rows = [item.interface[value.name or ""] for value in function.args]
        read = [row for row in rows if row.role in (Role.WEIGHT, Role.PARAM)]
        assert sum(row.physical.nbytes for row in read) == size
        fused = [row.name for row in read if row.name not in own]
        assert all("query_key_value" in name for name in fused)
        assert bool(fused) == (name != "gpt2")
