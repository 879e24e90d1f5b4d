"""The op table: every op is documented, evaluated, lowered and laid out; misuse is named."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from graphgen.composites import DECOMPOSITIONS
from graphgen.errors import GraphgenError
from graphgen.eval import COLLECTIVES, COMPOSITES, NATIVE, RULES, SEVERAL
from graphgen.ir import AttrValue, Literal, attrs_of, dtype
from graphgen.ir.attrs import EMPTY
from graphgen.lowering.hlo.dialect import BY_OP as HLO_BY_OP
from graphgen.lowering.stablehlo import BY_OP
from graphgen.ops import (
    IR_STAGES,
    OPS,
    InferError,
    Trait,
    infer,
    make_attrs,
    op_def,
    ops_with,
    verify,
)
from graphgen.ops.control import CONTROL
from graphgen.ops.traits import IMPURE
from graphgen.text import parse, print_module
from graphgen.text.grammar import parse_attr, parse_type
from tests.graphgen.ops.wrong_uses import WRONG

SIMPLE = [name for name, op in OPS.items() if not op.composite]
# Layer -> op -> reason why the layer has no rule of it; every other op has one.
RUNS_FUNCTIONS = "its functions run on all ranks together, each with its own branches and trips"
OTHERS_DEFINE_IT = "its meaning is defined outside of the IR"
DECOMPOSED = "legalize decomposes it"
NOTHING_TO_SHARD = "it has no operand whose sharding could reach the result"
UNKNOWN_DIMENSIONS = "how its dimensions depend on each other is not known"
CREATED_BY_PARTITION = "partition creates it, after sharding"
COMPOSITE_OPS = ops_with(Trait.COMPOSITE)
EXTERNAL = ops_with(Trait.EXTERNAL)
EXCEPTIONS: dict[str, dict[str, str]] = {
    "inference": {},
    "evaluation": {
        **dict.fromkeys(CONTROL, RUNS_FUNCTIONS),
        **dict.fromkeys(EXTERNAL, OTHERS_DEFINE_IT),
    },
    "HLO": {
        **dict.fromkeys(COMPOSITE_OPS, DECOMPOSED),
        "constant": "its value is payload, which the computation emitter writes itself",
    },
    # One composite is an op of CHLO.
    "StableHLO": dict.fromkeys([name for name in COMPOSITE_OPS if name != "top_k"], DECOMPOSED),
    "factors": {
        "constant": NOTHING_TO_SHARD,
        **dict.fromkeys((*CONTROL, *EXTERNAL), UNKNOWN_DIMENSIONS),
        **dict.fromkeys(ops_with(Trait.COLLECTIVE), CREATED_BY_PARTITION),
    },
    "traits": {},
    "decomposition": dict.fromkeys(SIMPLE, "it is not a composite"),
}
COVERED: dict[str, set[str]] = {
    "inference": {name for name, op in OPS.items() if callable(op.infer)},
    "evaluation": {*RULES, *SEVERAL, *COLLECTIVES, *COMPOSITES},
    "HLO": set(HLO_BY_OP),
    "StableHLO": set(BY_OP),
    "factors": {name for name, op in OPS.items() if op.factor_rule is not None},
    "traits": {name for name, op in OPS.items() if op.traits},
    "decomposition": set(DECOMPOSITIONS),
}


@pytest.mark.parametrize("layer", COVERED)
def test_every_op_is_known_to_every_layer(layer: str):
    assert COVERED[layer] | set(EXCEPTIONS[layer]) == set(OPS)
    assert COVERED[layer] & set(EXCEPTIONS[layer]) == set()


def test_traits_agree_with_each_other():
    for name, op in OPS.items():
        assert op.has(Trait.PURE) == op.traits.isdisjoint(IMPURE), name
        if op.has(Trait.COMMUTATIVE):
            assert len(op.operands) == 2, name
        for item in op.linear:
            assert all(index < len(op.operands) for index in item.operands), name
        if op.updates is not None:
            assert op.has(Trait.DATA_MOVEMENT), name


@pytest.mark.parametrize("name", ops_with(Trait.COMMUTATIVE))
def test_commutative_ops_commute(name: str):
    left, right = np.array([3, 5, 250], np.uint8), np.array([7, 0, 9], np.uint8)
    one, other = (np.asarray(RULES[name](NATIVE, EMPTY, x)) for x in ([left, right], [right, left]))
    assert (one == other).all()


@pytest.mark.parametrize("name", [n for n in ops_with(Trait.FINITE_AT_ZERO) if n in RULES])
def test_ops_are_finite_at_zero(name: str):
    if name in ("divide", "bitcast_convert", "convert"):
        # Of a divisor that is not 0; or with attributes, which leave 0 what it is.
        return
    zero = np.zeros(2, bool if name == "and" else np.float32)
    operands = [zero] * len(OPS[name].operands)
    if name == "select":
        operands[0] = zero > 0
    some = {"exponent_bits": 8, "mantissa_bits": 7, "direction": "LT"}
    attrs = attrs_of({attr.name: some[attr.name] for attr in OPS[name].attrs if attr.name in some})
    assert np.isfinite(np.asarray(RULES[name](NATIVE, attrs, operands))).all()


def test_only_collectives_are_illegal_before_partition():
    assert [name for name, op in OPS.items() if op.collective] == list(COLLECTIVES)
    assert list(IR_STAGES) == ["logical", "canonical", "sharded", "target"]


# Types of the operands in each op's example, in order.
EXAMPLE_OPERANDS = {
    " ".join(ops_with(Trait.ELEMENTWISE)): "f32[B,4]",
    "add subtract multiply divide remainder power maximum minimum atan2 compare complex": (
        "f32[B,4] f32[B,4]"
    ),
    "and or xor": "pred[B] pred[B]",
    "not": "pred[B]",
    "shift_left shift_right_logical shift_right_arithmetic": "s32[B] s32[B]",
    "popcnt count_leading_zeros": "s32[B]",
    "call custom_call hlo.opaque": "f32[B,4]",
    "while": "s32[] f32[B,4]",
    "conditional": "pred[] f32[B,4] f32[B,4]",
    "reverse": "f32[B,4]",
    "clamp": "f32[] f32[B,4] f32[]",
    "silu gelu": "f32[B,S,4]",
    "select": "pred[B,4] f32[B,4] f32[B,4]",
    "bitcast_convert": "bf16[B,4]",
    "constant iota": "",
    "broadcast_in_dim": "f32[4]",
    "reshape": "f32[B,S,576]",
    "transpose": "f32[B,S,9,64]",
    "slice": "f32[B,4]",
    "concatenate": "f32[B,4] f32[B,4]",
    "pad": "f32[1,4] f32[]",
    "dot_general": "f32[B,S,8] f32[16,8]",
    "convolution": "f32[B,S,2] f32[3,2,4]",
    "reduce_by": "f32[B,4] s32[B,4] f32[] s32[]",
    "sort_by": "f32[B,4] s32[B,4]",
    "map": "f32[B,4] f32[B,4]",
    "reduce_window_by": "f32[B,4] s32[B,4] f32[] s32[]",
    "scatter_by": "f32[8,4] s32[8,4] s32[B,1] f32[B,4] s32[B,4]",
    "reduce_window": "f32[B,4] f32[]",
    "select_and_scatter": "f32[B,4] f32[B,2] f32[]",
    "triangular_solve": "f32[B,4,4] f32[B,4,2]",
    "cholesky": "f32[B,4,4]",
    "fft": "f32[B,8]",
    "rng_bit_generator": "u64[2]",
    "rng": "f32[] f32[]",
    "reduce": "f32[B,4]",
    "sort": "f32[B,4] s32[B,4]",
    "top_k": "f32[B,4]",
    "gather": "f32[8,4] s32[B]",
    "take": "f32[B,8] s32[3]",
    "scatter": "f32[8,4] s32[B,1] f32[B,4]",
    "dynamic_slice": "f32[8,4] s32[] s32[]",
    "dynamic_update_slice": "f32[8,4] f32[1,4] s32[] s32[]",
    "all_reduce all_gather reduce_scatter all_to_all collective_permute": "f32[B,4]",
    "embedding": "f32[16,4] s32[B,S]",
    "rms_norm rms_norm_quantize": "f32[B,S,4] f32[4]",
    "layer_norm": "f32[B,S,4] f32[4] f32[4]",
    "rope_table key_distance": "s32[B,S]",
    "rope": "f32[B,S,2,4] f32[B,S,2] f32[B,S,2]",
    "key_positions": "s32[B]",
    "attention_mask tree_positions": "s32[B,S] s32[B,C]",
    "tree_slots": "s32[B,S]",
    "tree_mask": "s32[B,S] s32[B,C] s32[B,S,S]",
    "kv_move": "f32[R,M,2,4] s32[B] s32[B,S] s32[B] s32[B,S]",
    "cache_read": "f32[R,M,2,4] s32[B]",
    "kv_update": "f32[R,M,2,4] f32[B,S,2,4] s32[B] s32[B,S]",
    "attention attention_part": "f32[B,S,4,8] f32[B,C,2,8] f32[B,C,2,8] pred[B,S,C]",
    "last_token": "f32[B,S,4] s32[B,S] s32[B]",
    "quantize": "f32[8,4]",
    "dequantize": "s8[8,8] f32[8,2]",
    "quantize_rows": "f32[B,S,2,4]",
    "dequantize_rows": "u8[B,S,2,8]",
    "experts": "f32[B,S,8] s32[B,S,2] f32[B,S,2] f32[4,12,8] f32[4,12,8] f32[4,8,12]",
    "accept": "s32[B,2] s32[B] s32[B,3,4] f32[B,3,4] s32[B,2,5] f32[B,2,5] f32[B,3,2]",
}


def operand_types(name: str) -> list[str]:
    found = [types for names, types in EXAMPLE_OPERANDS.items() if name in names.split()]
    return found[-1].split()


def example(name: str) -> str:
    """The line behind ``Example:`` in an op's documentation."""
    _, _, text = OPS[name].doc.partition("Example:")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, f"{name}: one example line, found {lines}"
    return lines[0]


