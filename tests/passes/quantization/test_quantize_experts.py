"""Quantized weights of experts: stacks of matrices, multiplied all together or chosen by number."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import Array, evaluate
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Module, Role
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.relation import Quantized
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.schemes import DTYPES, GROUP, PER_CHANNEL, PER_TENSOR, SCHEMES
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_function

# Four experts of 16 -> 24 -> 16, and eight tokens that choose two of them each.
INTERFACE = """module @experts level=canonical {
  input %x : TYPE[8,16]
  input %ids : s32[8,2]
  weight %up : TYPE[4,16,24]
  weight %down : TYPE[4,24,16]
  output %y : TYPE[8,2,16]
  output %all : TYPE[4,8,16]
}
"""
ARGS = """  arg %x : TYPE[8,16]
  arg %ids : s32[8,2]
  arg %up : TYPE[4,16,24]
  arg %down : TYPE[4,24,16]
"""
# Every expert on every token: the experts are an output of the first product, a batch of the other.
ALL = """
func @all phase=prefill {
ARGS  %h = dot_general(%x, %up) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=TYPE : TYPE[8,4,24]
  %z = dot_general(%h, %down) lhs_contracting_dims=[2] rhs_contracting_dims=[1] \
lhs_batch_dims=[1] rhs_batch_dims=[0] dtype=TYPE : TYPE[4,8,16]
  return all = %z
}
"""
# The matrices of the chosen experts alone.
CHOSEN = """
func @chosen phase=decode {
ARGS  %u = gather(%up, %ids) offset_dims=[2,3] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=2 slice_sizes=[1,16,24] : TYPE[8,2,16,24]
  %h = dot_general(%x, %u) lhs_contracting_dims=[1] rhs_contracting_dims=[2] \
lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=TYPE : TYPE[8,2,24]
  %d = gather(%down, %ids) offset_dims=[2,3] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=2 slice_sizes=[1,24,16] : TYPE[8,2,24,16]
  %y = dot_general(%h, %d) lhs_contracting_dims=[2] rhs_contracting_dims=[2] \
lhs_batch_dims=[0,1] rhs_batch_dims=[0,1] dtype=TYPE : TYPE[8,2,16]
  return y = %y
}
"""
EVERY = [(kind, scheme, 0) for kind in DTYPES for scheme in SCHEMES] + [("int4", GROUP, 8)]


def experts(*bodies: str, element: str = "f32") -> Module:
    """A module with these programs."""
    text = INTERFACE + "".join(bodies).replace("ARGS", ARGS)
    for name in ("all", "y"):
        if f"return {name} " not in text:
            text = "\n".join(line for line in text.splitlines() if f"output %{name} " not in line)
    module = parse(text.replace("TYPE", element))
    verify(module)
    return module


def lines(module: Module, name: str) -> list[str]:
    """The ops of a program."""
    text = print_function(module.function(name), locs=False).splitlines()
    return [line.strip() for line in text if line.strip().startswith("%")]


def test_each_channel_of_each_expert_has_a_scale_in_every_form():
    module = experts(ALL, CHOSEN)
    run_pipeline(module, [QuantizeWeights()])
    for name in ("all", "chosen"):
        made = [line for line in lines(module, name) if "= quantize(" in line]
        assert [line.rpartition(" : ")[2] for line in made] == [
            "s8[4,16,24], f32[4,24]",
            "s8[4,24,16], f32[4,16]",
        ]
    assert lines(module, "chosen")[1:7] == [
        "%0 = gather(%up.quantized, %ids) offset_dims=[2,3] collapsed_slice_dims=[0] "
        "start_index_map=[0] index_vector_dim=2 slice_sizes=[1,16,24] : s8[8,2,16,24]",
        "%1 = convert(%0) dtype=f32 : f32[8,2,16,24]",
        "%2 = dot_general(%x, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[2] "
        "lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[8,2,24]",
        "%3 = gather(%up.scale, %ids) offset_dims=[2] collapsed_slice_dims=[0] "
        "start_index_map=[0] index_vector_dim=2 slice_sizes=[1,24] : f32[8,2,24]",
        "%4 = broadcast_in_dim(%3) shape=[8,2,24] dimensions=[0,1,2] : f32[8,2,24]",
        "%h = multiply(%2, %4) : f32[8,2,24]",
    ]


def test_a_tensor_is_that_of_one_expert():
    # As NxD Inference has it: experts of unlike sizes do not share a scale.
    module = experts(ALL, CHOSEN)
    run_pipeline(module, [QuantizeWeights(scheme=PER_TENSOR)])
    assert [line for line in lines(module, "all") if "scale)" in line] == [
        "%2 = broadcast_in_dim(%up.scale) shape=[8,4,24] dimensions=[1] : f32[8,4,24]",
        "%5 = broadcast_in_dim(%down.scale) shape=[4,8,16] dimensions=[0] : f32[4,8,16]",
    ]
    assert [
        line.rpartition(" : ")[2] for line in lines(module, "chosen") if "quantize" in line
    ] == [
        "s8[4,16,24], f32[4]",
        "s8[8,2,16,24]",
        "s8[4,24,16], f32[4]",
        "s8[8,2,24,16]",
    ]
    chosen = [line for line in lines(module, "chosen") if "gather(%up.scale" in line]
    assert chosen == [
        "%3 = gather(%up.scale, %ids) offset_dims=[] collapsed_slice_dims=[0] start_index_map=[0] "
        "index_vector_dim=2 slice_sizes=[1] : f32[8,2]"
    ]


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize(("kind", "scheme", "size"), EVERY)
def test_every_form_keeps_its_meaning(kind: str, scheme: str, size: int, element: str):
    module = experts(ALL, CHOSEN, element=element)
    item = QuantizeWeights(kind, scheme, (), size)
    verdicts = validate(module, [item], make_workload(module, seed=1))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    assert all(verdict.rounding.relative > 1e-3 for verdict in verdicts)


@pytest.mark.parametrize(("kind", "scheme", "size"), EVERY)
def test_the_recorded_relation_names_the_dimensions_of_scales(kind: str, scheme: str, size: int):
    module, journal = experts(ALL, CHOSEN), Journal()
    run_pipeline(module, [QuantizeWeights(kind, scheme, (), size)], journal=journal)
    made = [item for item in journal.applications if item.rule == "quantize-product"]
    found = [relation for item in made for *_, relation in item.replaced]
    dims = [relation.dims for relation in found if isinstance(relation, Quantized)]
    wanted = {"down": {PER_TENSOR: (0,), PER_CHANNEL: (0, 2)}}["down"]
    assert dims == [wanted[scheme]] * 4 if scheme != GROUP else dims == []


def test_programs_store_one_form():
    module = experts(ALL, CHOSEN)
    run_pipeline(module, parse_pipeline("quantize-weights,lift-weights"))
    rows = {row.name: row.physical.text for row in module.entries(Role.PARAM)}
    assert rows == {
        "up.quantized": "s8[4,16,24]",
        "up.scale": "f32[4,24]",
        "down.quantized": "s8[4,24,16]",
        "down.scale": "f32[4,16]",
    }
    # Nothing reads the floats any more.
    assert all(module.function(name).arg("up") is None for name in ("all", "chosen"))


CHOOSING = """module @m level=canonical {
  input %x : f32[3,2,16]
  input %i : s32[3]
  weight %w : f32[4,24,16]
  output %y : OUT
}

