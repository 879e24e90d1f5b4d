"""Weight preparation leaves the programs, once, and under names that tell where it comes from."""

from __future__ import annotations

import numpy as np

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, evaluate, evaluate_ranks
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Module
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.weights.lift import LiftWeights, joined
from graphgen.text import parse, print_module
from tests.oracles.small_modules import after


def module(*body: str, weights: str = "%w : f32[4,4]", outputs: str = "%y : f32[4,4]") -> str:
    """Two programs, prefill and decode, of the same body."""
    head = ["module @m level=sharded mesh=tp:2 {", "  input %x : f32[4,4]"]
    head += [f"  weight {weight}" for weight in weights.split("; ")]
    head += [f"  output {output}" for output in outputs.split("; ")] + ["}"]
    text = "\n".join(head) + "\n"
    for phase in ("prefill", "decode"):
        args = ["arg %x : f32[4,4]", *[f"arg {weight}" for weight in weights.split("; ")]]
        inner = "\n".join(f"  {line}" for line in [*args, "arg %rank : s32[1]", *body])
        text += f"\nfunc @{phase} phase={phase} {{\n{inner}\n}}\n"
    return text


CUT = [
    "%zero = constant() value=s32[](0) : s32[]",
    "%two = constant() value=s32[](2) : s32[]",
    "%r = reshape(%rank) shape=[] : s32[]",
    "%at = multiply(%r, %two) : s32[]",
]


def lift(text: str) -> Module:
    lifted = parse(text)
    verify(lifted)
    run_pipeline(lifted, parse_pipeline("lift-weights,dce"))
    return lifted


def same(text: str, x_seed: int = 0) -> Module:
    """The lifted module, after checking that both ranks of both programs give what they gave."""
    before, lifted = parse(text), lift(text)
    random = np.random.default_rng(x_seed)
    weights: dict[str, Array] = {}
    for row in before.interface.values():
        if row.role.value in ("weight", "input"):
            weights[row.name] = random.standard_normal(row.logical.dims).astype(np.float32)
    ranks = [{**weights, RANK: np.array([rank], np.int32)} for rank in range(2)]
    shared = (
        evaluate(lifted.functions[WEIGHTS_GLOBAL], weights)
        if WEIGHTS_GLOBAL in lifted.functions
        else {}
    )
    for rank in ranks:
        made = lifted.functions.get(WEIGHTS_RANK)
        rank |= shared
        rank |= evaluate(made, rank) if made else {}
    for function in before.programs():
        ours = evaluate_ranks(lifted.function(function.name), ranks)
        for one, other in zip(evaluate_ranks(function, ranks), ours, strict=True):
            assert list(one) == list(other)
            for name in one:
                np.testing.assert_array_equal(one[name], other[name])
    return lifted


def args(module: Module, name: str) -> list[str]:
    return [value.name or "" for value in module.function(name).args]


def test_what_two_programs_prepare_alike_is_lifted_once():
    lifted = same(
        module(
            "%t = transpose(%w) permutation=[1,0] : f32[4,4]",
            "%y = add(%x, %t) : f32[4,4]",
            "return y = %y",
        )
    )
    assert list(lifted.functions) == [WEIGHTS_GLOBAL, "prefill", "decode"]
    assert [op.name for op in lifted.function(WEIGHTS_GLOBAL).ops] == ["transpose"]
    for name in ("prefill", "decode"):
        assert args(lifted, name) == ["x", "rank", "w.prepared"]
        assert [op.name for op in lifted.function(name).ops] == ["add"]
    assert lifted.interface["w.prepared"].role.value == "param"
    assert "w" in lifted.interface


def test_what_depends_on_the_rank_goes_to_the_rank_program():
    lifted = same(
        module(
            *CUT,
            "%p = dynamic_slice(%w, %at, %zero) slice_sizes=[2,4] : f32[2,4]",
            "%q = concatenate(%p, %p) dimension=0 : f32[4,4]",
            "%y = add(%x, %q) : f32[4,4]",
            "return y = %y",
        )
    )
    assert list(lifted.functions) == [WEIGHTS_RANK, "prefill", "decode"]
    assert args(lifted, WEIGHTS_RANK) == ["rank", "w"] or args(lifted, WEIGHTS_RANK) == [
        "w",
        "rank",
    ]
    assert args(lifted, "decode") == ["x", "rank", "w.prepared"]