# What the examples of `call`, `while` and `conditional` run.
RUN = {
    "layers less more": ["  arg %x : f32[B,4]", "  return y = %x"],
    "larger": [
        "  arg %a : f32[]",
        "  arg %i : s32[]",
        "  arg %b : f32[]",
        "  arg %j : s32[]",
        "  return a = %a",
        "  return i = %i",
    ],
    "mean": ["  arg %a : f32[]", "  arg %b : f32[]", "  return m = %a"],
    "before": [
        "  arg %a : f32[]",
        "  arg %b : f32[]",
        "  arg %i : s32[]",
        "  arg %j : s32[]",
        "  %t = compare(%a, %b) direction=LT : pred[]",
        "  return t = %t",
    ],
    "below": [
        "  arg %i : s32[]",
        "  arg %x : f32[B,4]",
        "  %t = compare(%i, %i) direction=LT : pred[]",
        "  return t = %t",
    ],
    "step": ["  arg %i : s32[]", "  arg %x : f32[B,4]", "  return i = %i", "  return x = %x"],
}


@pytest.mark.parametrize("name", OPS)
def test_the_example_is_a_program(name: str):
    line = example(name)
    match = re.match(rf"(%[\w, %]+) = {name}\(([^)]*)\)", line)
    assert match, f"{line} is not a use of {name}"
    names = list(filter(None, match[2].split(", ")))
    types = operand_types(name)
    args = [f"  arg {operand} : {type_}" for operand, type_ in zip(names, types, strict=True)]
    results = match[1].split(", ")
    returns = [f"  return r{index} = {result}" for index, result in enumerate(results)]
    body = [*args, f"  {line}", *returns]
    run = [
        (f"func @{each} {{\n" + "\n".join(lines) + "\n}\n")
        for names, lines in RUN.items()
        for each in names.split()
        if re.search(rf"\b{each}\b", line) and name in CONTROL
    ]
    text = "\n".join(["module @m level=sharded {", "}", "", *run, "func @f {", *body, "}", ""])
    module = parse(text)
    verify(module)
    assert print_module(module) == text


