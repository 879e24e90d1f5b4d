"""Projections of one value become one product, on every rank, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, dtype
from graphgen.models import build
from graphgen.ops import verify
from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.canonical.fuse_projections import FuseProjections
from graphgen.passes.core import Pass, Rewriter, parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.validate.validate import validate
from graphgen.passes.weights.lift import LiftWeights
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_function

DOT = "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32"


def program(weights: dict[str, str], *lines: str, others: Sequence[str] = ()) -> Module:
    """A module with the input %x : f32[2,4], these weights and the program of these lines."""
    returned = [line.split()[1] for line in (*lines, *others) if line.startswith("return")]
    types: dict[str, str] = {}
    for line in (*lines, *others):
        name, _, rest = line.partition(" = ")
        types[name.removeprefix("%")] = rest.rpartition(" : ")[2]
    values = {line.split()[1]: line.split("%")[1] for line in lines if line.startswith("return")}
    values |= {line.split()[1]: line.split("%")[1] for line in others if line.startswith("return")}
    table = [
        "input %x : f32[2,4]",
        *[f"weight %{name} : {type_}" for name, type_ in weights.items()],
    ]
    table += [f"output %{name} : {types[values[name]]}" for name in dict.fromkeys(returned)]
    args = ["arg %x : f32[2,4]", *[f"arg %{name} : {type_}" for name, type_ in weights.items()]]
    text = "module @m level=canonical {\n" + "".join(f"  {row}\n" for row in table) + "}\n"
    for name, phase, body in (("f", "decode", lines), ("g", "prefill", others)):
        if body:
            inner = "".join(f"  {line}\n" for line in (*args, *body))
            text += f"\nfunc @{name} phase={phase} {{\n{inner}}}\n"
    module = parse(text)
    verify(module)
    return module


def dot(result: str, weight: str, size: int) -> str:
    return f"%{result} = dot_general(%x, %{weight}) {DOT} : f32[2,{size}]"


def fused(module: Module, pipeline: str = "fuse-projections") -> tuple[list[str], Journal]:
    """The lines of @f after the pass; every number is compared on the way."""
    passes, journal = parse_pipeline(pipeline), Journal()
    assert all(verdict.ok for verdict in validate(module, passes, make_workload(module)))
    run_pipeline(module, passes, journal=journal)
    text = print_function(module.function("f"), locs=False)
    kept = [line.strip() for line in text.splitlines()]
    return [line for line in kept if line.startswith("%")], journal


def reasons(journal: Journal) -> dict[str, str]:
    """Per product, why it was not fused."""
    found = [miss for miss in journal.misses if "dot_general" in miss.root]
    return {miss.root.split()[0]: miss.why.reason for miss in found}


QKV = {"q": "f32[6,4]", "k": "f32[3,4]", "v": "f32[3,4]"}
THREE = [dot("a", "q", 6), dot("b", "k", 3), dot("c", "v", 3)]
RETURN = ["return a = %a", "return b = %b", "return c = %c"]


def test_three_siblings_become_one_product_and_three_slices():
    lines, journal = fused(program(QKV, *THREE, *RETURN))
    assert lines == [
        "%0 = concatenate(%q, %k, %v) dimension=0 : f32[12,4]",
        f"%1 = dot_general(%x, %0) {DOT} : f32[2,12]",
        "%a = slice(%1) start_indices=[0,0] limit_indices=[2,6] : f32[2,6]",
        "%b = slice(%1) start_indices=[0,6] limit_indices=[2,9] : f32[2,3]",
        "%c = slice(%1) start_indices=[0,9] limit_indices=[2,12] : f32[2,3]",
    ]
    assert [entry.rule for entry in journal.applications] == ["fuse-siblings"] * 3


def test_weights_kept_as_inputs_by_outputs_are_joined_along_their_last_dimension():
    flipped = DOT.replace("rhs_contracting_dims=[1]", "rhs_contracting_dims=[0]")
    lines, _ = fused(
        program(
            {"q": "f32[4,6]", "k": "f32[4,3]"},
            f"%a = dot_general(%x, %q) {flipped} : f32[2,6]",
            f"%b = dot_general(%x, %k) {flipped} : f32[2,3]",
            *RETURN[:2],
        )
    )
    assert lines[0] == "%0 = concatenate(%q, %k) dimension=1 : f32[4,9]"


def biased(name: str, product: str, bias: str, size: int, op: str = "add") -> list[str]:
    return [
        f"%{name}.wide = broadcast_in_dim(%{bias}) shape=[2,{size}] dimensions=[1] : f32[2,{size}]",
        f"%{name} = {op}(%{product}, %{name}.wide) : f32[2,{size}]",
    ]


def test_scales_and_biases_that_all_siblings_have_are_fused_too():
    lines, _ = fused(
        program(
            {**QKV, "s": "f32[6]", "t": "f32[3]", "d": "f32[6]", "e": "f32[3]"},
            dot("p", "q", 6),
            *biased("m", "p", "s", 6, "multiply"),
            *biased("a", "m", "d", 6),
            dot("r", "k", 3),
            *biased("n", "r", "t", 3, "multiply"),
            *biased("b", "n", "e", 3),
            *RETURN[:2],
        )
    )
    assert lines == [
        "%0 = concatenate(%q, %k) dimension=0 : f32[9,4]",
        f"%1 = dot_general(%x, %0) {DOT} : f32[2,9]",
        "%2 = concatenate(%s, %t) dimension=0 : f32[9]",
        "%3 = broadcast_in_dim(%2) shape=[2,9] dimensions=[1] : f32[2,9]",
        "%4 = multiply(%1, %3) : f32[2,9]",
        "%5 = concatenate(%d, %e) dimension=0 : f32[9]",
        "%6 = broadcast_in_dim(%5) shape=[2,9] dimensions=[1] : f32[2,9]",
        "%7 = add(%4, %6) : f32[2,9]",
        "%a = slice(%7) start_indices=[0,0] limit_indices=[2,6] : f32[2,6]",
        "%b = slice(%7) start_indices=[0,6] limit_indices=[2,9] : f32[2,3]",
    ]


def test_a_bias_that_one_sibling_lacks_stays_behind_the_slices():
    lines, _ = fused(
        program(
            {**QKV, "d": "f32[6]"},
            dot("p", "q", 6),
            *biased("a", "p", "d", 6),
            dot("b", "k", 3),
            *RETURN[:2],
        )
    )
    assert lines == [
        "%0 = concatenate(%q, %k) dimension=0 : f32[9,4]",
        f"%1 = dot_general(%x, %0) {DOT} : f32[2,9]",
        "%p = slice(%1) start_indices=[0,0] limit_indices=[2,6] : f32[2,6]",
        "%a.wide = broadcast_in_dim(%d) shape=[2,6] dimensions=[1] : f32[2,6]",
        "%a = add(%p, %a.wide) : f32[2,6]",
        "%b = slice(%1) start_indices=[0,6] limit_indices=[2,9] : f32[2,3]",
    ]


def test_weights_made_after_the_first_sibling_are_moved_before_it():
    lines, journal = fused(
        program(
            {"q": "f32[6,4]", "k": "f32[4,3]"},
            dot("a", "q", 6),
            "%n = negate(%k) : f32[4,3]",
            "%t = transpose(%n) permutation=[1,0] : f32[3,4]",
            dot("b", "t", 3),
            *RETURN[:2],
        )
    )
    assert lines[:3] == [
        "%n = negate(%k) : f32[4,3]",
        "%t = transpose(%n) permutation=[1,0] : f32[3,4]",
        "%0 = concatenate(%q, %t) dimension=0 : f32[9,4]",
    ]
    # Moving is part of fusing: it is recorded with the rewrite it was done for.
    first, second = journal.applications[:2]
    assert (first.rule, second.rule) == ("fuse-siblings", "fuse-siblings")
    assert [old.name for old, _, _ in first.replaced] == ["n", "t", "a"]


def test_products_of_which_some_are_rounded_are_fused_unrounded():
    module = parse(
        f"""\