def test_whole_tensor_facts_are_taken_before_the_cut():
    lifted = same(
        module(
            *CUT,
            "%sum = reduce(%w) dimensions=[1] kind=add : f32[4]",
            "%p = dynamic_slice(%sum, %at) slice_sizes=[2] : f32[2]",
            "%q = concatenate(%p, %p) dimension=0 : f32[4]",
            "%k = broadcast_in_dim(%q) shape=[4,4] dimensions=[0] : f32[4,4]",
            "%y = multiply(%x, %k) : f32[4,4]",
            "return y = %y",
        )
    )
    assert [op.name for op in lifted.function(WEIGHTS_GLOBAL).ops] == ["reduce"]
    assert "reduce" not in [op.name for op in lifted.function(WEIGHTS_RANK).ops]
    # The rank program reads the fact, not the tensor.
    assert "w" not in args(lifted, WEIGHTS_RANK)


def test_two_facts_of_one_tensor_have_two_names():
    lifted = same(
        module(
            *CUT,
            "%sum = reduce(%w) dimensions=[1] kind=add : f32[4]",
            "%top = reduce(%w) dimensions=[1] kind=maximum : f32[4]",
            "%p = dynamic_slice(%sum, %at) slice_sizes=[2] : f32[2]",
            "%q = dynamic_slice(%top, %at) slice_sizes=[2] : f32[2]",
            "%j = concatenate(%p, %q) dimension=0 : f32[4]",
            "%k = broadcast_in_dim(%j) shape=[4,4] dimensions=[0] : f32[4,4]",
            "%y = multiply(%x, %k) : f32[4,4]",
            "return y = %y",
        )
    )
    names = [name for name, _ in lifted.function(WEIGHTS_GLOBAL).outputs]
    assert len(set(names)) == len(names) == 2


def test_a_fact_that_is_also_a_param():
    lifted = same(
        module(
            *CUT,
            "%t = transpose(%w) permutation=[1,0] : f32[4,4]",
            "%p = dynamic_slice(%t, %at, %zero) slice_sizes=[2,4] : f32[2,4]",
            "%q = concatenate(%p, %p) dimension=0 : f32[4,4]",
            "%z = add(%x, %q) : f32[4,4]",
            "%y = multiply(%z, %t) : f32[4,4]",
            "return y = %y",
        )
    )
    assert [op.name for op in lifted.function(WEIGHTS_GLOBAL).ops] == ["transpose"]


def test_a_program_spreads_a_weight_itself():
    lifted = same(
        module(
            "%h = convert(%w) dtype=f32 : f32[4]",
            "%n = negate(%h) : f32[4]",
            "%k = broadcast_in_dim(%n) shape=[4,4] dimensions=[1] : f32[4,4]",
            "%y = multiply(%x, %k) : f32[4,4]",
            "return y = %y",
            weights="%w : f32[4]",
        )
    )
    assert lifted.interface["w.prepared"].physical.text == "f32[4]"
    assert [op.name for op in lifted.function("decode").ops] == ["broadcast_in_dim", "multiply"]


def test_a_weight_read_as_it_is_stays_a_weight():
    text = module("%y = add(%x, %w) : f32[4,4]", "return y = %y")
    lifted = same(text)
    assert list(lifted.functions) == ["prefill", "decode"]
    assert args(lifted, "decode") == ["x", "w", "rank"]
    assert print_module(lifted) == after(text, "dce")


def test_a_prepared_weight_may_be_an_output():
    lifted = same(module("%y = negate(%w) : f32[4,4]", "return y = %y"))
    assert [name for name, _ in lifted.function(WEIGHTS_GLOBAL).outputs] == ["w.prepared"]
    assert list(lifted.function("decode").ops) == []
    assert [value.name for _, value in lifted.function("decode").outputs] == ["w.prepared"]