@pytest.mark.parametrize("name", OPS)
def test_the_page_of_an_op_says_what_it_does(name: str):
    head = OPS[name].doc.splitlines()[0]
    assert head.endswith((".", ":", ";", ","))
    assert len(head) > 10


def wrong(use: str) -> str:
    """The message for a use such as ``add f32[2] s32[2] direction=EQ``."""
    name, *words = use.split()
    definition = op_def(name)
    known = {attr.name: attr for attr in definition.attrs}
    pairs = (word.partition("=") for word in words if "=" in word)
    given = {key: value for key, _, value in pairs}
    types = tuple(parse_type(word) for word in words if "=" not in word)
    attrs = make_attrs(name, {key: parse_attr(known[key], text) for key, text in given.items()})
    with pytest.raises(InferError) as caught:
        infer(name, types, attrs)
    at = "" if caught.value.operand is None else f" (operand {caught.value.operand})"
    return f"{name}: {caught.value}{at}"


def test_wrong_operands_are_named(golden: Callable[[str, str], None]):
    uses = WRONG.strip().splitlines()
    assert {use.split()[0] for use in uses} == set(OPS)
    golden("graphgen/infer_errors.txt", "\n\n".join(f"{use}\n    {wrong(use)}" for use in uses))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("add", {"kind": "x"}, "add has no attribute 'kind'"),
        ("reduce", {"kind": "add"}, "reduce needs the attribute 'dimensions'"),
        (
            "reduce",
            {"kind": "mean", "dimensions": (0,)},
            "reduce: kind is 'mean', expected add, maximum, minimum, multiply, and, or or xor",
        ),
        (
            "reduce",
            {"kind": "add", "dimensions": 0},
            "reduce: dimensions is 0, expected a list of integers",
        ),
        (
            "reduce",
            {"kind": "add", "dimensions": (True,)},
            "reduce: dimensions is (True,), expected a list of integers",
        ),
        (
            "rms_norm",
            {"epsilon": "1"},
            "rms_norm: epsilon is '1', expected a number",
        ),
        (
            "convert",
            {"dtype": "f32"},
            "convert: dtype is 'f32', expected an element type",
        ),
        (
            "all_reduce",
            {"kind": "add", "replica_groups": (0, 1)},
            "all_reduce: replica_groups is (0, 1), expected lists of ranks",
        ),
        (
            "conditional",
            {"branches": "f"},
            "conditional: branches is 'f', expected a list of names",
        ),
    ],
)
def test_wrong_attributes_are_named(name: str, given: dict[str, object], message: str):
    with pytest.raises(GraphgenError) as caught:
        make_attrs(name, given)  # pyright: ignore[reportArgumentType]
    assert caught.value.code == "GG0104"
    assert caught.value.what == message