module @m level=canonical {{
  input %x : bf16[2,4]
  weight %q : bf16[6,4]
  weight %k : bf16[3,4]
  output %a : f32[2,6]
  output %b : bf16[2,3]
}}

func @f phase=decode {{
  arg %x : bf16[2,4]
  arg %q : bf16[6,4]
  arg %k : bf16[3,4]
  %a = dot_general(%x, %q) {DOT} : f32[2,6]
  %b = dot_general(%x, %k) {DOT.replace("f32", "bf16")} : bf16[2,3]
  return a = %a
  return b = %b
}}
"""
    )
    lines, _ = fused(module)
    assert lines[1:] == [
        f"%1 = dot_general(%x, %0) {DOT} : f32[2,9]",
        "%a = slice(%1) start_indices=[0,0] limit_indices=[2,6] : f32[2,6]",
        "%2 = slice(%1) start_indices=[0,6] limit_indices=[2,9] : f32[2,3]",
        "%b = convert(%2) dtype=bf16 : bf16[2,3]",
    ]


def test_a_lone_product_stays():
    module = program({"q": "f32[6,4]"}, dot("a", "q", 6), "return a = %a")
    _, journal = fused(module)
    why = "1 product of this value with a weight, and 2 are worth fusing"
    assert reasons(journal) == {"%a": why}
    assert journal.misses[0].why.at is module.function("f").arg("x")


def test_min_siblings_is_heeded():
    two = program(QKV, *THREE[:2], *RETURN[:2])
    _, journal = fused(two, "fuse-projections{min_siblings=3}")
    assert set(reasons(journal).values()) == {
        "2 products of this value with a weight, and 3 are worth fusing"
    }
    with pytest.raises(GraphgenError, match="min_siblings=1 must be at least 2"):
        run_pipeline(two, [FuseProjections(min_siblings=1)])


def test_a_product_of_two_activations_stays():
    lines = [
        "%n = negate(%x) : f32[2,4]",
        f"%a = dot_general(%x, %n) {DOT} : f32[2,2]",
        f"%b = dot_general(%x, %n) {DOT} : f32[2,2]",
    ]
    _, journal = fused(program({}, *lines, *RETURN[:2]))
    assert set(reasons(journal).values()) == {"its right operand is not made of weights alone"}


def test_a_product_of_weights_alone_stays():
    body = [
        f"%p = dot_general(%q, %k) {DOT} : f32[6,3]",
        f"%r = dot_general(%q, %v) {DOT} : f32[6,3]",
        "return p = %p",
        "return r = %r",
    ]
    _, journal = fused(program(QKV, *body))
    assert set(reasons(journal).values()) == {"its left operand is made of weights itself"}


def test_weights_with_two_output_dimensions_stay():
    body = [
        f"%{name} = dot_general(%x, %{weight}) lhs_contracting_dims=[1] rhs_contracting_dims=[0] "
        "dtype=f32 : f32[2,3,5]"
        for name, weight in (("a", "q"), ("b", "k"))
    ]
    _, journal = fused(program({"q": "f32[4,3,5]", "k": "f32[4,3,5]"}, *body, *RETURN[:2]))
    assert set(reasons(journal).values()) == {"the weight has 2 output dimensions, not 1"}


def test_batched_products_stay():
    batch = (
        "lhs_contracting_dims=[1] rhs_contracting_dims=[1] lhs_batch_dims=[0] rhs_batch_dims=[0]"
    )
    body = [
        f"%{name} = dot_general(%x, %{weight}) {batch} dtype=f32 : f32[2,3]"
        for name, weight in (("a", "q"), ("b", "k"))
    ]
    _, journal = fused(program({"q": "f32[2,4,3]", "k": "f32[2,4,3]"}, *body, *RETURN[:2]))
    assert set(reasons(journal).values()) == {"it has batch dimensions"}


TWICE = "the weight is read elsewhere too, and would be kept twice"


def test_a_weight_that_something_else_reads_is_not_copied():
    ids = "%i = convert(%x) dtype=s32 : s32[2,4]"
    row = "%e = embedding(%q, %i) : f32[2,4,4]"
    _, journal = fused(program(QKV, ids, row, *THREE, *RETURN, "return e = %e"))
    # The other two are still worth it.
    assert reasons(journal)["%a"] == TWICE
    assert [entry.rule for entry in journal.applications] == ["fuse-siblings"] * 2


def test_equal_preparations_are_one_weight():
    body = [
        "%s = transpose(%q) permutation=[1,0] : f32[6,4]",
        "%t = transpose(%q) permutation=[1,0] : f32[6,4]",
        dot("a", "s", 6),
        dot("b", "t", 6),
    ]
    _, journal = fused(program({"q": "f32[4,6]"}, *body, *RETURN[:2]))
    assert set(reasons(journal).values()) == {TWICE}


def test_programs_that_disagree_leave_the_weights_alone():
    # @g reads k alone: fused in @f, k would be kept twice; and without k, so would q and v.
    module = program(QKV, *THREE, *RETURN, others=[dot("b", "k", 3), "return b = %b"])
    _, journal = fused(module)
    other = "another program of the module reads these weights otherwise"
    assert reasons(journal)["%a"] == reasons(journal)["%c"] == other
    assert not journal.applications


def test_a_disagreement_spreads_from_group_to_group():
    # @f fuses q with k; @g would fuse k with v, and reads q alone.
    module = program(
        {"q": "f32[6,4]", "k": "f32[3,4]", "v": "f32[3,4]"},
        *THREE[:2],
        *RETURN[:2],
        others=[dot("b", "k", 3), dot("c", "v", 3), *RETURN[1:]],
    )
    _, journal = fused(module)
    assert not journal.applications


def test_programs_that_agree_share_one_param():
    module = program(QKV, *THREE, *RETURN, others=[*THREE, *RETURN])
    run_pipeline(module, [FuseProjections(), LiftWeights()])
    params = module.entries(Role.PARAM)
    assert [row.logical.text for row in params] == ["f32[12,4]"]
    assert [value.name for value in module.function("g").args] == ["x", params[0].name]


def test_fuel_leaves_a_program_that_is_right():
    for fuel in range(4):
        module = program(QKV, *THREE, *RETURN)
        rewriter = Rewriter("fuse-projections", fuel=fuel)
        FuseProjections().run(module, rewriter)
        verify(module)
        dots = sum(op.name == "dot_general" for op in module.function("f").block)
        # The fused one beside those that are left.
        assert dots == 3 - fuel + (fuel > 0)


def test_the_fused_product_lies_in_the_scope_of_all_siblings():
    module = mini("f32")
    run_pipeline(module, [Canonicalize(), FuseProjections()])
    scopes = {
        op.loc.scope
        for op in module.function("decode").block
        if op.name == "concatenate" and "fuse-projections" in op.loc.via
    }
    layers = ("model.layers.0", "model.layers.1")
    assert scopes == {f"{layer}.{part}" for layer in layers for part in ("self_attn", "mlp")}


SHAPE: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 67,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}


def mini(kind: str, *, biases: bool = False) -> Module:
    return build({**SHAPE, "attention_bias": biases, "mlp_bias": biases}, dtype(kind))


def pipeline(tp: int) -> list[Pass]:
    """The default pipeline up to and with lift-weights."""
    passes = default(CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), tp=tp))
    names = [item.name for item in passes]
    assert names.index("fuse-projections") < names.index("lift-weights")
    return passes[: names.index("lift-weights") + 1]


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.one_in(4)
def test_the_mini_llama_is_fused_and_computes_the_same(kind: str, tp: int, biases: bool):
    module = mini(kind, biases=biases)
    passes = [*pipeline(tp), CommonSubexpressions()]
    verdicts = validate(module, passes, make_workload(module))
    assert {verdict.pass_text: verdict.ok for verdict in verdicts if not verdict.ok} == {}
    run_pipeline(module, passes)
    local = dict.fromkeys((f.name for f in module.programs()), 0)
    for function in module.programs():
        for op in function.block:
            if op.name == "dot_general" and op.operands[1].op is None:
                local[function.name] += 1
    # Two layers of QKV, O, gate and up, down; and the head.
    assert set(local.values()) == {2 * 4 + 1}
    weights = [row.physical.dims for row in module.entries(Role.PARAM) if row.physical.rank == 2]
    # Q of 4 heads, K and V of 2, over the ranks; gate and up.
    assert weights.count((64 // tp, 32)) == 2
    assert weights.count((96 // tp, 32)) == 2


def test_the_tied_embedding_is_kept_once():
    module = mini("f32")
    run_pipeline(module, pipeline(1))
    for function in module.programs():
        assert function.arg("model.embed_tokens.weight") is not None
    assert not any("embed" in row.name for row in module.entries(Role.PARAM))


def test_the_parts_of_a_rank_lie_side_by_side():
    module = mini("f32")
    run_pipeline(module, pipeline(2))
    rank = module.function("weights.rank")
    joined = [op for op in rank.block if op.name == "concatenate"]
    assert [tuple(v.type.dims[0] for v in op.operands) for op in joined] == [
        (16, 8, 8),
        (24, 24),
    ] * 2
    assert all(v.producer("dynamic_slice") for op in joined for v in op.operands)


def test_many_siblings_are_looked_at_once_each():
    size = 4_000
    weights = {f"w{i}": "f32[1,4]" for i in range(size)}
    dots = [f"%y{i} = dot_general(%x, %w{i}) {DOT} : f32[2,1]" for i in range(size)]
    module = program(weights, *dots, f"return y = %y{size - 1}")
    journal = Journal()
    rewriter = Rewriter("fuse-projections", journal)
    FuseProjections().run(module, rewriter)
    assert rewriter.applications == size
    # One more look at the product that was made.
    assert len(journal.misses) == 1
    assert module.function("f").block.size == size + 2


def test_a_bias_that_two_siblings_share_is_not_joined():
    module = program(
        {**QKV, "d": "f32[3]"},
        dot("p", "k", 3),
        *biased("a", "p", "d", 3),
        dot("r", "v", 3),
        *biased("b", "r", "d", 3),
        *RETURN[:2],
    )
    lines, _ = fused(module)
    assert sum("add(" in line for line in lines) == 2
    assert sum("dot_general(" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("size", "dim"),
    [(1, 1), (2, 0)],
    ids=["one number for all outputs", "a number a row"],
)
def test_a_bias_that_is_not_one_number_an_output_is_not_joined(size: int, dim: int):
    spread = f"shape=[2,2] dimensions=[{dim}] : f32[2,2]"
    module = program(
        {"q": "f32[2,4]", "k": "f32[2,4]", "d": f"f32[{size}]", "e": f"f32[{size}]"},
        dot("p", "q", 2),
        f"%d.wide = broadcast_in_dim(%d) {spread}",
        "%a = add(%p, %d.wide) : f32[2,2]",
        dot("r", "k", 2),
        f"%e.wide = broadcast_in_dim(%e) {spread}",
        "%b = add(%r, %e.wide) : f32[2,2]",
        *RETURN[:2],
    )
    lines, _ = fused(module)
    assert sum("add(" in line for line in lines) == 2
    assert sum("dot_general(" in line for line in lines) == 1