def test_what_depends_on_the_rank_alone_stays():
    lifted = same(
        module(
            *CUT,
            "%f = convert(%at) dtype=f32 : f32[]",
            "%k = broadcast_in_dim(%f) shape=[4,4] : f32[4,4]",
            "%y = multiply(%x, %k) : f32[4,4]",
            "return y = %y",
        )
    )
    assert list(lifted.functions) == ["prefill", "decode"]
    assert args(lifted, "decode") == ["x", "rank"]


def test_params_are_named_after_what_they_are_made_of():
    lifted = same(
        module(
            "%a = negate(%w) : f32[4,4]",
            "%b = exponential(%w) : f32[4,4]",
            "%c = add(%w, %v) : f32[4,4]",
            "%d = add(%c, %u) : f32[4,4]",
            "%e = multiply(%x, %a) : f32[4,4]",
            "%f = multiply(%e, %b) : f32[4,4]",
            "%g = multiply(%f, %c) : f32[4,4]",
            "%y = multiply(%g, %d) : f32[4,4]",
            "return y = %y",
            weights="%w : f32[4,4]; %v : f32[4,4]; %u : f32[4,4]",
        )
    )
    params = [row.name for row in lifted.interface.values() if row.role.value == "param"]
    assert params == ["w.prepared", "w.prepared.2", "w-v.prepared", "w-v-u.prepared"]


def test_one_name_for_several_tensors_says_what_they_share_once():
    layer = "model.layers.0.self_attn"
    names = [f"{layer}.{part}_proj.weight" for part in "qkv"]
    assert joined(names) == f"{layer}.q_proj-k_proj-v_proj.weight"
    assert joined(["a.b", "a"]) == "a.b-a"
    assert joined([f"l.{n}.w" for n in range(9)]) == "l.0-etc-8.w"


def test_a_name_that_is_taken_is_not_taken_again():
    lifted = same(
        module(
            "%a = negate(%w) : f32[4,4]",
            "%e = multiply(%x, %a) : f32[4,4]",
            "%y = multiply(%e, %w.prepared) : f32[4,4]",
            "return y = %y",
            weights="%w : f32[4,4]; %w.prepared : f32[4,4]",
        )
    )
    assert "w.prepared.2" in lifted.interface


def test_provenance_is_kept():
    text = module(
        "%t = transpose(%w) permutation=[1,0] : f32[4,4]  # m.py:3 attn",
        "%y = add(%x, %t) : f32[4,4]",
        "return y = %y",
    )
    (op,) = lift(text).function(WEIGHTS_GLOBAL).ops
    assert repr(op.loc) == "m.py:3 attn via lift-weights"


def test_a_long_preparation_is_lifted():
    size = 20_000
    chain = ["%a0 = negate(%w) : f32[4,4]"]
    chain += [f"%a{i} = negate(%a{i - 1}) : f32[4,4]" for i in range(1, size)]
    text = (
        "module @m level=logical {\n  input %x : f32[4,4]\n  weight %w : f32[4,4]\n"
        "  output %y : f32[4,4]\n}\n\nfunc @f phase=decode {\n"
        "  arg %x : f32[4,4]\n  arg %w : f32[4,4]\n  "
        + "\n  ".join(chain)
        + f"\n  %y = add(%x, %a{size - 1}) : f32[4,4]\n  return y = %y\n}}\n"
    )
    lifted = parse(text)
    run_pipeline(lifted, [LiftWeights()])
    assert lifted.function("f").block.size == 1
    assert lifted.function("weights.global").block.size == size


def test_a_collective_stays_in_the_program():
    body = [
        *CUT,
        "%zero2 = constant() value=s32[](0) : s32[]",
        "%part = dynamic_slice(%w, %at, %zero2) slice_sizes=[2,4] : f32[2,4]",
        "%whole = all_gather(%part) dimension=0 replica_groups=[[0,1]] : f32[4,4]",
        "%y = add(%x, %whole) : f32[4,4]",
        "return y = %y",
    ]
    lifted = same(module(*body))
    assert "all_gather" not in [op.name for op in lifted.functions[WEIGHTS_RANK].block]
    assert [op.name for op in lifted.functions["decode"].block] == ["all_gather", "add"]
