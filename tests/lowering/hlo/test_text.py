"""HLO text: ours is read by XLA, XLA's and Neuron's by us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape
from graphgen.lowering.hlo_text.opaque_values import CONFIG, SLICE_LISTS, parse_map, show_map
from graphgen.lowering.open import open_module
from graphgen.text import print_module
from tests.oracles import xla_hlo
from tests.oracles.hlo_corpus import modules
from tests.oracles.op_samples import BY_OP, program


def lines(module: Module) -> list[str]:
    """The ops of a module in no order, since XLA has an order of its own, without locations."""
    text = print_module(module, locs=False)
    return sorted(line for line in text.splitlines() if "meta dropped" not in line)


def come_and_go(proto: bytes) -> None:
    """XLA reads our text, and we read our text and XLA's as the protobuf."""
    wanted = lines(read_hlo(proto))
    ours = print_hlo_text(proto)
    theirs = xla_hlo.parsed(xla_hlo.from_text(ours))
    for text in (ours, theirs, xla_hlo.parsed(proto)):
        assert lines(read_hlo(parse_hlo_text(text))) == wanted


@pytest.mark.parametrize("name", BY_OP)
def test_every_op_comes_and_goes(name: str):
    module = program(BY_OP[name])
    come_and_go(emit_hlo(module, module.function("f")))


def test_the_corpus_comes_and_goes(hlo_corpus: Path):
    for name, proto in list(modules(hlo_corpus).items())[::12]:
        try:
            read_hlo(proto, name)
        except GraphgenError:
            continue
        come_and_go(proto)


# As torch's tracer and the compiler's own dumps print it.
NEURON = """
HloModule SyncTensorsGraph.30, input_output_alias={ {1}: (2, {}, must-alias) }, \
entry_computation_layout={(f32[2,3]{1,0}, s64[], f32[2,3]{1,0})->(f32[2,3]{1,0}, f32[2,3]{1,0})}

%AddComputation.9 (x.10: f32[], y.11: f32[]) -> f32[] {
  %x.10 = f32[] parameter(0)
  %y.11 = f32[] parameter(1)
  ROOT %add.12 = f32[] add(f32[] %x.10, f32[] %y.11)
}

ENTRY %SyncTensorsGraph.30 (p0.1: f32[2,3], p1.2: s64[], p2.3: f32[2,3]) -> \
(f32[2,3], f32[2,3]) {
  %p0.1 = f32[2,3]{1,0} parameter(0), frontend_attributes={neff_input_names="input0"}
  %p2.3 = f32[2,3]{1,0} parameter(2), frontend_attributes={neff_input_names="input2"}
  %p1.2 = s64[] parameter(1), frontend_attributes={neff_input_names="input1"}
  %constant.4 = f32[] constant(0), metadata={op_type="prim__Constant" op_name="prim__Constant"}
  %reduce.13 = f32[2]{0} reduce(f32[2,3]{1,0} %p0.1, f32[] %constant.4), dimensions={1}, \
to_apply=%AddComputation.9, metadata={op_type="aten__sum" \
op_name="Net[.1]/Linear[fc]/aten__sum" source_file="/torch/nn/linear.py" source_line=114}
  %all-reduce.14 = f32[2]{0} all-reduce(f32[2]{0} %reduce.13), replica_groups={{0,1},{2,3}}, \
constrain_layout=true, to_apply=%AddComputation.9, metadata={op_type="xla__cross_replica_sum"}
  %broadcast.15 = f32[2,3]{1,0} broadcast(f32[2]{0} %all-reduce.14), dimensions={0}
  %add.16 = f32[2,3]{1,0} add(f32[2,3]{1,0} %broadcast.15, f32[2,3]{1,0} %p2.3)
  ROOT %tuple.29 = (f32[2,3]{1,0}, f32[2,3]{1,0}) tuple(f32[2,3]{1,0} %broadcast.15, \
/*index=1*/f32[2,3]{1,0} %add.16), frontend_attributes={neff_output_names="output0,output1"}
}
"""


def test_the_text_of_neurons_tools():
    module = read_hlo(parse_hlo_text(NEURON))
    assert print_module(module) == "\n".join([
        "module @SyncTensorsGraph.30 level=sharded mesh=replica:4 {",
        '  meta format = "hlo"',
        "  input %input0 : f32[2,3]",
        "  input %input1 : s64[]",
        "  state %input2 : f32[2,3]",
        "  output %output0 : f32[2,3]",
        "}",
        "",
        "func @SyncTensorsGraph.30 phase=main {",
        "  arg %input0 : f32[2,3]",
        "  arg %input1 : s64[]",
        "  arg %input2 : f32[2,3]",
        "  %reduce.13 = reduce(%input0) dimensions=[1] kind=add : f32[2]"
        "  # /torch/nn/linear.py:114 Net[.1].Linear[fc].aten__sum",
        "  %all-reduce.14 = all_reduce(%reduce.13) kind=add replica_groups=[[0,1],[2,3]]"
        ' hlo.constrain_layout="true" : f32[2]',
        "  %broadcast.15 = broadcast_in_dim(%all-reduce.14) shape=[2,3] dimensions=[0] : f32[2,3]",
        "  %add.16 = add(%broadcast.15, %input2) : f32[2,3]",
        "  return output0 = %broadcast.15",
        "  return input2 = %add.16",
        "}",
        "",
    ])  # fmt: skip