def test_attributes_are_read_in_their_normal_form():
    made = make_attrs("reduce", {"kind": "add", "dimensions": [0]})  # pyright: ignore[reportArgumentType]
    assert made is make_attrs("reduce", {"dimensions": (0,), "kind": "add"})
    assert repr(make_attrs("rms_norm", {"epsilon": 1})["epsilon"]) == "1.0"
    with pytest.raises(GraphgenError, match=r"dimensions is \{0\}, expected a list"):
        make_attrs("reduce", {"kind": "add", "dimensions": {0}})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("given", "help"),
    [
        ({"dimension": (0,), "kind": "add"}, "did you mean dimensions?"),
        ({"axis": (0,)}, "it has dimensions, kind"),
        ({"dimensions": (0,), "kind": "maxi"}, "did you mean maximum?"),
    ],
)
def test_nearest_names_of_attributes_and_words(given: dict[str, object], help: str):
    with pytest.raises(GraphgenError) as caught:
        make_attrs("reduce", given)  # pyright: ignore[reportArgumentType]
    assert caught.value.help == help


def test_defaults_are_filled_in():
    assert dict(make_attrs("broadcast_in_dim", {"shape": (2,)})) == {
        "shape": (2,),
        "dimensions": (),
    }
    inv_freq = Literal.of(dtype("f32"), [1.0])
    made = make_attrs("rope_table", {"inv_freq": inv_freq})
    assert made is attrs_of({"inv_freq": inv_freq, "scale": 1.0})


def test_unknown_ops_are_met_with_the_nearest_names():
    with pytest.raises(GraphgenError) as caught:
        op_def("logisitc")
    assert caught.value.code == "GG0103"
    assert caught.value.help == "did you mean logistic?"
    with pytest.raises(GraphgenError) as caught:
        op_def("qqq")
    assert caught.value.help == "see `graphgen ops`"


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("reduce_precision", {"exponent_bits": 1, "mantissa_bits": 0}),
        ("collective_permute", {"source_target_pairs": ((0, 1),)}),
    ],
)
def test_the_smallest_numbers_are_accepted(name: str, attrs: dict[str, AttrValue]):
    type_ = parse_type("f32[2]")
    assert infer(name, (type_,), make_attrs(name, attrs)) == (type_,)
