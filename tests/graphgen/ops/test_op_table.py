"""The op table: every op is documented, evaluated, lowered and laid out; misuse is named."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from graphgen.composites import DECOMPOSITIONS
from graphgen.errors import GraphgenError
from graphgen.eval import COLLECTIVES, COMPOSITES, NATIVE, RULES, SEVERAL
from graphgen.ir import Literal, attrs_of, dtype
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
    "StableHLO": {
        **dict.fromkeys(COMPOSITE_OPS, DECOMPOSED),
        "hlo.opaque": "an instruction of HLO that StableHLO has no word for",
    },
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
    attrs = attrs_of({"direction": "LT"}) if name == "compare" else EMPTY
    assert np.isfinite(np.asarray(RULES[name](NATIVE, attrs, operands))).all()


def test_only_collectives_are_illegal_before_partition():
    assert [name for name, op in OPS.items() if op.collective] == list(COLLECTIVES)
    assert list(IR_STAGES) == ["logical", "canonical", "sharded", "target"]


# Types of the operands in each op's example, in order.
EXAMPLE_OPERANDS = {
    " ".join(ops_with(Trait.ELEMENTWISE)): "f32[B,4]",
    "add subtract multiply divide remainder power maximum minimum atan2 compare": (
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
    "rms_norm": "f32[B,S,4] f32[4]",
    "layer_norm": "f32[B,S,4] f32[4] f32[4]",
    "rope_table key_distance": "s32[B,S]",
    "rope": "f32[B,S,2,4] f32[B,S,2] f32[B,S,2]",
    "attention_mask": "s32[B,S] s32[B]",
    "cache_read": "f32[R,M,2,4] s32[B]",
    "kv_update": "f32[R,M,2,4] f32[B,S,2,4] s32[B] s32[B,S]",
    "attention": "f32[B,S,4,8] f32[B,C,2,8] f32[B,C,2,8] pred[B,S,C]",
    "last_token": "f32[B,S,4] s32[B,S] s32[B]",
    "quantize": "f32[8,4]",
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
    assert match, f"{line} is no use of {name}"
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


DOT = "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32"
GATHER = "offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0]"
SCATTER = "update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0]"

# One line a mistake; every op has at least one.
WRONG = f"""
exponential s32[2]
rsqrt pred[2]
logistic s32[2]
exponential_minus_one s32[2]
reverse f32[2] dimensions=[1]
reverse f32[2,3] dimensions=[0,0]
call f32[2] to_apply=f results=[]
while condition=f body=g
while f32[2] condition= body=g
while f32[2] condition=f body=g trip_count=-2
conditional f32[] f32[2] branches=[f,g] takes=[1,0] results=[f32[2]]
conditional s32[1] branches=[f] takes=[0] results=[f32[2]]
conditional pred[] branches=[f] takes=[0] results=[f32[2]]
conditional s32[] branches=[] takes=[] results=[f32[2]]
conditional s32[] branches=[f,g] takes=[0] results=[f32[2]]
conditional s32[] f32[2] branches=[f,g] takes=[1,1] results=[f32[2]]
conditional s32[] f32[2] branches=[f,g] takes=[2,-1] results=[f32[2]]
conditional s32[] branches=[f,g] takes=[0,0] results=[]
custom_call f32[2] target="x" results=[]
custom_call f32[2] target="" results=[f32[2]]
hlo.opaque f32[2] opcode="" results=[f32[2]]
hlo.opaque f32[2] opcode="x" fields="0g" results=[f32[2]]
hlo.opaque f32[2] opcode="x" regions="0a," results=[f32[2]]
hlo.opaque f32[2] opcode="x" form="(x" results=[f32[2]]
hlo.opaque f32[2] opcode="x" form="(x->x)" results=[f32[2]]
hlo.opaque f32[2] opcode="x" form="xx->x" results=[f32[2]]
custom_call f32[2] target="x" more="f" results=[f32[2]]
log u8[2]
log_plus_one pred[2]
sqrt s32[2]
cbrt s32[2]
tanh c64[2]
tan s32[2]
erf s32[2]
ceil s32[2]
floor s32[2]
round_nearest_afz s32[2]
sign u8[2]
sign pred[2]
is_finite s32[2]
reduce_precision s32[2] exponent_bits=5 mantissa_bits=10
reduce_precision f32[2] exponent_bits=0 mantissa_bits=10
reduce_precision f32[2] exponent_bits=5 mantissa_bits=-1
power pred[2] pred[2]
power f32[2] s32[2]
remainder pred[2] pred[2]
atan2 s32[2] s32[2]
atan2 f32[2] f32[3]
not f32[2]
or f32[2] f32[2]
xor s32[2] s32[3]
shift_left pred[2] pred[2]
shift_right_logical f32[2] f32[2]
shift_right_arithmetic s32[2] u32[2]
popcnt pred[2]
count_leading_zeros f32[2]
cosine u8[2]
sine s32[B]
negate pred[2]
add f32[2] f32[3]
add f32[B] f32[S]
add f32[2]
add pred[2] pred[2]
subtract f32[2] bf16[2]
multiply f32[2] f32[2,1]
maximum pred[2] pred[2]
minimum f32[2] s32[2]
divide pred[2] pred[2]
divide f32[2] f32[3]
round_nearest_even s32[2]
abs u8[2]
abs pred[2]
clamp f32[3] f32[2] f32[]
clamp f32[] f32[2] bf16[]
clamp pred[] pred[2] pred[]
and f32[2] f32[2]
and pred[2] s32[2]
compare f32[2] f32[3] direction=EQ
select f32[2] f32[2] f32[2]
select pred[2] f32[2] f32[3]
select pred[3] f32[2] f32[2]
select pred[] f32[2] f32[2]
convert f32[2] f32[2] dtype=bf16
convert c64[2] dtype=f32
convert f32[2] dtype=c64
add c64[2] c64[2]
compare c64[2] c64[2] direction=EQ
iota dtype=c64 shape=[2] dimension=0
bitcast_convert u16[2] dtype=u64
bitcast_convert u16[] dtype=f32
bitcast_convert c64[2] dtype=f32
bitcast_convert pred[2] dtype=u8
constant f32[2] value=f32[](1.0)
iota dtype=s32 shape=[2,3] dimension=2
iota dtype=s32 shape=[] dimension=0
iota dtype=pred shape=[2] dimension=0
broadcast_in_dim f32[4] shape=[2,4]
broadcast_in_dim f32[4] shape=[2,3] dimensions=[1]
broadcast_in_dim f32[4] shape=[2,4] dimensions=[2]
broadcast_in_dim f32[4,4] shape=[4,4] dimensions=[0,0]
broadcast_in_dim f32[B] shape=[2,S] dimensions=[1]
reshape f32[2,3] shape=[5]
reshape f32[B,4] shape=[4,S]
transpose f32[2,3] permutation=[0]
transpose f32[2,3] permutation=[0,0]
slice f32[4] start_indices=[0,0] limit_indices=[1,1]
slice f32[4] start_indices=[3] limit_indices=[2]
slice f32[4] start_indices=[0] limit_indices=[5]
slice f32[4] start_indices=[-1] limit_indices=[2]
slice f32[4] start_indices=[0] limit_indices=[2] strides=[0]
slice f32[B] start_indices=[0] limit_indices=[S] strides=[2]
concatenate dimension=0
concatenate f32[2] f32[2] dimension=1
concatenate f32[2,3] f32[2,4] dimension=0
concatenate f32[2] s32[2] dimension=0
concatenate f32[2] f32[2,1] dimension=0
pad f32[2] f32[] low=[0,0] high=[0,0]
pad f32[2] f32[] low=[-1] high=[0]
pad f32[2] s32[] low=[1] high=[0]
pad f32[2] f32[1] low=[1] high=[0]
dot_general f32[2,3] bf16[4,3] {DOT}
dot_general f32[2,3] f32[4,5] {DOT}
dot_general f32[2,B] f32[4,S] {DOT}
dot_general pred[2,3] pred[4,3] {DOT}
dot_general f32[2,3] f32[3] {DOT}
dot_general f32[2,3] f32[4,3] lhs_contracting_dims=[1] rhs_contracting_dims=[0,1] dtype=f32
dot_general f32[2,3] f32[4,3] lhs_contracting_dims=[1,1] rhs_contracting_dims=[0,1] dtype=f32
dot_general f32[2,3] f32[4,3] {DOT} lhs_batch_dims=[0] rhs_batch_dims=[0]
dot_general f32[2,3] f32[2,3] {DOT} lhs_batch_dims=[1] rhs_batch_dims=[1]
reduce f32[2] dimensions=[1] kind=add
reduce f32[2,3] dimensions=[0,0] kind=maximum
reduce pred[2] dimensions=[0] kind=add
gather f32[8,4] f32[3] {GATHER} index_vector_dim=1 slice_sizes=[1,4]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=2 slice_sizes=[1,4]
gather f32[8,4] s32[3,2] {GATHER} index_vector_dim=1 slice_sizes=[1,4]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=1 slice_sizes=[1]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=1 slice_sizes=[2,4]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=1 slice_sizes=[1,5]
take f32[8,4] f32[3] dimension=0
take f32[8,4] s32[3,1] dimension=0
take f32[8,4] s32[3] dimension=2
take f32[8,4] s32[3] dimension=1 block=3
take f32[8,4] s32[3] dimension=1 block=0
take f32[8,B] s32[3] dimension=1
scatter f32[8,4] f32[3] f32[3,4] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3] s32[3,4] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3] f32[2,4] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3] f32[3,5] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3,2] f32[3,4] {SCATTER} index_vector_dim=1
scatter f32[8,4,2] s32[3] f32[3,4] {SCATTER} index_vector_dim=1
dynamic_slice f32[8,4] s32[] slice_sizes=[1,4]
dynamic_slice f32[8,4] s32[] f32[] slice_sizes=[1,4]
dynamic_slice f32[8,4] s32[] s32[1] slice_sizes=[1,4]
dynamic_slice f32[8,4] s32[] s32[] slice_sizes=[1,5]
dynamic_slice f32[8,4] s32[] s32[] slice_sizes=[1]
dynamic_update_slice f32[8,4] f32[1,4] s32[]
dynamic_update_slice f32[8,4] f32[4] s32[] s32[]
dynamic_update_slice f32[8,4] s32[1,4] s32[] s32[]
dynamic_update_slice f32[8,4] f32[9,4] s32[] s32[]
dynamic_update_slice f32[8,4] f32[1,4] s32[] f32[]
all_reduce f32[2] kind=add replica_groups=[]
all_reduce f32[2] kind=add replica_groups=[[0,2]]
all_reduce f32[2] kind=add replica_groups=[[0,1],[1,2]]
all_reduce pred[2] kind=maximum replica_groups=[[0,1]]
all_gather f32[2] dimension=1 replica_groups=[[0,1]]
all_gather f32[2] dimension=0 replica_groups=[[0,1],[2]]
all_gather f32[2] dimension=0 replica_groups=[[0,0]]
all_gather f32[0] dimension=0 replica_groups=[[0,1]]
reduce_scatter f32[3] kind=add dimension=0 replica_groups=[[0,1]]
reduce_scatter f32[B] kind=add dimension=0 replica_groups=[[0,1]]
reduce_scatter f32[2] kind=add dimension=2 replica_groups=[[0,1]]
reduce_scatter f32[2] kind=add dimension=0 replica_groups=[[0],[1,2]]
reduce_scatter f32[0] kind=add dimension=0 replica_groups=[[0,1]]
reduce_scatter pred[2] kind=add dimension=0 replica_groups=[[0,1]]
all_to_all f32[3,2] split_dimension=0 concat_dimension=1 replica_groups=[[0,1]]
all_to_all f32[2,2] split_dimension=0 concat_dimension=2 replica_groups=[[0,1]]
all_to_all f32[2,2] split_dimension=-1 concat_dimension=1 replica_groups=[[0,1]]
all_to_all f32[2,2] split_dimension=0 concat_dimension=1 replica_groups=[]
collective_permute f32[2] source_target_pairs=[[0,1,2]]
collective_permute f32[2] source_target_pairs=[[0,1],[0,2]]
collective_permute f32[2] source_target_pairs=[[0,2],[1,2]]
sort dimension=0
sort pred[2] dimension=0
sort f32[2] dimension=1
sort f32[2,3] s32[3] dimension=0
top_k pred[2] k=1
top_k f32[] k=0
top_k f32[2,3] k=4
top_k f32[2,3] k=-1
embedding f32[16] s32[2]
embedding f32[16,4] f32[2]
rms_norm s32[2,4] s32[4] epsilon=1e-05
rms_norm f32[] f32[] epsilon=1e-05
rms_norm bf16[2,4] s32[4] epsilon=1e-05
rms_norm f32[2,4] f32[2] epsilon=1e-05
layer_norm s32[2,4] f32[4] f32[4] epsilon=1e-05
layer_norm f32[2,4] f32[2] f32[2] epsilon=1e-05
layer_norm f32[2,4] bf16[4] f32[4] epsilon=1e-05
silu s32[2]
gelu s32[2] approximate=tanh
rope_table f32[2,3] inv_freq=f32[2](1.0,0.1)
rope_table s32[2,3] inv_freq=f32[](1.0)
rope_table s32[2,3] inv_freq=bf16[2](1.0,0.1)
rope f32[2,3,2,5] f32[2,3,3] f32[2,3,3]
rope f32[2,3,2] f32[2,3,2] f32[2,3,2]
rope f32[2,3,2,4] f32[2,3,4] f32[2,3,4]
rope bf16[2,3,2,4] bf16[2,3,2] f32[2,3,2]
rope f32[2,3,2,4] f32[2,3,2] f32[3,3,2]
rope s32[2,3,2,4] f32[2,3,2] f32[2,3,2]
attention_mask f32[2,3] s32[2] attended=8
attention_mask s32[2] s32[2] attended=8
attention_mask s32[2,3] s32[3] attended=8
attention_mask s32[2,3] s32[2] attended=8 window=-1
key_distance f32[2,3] attended=8
key_distance s32[2] attended=8
cache_read f32[2,8,2] s32[2] attended=4
cache_read f32[2,8,2,4] s32[2,1] attended=4
cache_read f32[2,8,2,4] f32[2] attended=4
cache_read f32[4,8,2,4] s32[2] attended=4 rows=in_place
cache_read f32[4,8,2,4] s32[2] attended=9
kv_update f32[4,8,2,4] f32[2,1,2,5] s32[2] s32[2,1]
kv_update f32[4,8,2,4] bf16[2,1,2,4] s32[2] s32[2,1]
kv_update f32[4,8,2,4] f32[2,1,2,4] s32[3] s32[2,1]
kv_update f32[4,8,2,4] f32[2,1,2,4] s32[2] s32[2,2]
kv_update f32[4,8,2,4] f32[2,1,2,4] s32[2] s32[2,1] rows=in_place
attention f32[2,1,4,8] f32[2,6,3,8] f32[2,6,3,8] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,4] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] bf16[2,6,2,8] bf16[2,6,2,8] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,6,1] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] f32[2,1,6] scale=0.125
attention s32[2,1,4,8] s32[2,6,2,8] s32[2,6,2,8] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[2] f32[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] f32[1,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] s32[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] f32[2,1,6] f32[4] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] scale=0.125
last_token f32[2,3] s32[2,3] s32[2]
last_token s32[2,3,4] s32[2,3] s32[2]
last_token f32[2,3,4] s32[2,4] s32[2]
last_token f32[2,3,4] s32[2,3] s32[3]
quantize s32[2,3] dtype=s8 dimensions=[1] limit=127.0
quantize f32[2,3] dtype=u8 dimensions=[1] limit=127.0
quantize f32[2,3] dtype=bf16 dimensions=[1] limit=127.0
quantize f32[2,3] dtype=s8 dimensions=[2] limit=127.0
quantize f32[2,3] dtype=s8 dimensions=[1,1] limit=127.0
quantize f32[2,3] dtype=s8 dimensions=[1] limit=128.5
quantize f32[2,3] dtype=f8e4m3fn dimensions=[1] limit=0.0
"""


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
            "reduce: attribute 'kind' is 'mean', not add | maximum | minimum",
        ),
        (
            "reduce",
            {"kind": "add", "dimensions": 0},
            "reduce: attribute 'dimensions' is 0, not a list of integers",
        ),
        (
            "reduce",
            {"kind": "add", "dimensions": (True,)},
            "reduce: attribute 'dimensions' is (True,), not a list of integers",
        ),
        (
            "rms_norm",
            {"epsilon": 1},
            "rms_norm: attribute 'epsilon' is 1, not a float",
        ),
        (
            "convert",
            {"dtype": "f32"},
            "convert: attribute 'dtype' is 'f32', not an element type",
        ),
        (
            "all_reduce",
            {"kind": "add", "replica_groups": (0, 1)},
            "all_reduce: attribute 'replica_groups' is (0, 1), not lists of ranks",
        ),
    ],
)
def test_wrong_attributes_are_named(name: str, given: dict[str, object], message: str):
    with pytest.raises(GraphgenError) as caught:
        make_attrs(name, given)  # pyright: ignore[reportArgumentType]
    assert caught.value.code == "GG0104"
    assert caught.value.what == message


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