def test_names_without_a_percent_sign_and_computations_without_a_signature():
    text = (
        "HloModule m\n\nENTRY e {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2] negate(a)\n}\n"
    )
    _, function = (module := read_hlo(parse_hlo_text(text))), module.programs()[0]
    np.testing.assert_array_equal(
        evaluate(function, {"a": np.ones(2, np.float32)})["output0"], [-1, -1]
    )


FRAMES = """HloModule m

FileNames
1 "one.py"
2 "two.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=3 end_column=9}
2 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=2 end_column=4}

StackFrames
1 {file_location_id=2 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  x = f32[2]{0} parameter(0)
  y = f32[2]{0} negate(x), metadata={op_name="a" stack_frame_id=1}
  ROOT z = f32[2]{0} exponential(y), metadata={op_name="b" stack_frame_id=2}
}
"""


def test_tables_of_stack_frames_give_places():
    module = read_hlo(parse_hlo_text(FRAMES))
    (function,) = module.programs()
    assert [(op.loc.file, op.loc.line) for op in function.ops] == [("one.py", 5), ("two.py", 7)]


def test_a_file_of_hlo_text_is_opened(tmp_path: Path):
    file = tmp_path / "graph.hlo"
    file.write_text(NEURON)
    assert open_module(file).meta["format"] == "hlo"


@pytest.mark.parametrize(
    "text",
    ["f32[2,3]{1,0}", "s32[]", "(f32[2]{0}, (s32[], pred[3]{0}))", "()", "bf16[<=4,2]{1,0}"],
)
def test_shapes_print_as_they_were(text: str):
    assert parse_shape(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "bf16[8,128]{1,0:T(8,128)(2,1)S(1)}",
        "f32[]{:T(128)}",
        "s4[2,3]{1,0:T(8)L(1024)E(4)}",
        "f32[2,3]{1,0:D(C+,S~)}",
        "f32[2,3]{1,0:T(*,128)M(8)}",
        "f32[?,3]{1,0}",
        "(f32[2]{0:S(5)}, token[])",
    ],
)
def test_layouts_keep_tiles_memory_spaces_and_sizes_of_elements(text: str):
    shape = parse_shape(text)
    assert shape.text == text
    assert read_shape(write_shape(shape)).text == text


ATTRIBUTES = """
HloModule m
%cond (s: (s32[], f32[4])) -> pred[] {
  %s = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(3)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}
%body (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %s = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[4] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[4] reverse(%x), dimensions={0}
  ROOT %t = (s32[], f32[4]) tuple(%next, %y)
}
%less (p: f32[], q: f32[]) -> pred[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %lt = pred[] compare(%p, %q), direction=LT, type=TOTALORDER
}
%most (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %m = f32[] maximum(%p, %q)
}
ENTRY %main (x: f32[4], im: f32[1,5,5,2], k: f32[3,3,2,4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %im = f32[1,5,5,2] parameter(1)
  %k = f32[3,3,2,4] parameter(2)
  %zero = s32[] constant(0)
  %s = (s32[], f32[4]) tuple(%zero, %x)
  %w = (s32[], f32[4]) while(%s), condition=%cond, body=%body
  %conv = f32[1,3,3,4] convolution(%im, %k), window={size=3x3 stride=2x2 pad=1_1x1_1}, \
dim_labels=b01f_01io->b01f
  %sorted = f32[4] sort(%x), dimensions={0}, is_stable=true, to_apply=%less
  %low = f32[] constant(-inf)
  %rw = f32[2] reduce-window(%x, %low), window={size=2 stride=2}, to_apply=%most
  %p = f32[9] pad(%x, %low), padding=1_1_1
  %rp = f32[4] reduce-precision(%x), exponent_bits=5, mantissa_bits=10
  %cc = f32[4] custom-call(%x), custom_call_target="AwsNeuronSilu", backend_config="2"
  %ag = f32[8] all-gather(%x), replica_groups=[1,2]<=[2], dimensions={0}
  %cp = f32[4] collective-permute(%x), source_target_pairs={{0,1},{1,0}}
  %state = u64[2] constant({1, 2})
  %rng = (u64[2], u32[4]) rng-bit-generator(%state), algorithm=rng_default
  ROOT %y = f32[4] get-tuple-element(%w), index=1
}
"""