func @f phase=decode {
  arg %x : f32[3,2,16]
  arg %i : s32[3]
  arg %w : f32[4,24,16]
  %t = CHOICE
  %y = dot_general(%x, %t) PAIRS dtype=f32 : OUT
  return y = %y
}
"""
TAKE = "take(%w, %i) dimension=0 block=1 : f32[3,24,16]"
SLICES = (
    "gather(%w, %i) offset_dims=[1,2] collapsed_slice_dims=[0] start_index_map=[0] "
    "index_vector_dim=1 slice_sizes=[1,20,16] : f32[3,20,16]"
)
BATCHED = "lhs_contracting_dims=[2] rhs_contracting_dims=[2] lhs_batch_dims=[0] rhs_batch_dims=[0]"
SUMMED = "lhs_contracting_dims=[0,2] rhs_contracting_dims=[0,2]"


def choosing(choice: str, pairs: str, out: str) -> Module:
    """A product with what is chosen of one weight."""
    return parse(CHOOSING.replace("CHOICE", choice).replace("PAIRS", pairs).replace("OUT", out))


@pytest.mark.parametrize(("kind", "scheme", "size"), EVERY)
def test_take_chooses_matrices_too(kind: str, scheme: str, size: int):
    module, item = choosing(TAKE, BATCHED, "f32[3,2,24]"), QuantizeWeights(kind, scheme, (), size)
    verdicts = validate(module, [item], make_workload(module))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, [item])
    assert sum("= take(" in line for line in lines(module, "f")) == 2


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (choosing(SLICES, BATCHED, "f32[3,2,20]"), "its right operand is not made of weights"),
        (choosing(TAKE, SUMMED, "f32[2,24]"), "the numbers of the chosen rows are dimensions"),
    ],
)
def test_what_stays_says_why(module: Module, why: str):
    run_pipeline(module, [QuantizeWeights()], journal=(journal := Journal()))
    assert not journal.applications
    assert [miss.why.reason[: len(why)] for miss in journal.misses] == [why]


def test_chosen_matrices_that_something_else_reads_stay():
    text = CHOSEN.replace("  return y", "  %z = negate(%u) : TYPE[8,2,16,24]\n  return y")
    module, journal = experts(text), Journal()
    run_pipeline(module, [QuantizeWeights()], journal=journal)
    assert "the chosen matrices are read elsewhere too" in [
        miss.why.reason for miss in journal.misses
    ]
    assert sum("= quantize(" in line for line in lines(module, "chosen")) == 1


RULES = {
    "experts": "intermediate:-,up:{tp,-,-},down:{tp,-,-}",
    "columns, then rows": "up:{-,-,tp},down:{-,tp,-}",
    "rows, then columns": "intermediate:-,up:{-,tp,-},down:{-,-,tp}",
}
FORMS = {"all": ALL, "chosen": CHOSEN}


def per_rank(module: Module, item: QuantizeWeights, rules: str, tp: int) -> dict[str, str]:
    """The types of the prepared weights; every number is compared on the way."""
    text = f"shard{{tp={tp},rules=[{rules}]}},pad-to-mesh,partition,cse,lift-weights,dce"
    passes = [item, *parse_pipeline(text)]
    verdicts = validate(module, passes, make_workload(module, seed=2))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, passes)
    return {row.name: row.physical.text for row in module.entries(Role.PARAM)}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("kind", "scheme", "size"), EVERY)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tp", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.one_in(4)
def test_ranks_have_parts_of_what_is_quantized_whole(
    tp: int, form: str, kind: str, scheme: str, size: int, rules: str
):
    # Three ranks divide neither four experts nor sixteen inputs: parts are padded, or whole.
    item = QuantizeWeights(kind, scheme, (), size)
    types = per_rank(experts(FORMS[form]), item, RULES[rules], tp)
    # No weight is held as floats, in either form.
    wide = {name for name, text in types.items() if text.startswith("f32") and "scale" not in name}
    assert wide == set()


@pytest.mark.parametrize(
    ("rules", "scheme", "up", "scale"),
    [
        ("experts", PER_CHANNEL, "s8[2,16,24]", "f32[2,24]"),
        ("experts", PER_TENSOR, "s8[2,16,24]", "f32[2]"),
        ("columns, then rows", PER_CHANNEL, "s8[4,16,12]", "f32[4,12]"),
        ("columns, then rows", PER_TENSOR, "s8[4,16,12]", "f32[4]"),
    ],
)
def test_scales_are_divided_with_their_experts_and_channels(
    rules: str, scheme: str, up: str, scale: str
):
    types = per_rank(experts(ALL), QuantizeWeights(scheme=scheme), RULES[rules], 2)
    assert (types["up.quantized"], types["up.scale"]) == (up, scale)


@pytest.mark.parametrize("form", FORMS)
def test_groups_are_divided_with_their_numbers(form: str):
    item = QuantizeWeights("int4", GROUP, (), 8)
    types = per_rank(experts(FORMS[form]), item, RULES["columns, then rows"], 2)
    # Two ranks have 12 of the 24 inputs of the second product: scales in steps of 4.
    assert (types["up.quantized"], types["up.scale"]) == ("s4[4,16,12]", "f32[4,2,12]")
    assert (types["down.quantized"], types["down.scale"]) == ("s4[4,12,16]", "f32[4,3,16]")


def test_each_rank_prepares_its_own_experts():
    module = experts(ALL)
    given = make_workload(module, 0).weights
    whole = np.asarray(given["up"])
    per_rank(module, QuantizeWeights(), RULES["experts"], 2)
    facts = evaluate(module.function(WEIGHTS_GLOBAL), given)
    found: list[dict[str, Array]] = []
    for rank in range(2):
        index = {RANK: np.array([rank], np.int32)}
        found.append(
            {**facts, **evaluate(module.function(WEIGHTS_RANK), {**given, **facts, **index})}
        )
    scale = np.concatenate([made["up.scale"] for made in found])
    numbers = np.concatenate([made["up.quantized"] for made in found])
    np.testing.assert_allclose(scale, np.abs(whole).max(1) / 127, rtol=1e-6)
    np.testing.assert_array_equal(numbers, np.rint(whole / scale[:, None]).astype(np.int8))


def test_the_accelerators_format_reaches_chosen_experts():
    module = experts(CHOSEN, element="bf16")
    run_pipeline(module, parse_pipeline("quantize-weights{dtype=f8e4m3},f8-formats"))
    made = [line for line in lines(module, "chosen") if "f8e4m3" in line]
    assert made
    assert not [line for line in made if "f8e4m3fn" in line]
    verify(module)