def body(text: str) -> list[str]:
    """The lines of all computations, in no order; the first line tells layouts XLA chooses."""
    return sorted(line for line in text.splitlines() if not line.startswith("HloModule"))


def test_attributes_of_what_the_ir_may_not_know_come_and_go_too():
    """What XLA reads in our text of the protobuf is what it read in its own."""
    proto = xla_hlo.from_text(ATTRIBUTES)
    text = xla_hlo.parsed(proto)
    wanted = body(text)
    for again in (
        xla_hlo.from_text(print_hlo_text(proto)),
        parse_hlo_text(text),
        parse_hlo_text(print_hlo_text(parse_hlo_text(ATTRIBUTES))),
    ):
        assert body(xla_hlo.parsed(again)) == wanted


@pytest.mark.parametrize(
    ("broken", "what", "at"),
    [
        ("  ROOT b = f32[2] negate(c)", "%c is not defined before this line", "t.hlo:5:8"),
        ("  ROOT b = f33[2] negate(a)", "HLO element type 'f33' is unknown", "t.hlo:5:12"),
        ("  ROOT b = f32[2] negate(a", "expected ',' or ')', found '}'", "t.hlo:6:1"),
        ("  ROOT b = f32[2] constant({1})", "constant: 1 elements for f32[2]",
         "t.hlo:5:27"),
        ("  ROOT a = f32[2] negate(a)", "%a is defined twice", "t.hlo:5:8"),
        ("  b f32[2]", "expected '=', found 'f32[2]'", "t.hlo:5:5"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(broken: str, what: str, at: str):
    text = f"HloModule m\n\nENTRY e {{\n  a = f32[2] parameter(0)\n{broken}\n}}\n"
    with pytest.raises(GraphgenError) as caught:
        parse_hlo_text(text, "t.hlo")
    assert (caught.value.code, caught.value.what, caught.value.where) == ("GG0201", what, at)


@pytest.mark.parametrize("text", ["(", "(f32[2]{0}", "(f32[2]{0}, ", "((f32[2]{0})"])
def test_a_tuple_that_is_not_closed_is_refused(text: str):
    with pytest.raises(GraphgenError, match="is not closed"):
        parse_shape(text)


@pytest.mark.parametrize("text", ['{a="1",b="x y"}', '{only="1"}'])
def test_maps_print_as_they_were(text: str):
    assert show_map(Message(parse_map(text))) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"k":["}", {}]}', '{"k":["}", {}]}'),
        (b"{}", "{}"),
        (b"{a}{b}", '"{a}{b}"'),
        (b"{a}}", '"{a}}"'),
        (b'{"}', r'"{\"}"'),
        (b"{{}", '"{{}"'),
        ("{\u00e9}".encode(), r'"{\303\251}"'),
    ],
)
def test_only_json_stands_without_quotes(data: bytes, text: str):
    assert CONFIG.show(data) == text
    assert CONFIG.parse(text) == data


def test_sizes_of_each_transfer_are_a_list():
    sizes = "{{1,8,128},{2,8,128}}"
    shape = wire.delimited(InstructionField.SHAPE, write_shape(HloShape("f32", (4, 8, 128))))
    number = InstructionField.DYNAMIC_SLICE_SIZES
    assert SLICE_LISTS.decode(Message(shape + SLICE_LISTS.encode(number, sizes)), number) == sizes


def test_words_of_maps_need_no_quotes():
    assert show_map(Message(parse_map("{a=1,b=c}"))) == '{a="1",b="c"}'


@pytest.mark.parametrize(
    "sharding",
    [
        "{replicated}",
        "{manual}",
        "{maximal device=1}",
        "{devices=[2,1]1,0}",
        "{devices=[2,1]<=[2]}",
        "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
        "{devices=[2,1,2]<=[4] last_tile_dims={manual}}",
        "{devices=[2,1]<=[2] shard_as 3}",
        "{unknown}",
    ],
)
def test_shardings_have_xlas_bytes(sharding: str) -> None:
    text = f"""HloModule m, num_partitions=4
ENTRY main {{
  a = f32[4,4]{{1,0}} parameter(0), sharding={sharding}
  ROOT c = (f32[4,4]{{1,0}}) tuple(a), sharding={{{sharding}}}
}}
"""
    ours, theirs = open_hlo(parse_hlo_text(text)), open_hlo(xla_hlo.from_text(text))
    for mine, other in zip(ours.entry.instructions(), theirs.entry.instructions(), strict=True):
        field = InstructionField.SHARDING
        assert mine.data(field) == other.data(field)
    shown = print_hlo_text(parse_hlo_text(text))
    assert f"sharding={sharding}" in shown
    assert f"sharding={{{sharding}}}" in shown
    assert "num_partitions=4" in shown
