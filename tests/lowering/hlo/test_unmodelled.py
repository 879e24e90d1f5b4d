"""Instructions without an op: read whole, printed, written again as they were, and run by XLA."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Module
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.ops import verify
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo

# A loop around a windowed sum, a map, a choice; a convolution has an op.
REGIONS = """
HloModule regions, input_output_alias={ {1}: (2, {}, must-alias) }

%less (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %lt = f32[] subtract(%a, %b)
}

%least (a.2: f32[], b.2: f32[]) -> pred[] {
  %a.2 = f32[] parameter(0)
  %b.2 = f32[] parameter(1)
  ROOT %le = pred[] compare(%a.2, %b.2), direction=LE
}

%plus (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %sum = f32[] add(%a.1, %b.1)
}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %v = f32[4] get-tuple-element(%p), index=1
  %i0 = f32[] constant(0)
  %r = f32[4] reduce-window(%v, %i0), window={size=2 pad=1_0}, to_apply=%plus
  ROOT %t = (s32[], f32[4]) tuple(%next, %r)
}

%cond (q: (s32[], f32[4])) -> pred[] {
  %q = (s32[], f32[4]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %three = s32[] constant(3)
  ROOT %go = pred[] compare(%j, %three), direction=LT
}

%yes (y: f32[4]) -> f32[4] {
  %y = f32[4] parameter(0)
  ROOT %neg = f32[4] negate(%y)
}

%no (n: f32[4]) -> f32[4] {
  ROOT %n = f32[4] parameter(0)
}

ENTRY %main (x: f32[4], img: f32[1,4,4,2], cache: f32[2,2,2,3], flag: pred[]) \
-> (f32[4], f32[2,2,2,3], f32[4], f32[1,2,2,2]) {
  %x = f32[4] parameter(0)
  %img = f32[1,4,4,2] parameter(1)
  %cache = f32[2,2,2,3] parameter(2)
  %flag = pred[] parameter(3)
  %zero = s32[] constant(0)
  %init = (s32[], f32[4]) tuple(%zero, %x)
  %loop = (s32[], f32[4]) while(%init), condition=%cond, body=%body
  %out = f32[4] get-tuple-element(%loop), index=1
  %from = f32[] constant(0)
  %sorted = f32[4] select-and-scatter(%out, %x, %from), window={size=1}, select=%least, \
scatter=%less
  %choice = f32[4] conditional(%flag, %sorted, %x), true_computation=%yes, false_computation=%no
  %conv = f32[1,3,3,3] convolution(%img, %cache), window={size=2x2}, dim_labels=b01f_01io->b01f
  %f0 = f32[] constant(0)
  %win = f32[1,2,2,2] reduce-window(%img, %f0), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=%plus
  %lo = f32[] constant(0)
  %s = f32[] reduce(%conv, %lo), dimensions={0,1,2,3}, to_apply=%plus
  %spread = f32[4] broadcast(%s), dimensions={}
  %y1 = f32[4] add(%choice, %spread), \
metadata={op_name="model/layers.0/add" source_file="m.py" source_line=7}
  ROOT %result = (f32[4], f32[2,2,2,3], f32[4], f32[1,2,2,2]) tuple(%y1, %cache, %spread, %win)
}
"""

# What nobody can run here, and what has results of all forms.
OTHERS = """
HloModule others

ENTRY %main (x: f32[4], s: u64[2]) -> (f32[3], u32[4], f32[4], f32[4], f32[2]) {
  %x = f32[4] parameter(0)
  %s = u64[2] parameter(1)
  %lo = f32[] constant(0)
  %hi = f32[] constant(1)
  %top = (f32[3], u32[3]) custom-call(%x), custom_call_target="AwsNeuronTopK", \
backend_config="3", \
api_version=API_VERSION_UNSPECIFIED, \
metadata={op_name="net/topk" source_file="net.py" source_line=7}
  %values = f32[3] get-tuple-element(%top), index=0
  %one = (f32[4]) custom-call(%x), custom_call_target=\
"AwsNeuronModuleMarkerStart-Forward", custom_call_has_side_effect=true
  %inside = f32[4] get-tuple-element(%one), index=0
  %rng = f32[4] rng(%lo, %hi), distribution=rng_uniform
  %bits = (u64[2], u32[4]) rng-bit-generator(%s), algorithm=rng_default
  %words = u32[4] get-tuple-element(%bits), index=1
  %pair = (f32[4], (f32[4], u64[2])) tuple(%x, %both)
  %fence = (f32[4], (f32[4], u64[2])) opt-barrier(%pair)
  %first = f32[4] get-tuple-element(%fence), index=0
  %fast = f32[4] negate(%first), turbo={level=3}
  %large = f32[2] constant({...})
  ROOT %out = (f32[3], u32[4], f32[4], f32[4], f32[2]) tuple(%values, %words, %rng, %fast, %large)
}
""".replace("  %pair", "  %both = (f32[4], u64[2]) tuple(%inside, %s)\n  %pair")


def again(module: Module) -> Module:
    """Written and read."""
    read = read_hlo(emit_hlo(module, module.programs()[0]))
    read.meta = module.meta
    return read


@pytest.mark.parametrize("text", [REGIONS, OTHERS])
def test_nothing_is_lost(text: str):
    module = read_hlo(parse_hlo_text(text))
    verify(module)
    printed = print_module(module)
    assert print_module(parse(printed)) == printed
    assert print_module(again(module)) == printed
    # By the text of it as well.
    proto = emit_hlo(module, module.programs()[0])
    read = read_hlo(parse_hlo_text(print_hlo_text(proto)))
    read.meta = module.meta
    assert print_module(read) == printed


def opcodes(module: Module) -> list[str]:
    return [str(op.attrs["opcode"]) for op in module.programs()[0].block if op.name == "hlo.opaque"]


def test_what_they_are_and_why():
    module = read_hlo(parse_hlo_text(REGIONS))
    assert opcodes(module) == ["select-and-scatter"]
    reason = "select_and_scatter: kind is 'subtract'"
    assert reason in str(module.meta["opaque"])
    module = read_hlo(parse_hlo_text(OTHERS))
    assert opcodes(module) == [
        "custom-call", "opt-barrier", "negate", "constant",
    ]  # fmt: skip
    assert "negate: its attribute turbo is unknown (1)" in module.meta["opaque"]
    assert "constant: its elements are left out (1)" in module.meta["opaque"]
    (call,) = [op for op in module.programs()[0].block if op.name == "custom_call"]
    assert (call.attrs["target"], call.attrs["config"]) == ("AwsNeuronTopK", "3")
    assert (call.loc.file, call.loc.line, call.loc.scope) == ("net.py", 7, "net.topk")
    assert [value.name for value in call.results] == ["values", "top.1"]


def numbers() -> list[Array]:
    random = np.random.default_rng(5)
    x, image, cache = (
        random.standard_normal(shape, np.float32) for shape in ((4,), (1, 4, 4, 2), (2, 2, 2, 3))
    )
    return [x, image, cache, np.asarray(True)]


def test_xla_computes_the_same_of_what_is_written_again():
    proto = xla_hlo.from_text(REGIONS)
    module = read_hlo(proto)
    rewritten = emit_hlo(module, module.programs()[0])
    (before,), (after,) = (xla_hlo.run(data, [numbers()]) for data in (proto, rewritten))
    assert len(before) == 4
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_regions_alike_are_written_once():
    module = read_hlo(parse_hlo_text(REGIONS))
    found = xla_hlo.instructions(emit_hlo(module, module.programs()[0]))
    # The entry, body, condition, two branches, the sum, the choice and what it scatters by.
    assert len(found) == 8


def test_names_and_places_in_regions_make_no_difference():
    other = REGIONS.replace("%less", "%smaller").replace("%lt =", "%below =")
    one, two = (print_module(read_hlo(parse_hlo_text(text))) for text in (REGIONS, other))
    assert one == two
    assert one != print_module(
        read_hlo(parse_hlo_text(REGIONS.replace("constant(3)", "constant(4)")))
    )


def with_field(proto: bytes, opcode: str, field: bytes) -> bytes:
    """The module with a field more in the instructions of this opcode."""

    def inside(message: Message, path: list[int]) -> bytes:
        out = b""
        for number, data in message.pieces():
            if path and number == path[0]:
                start = len(data) - len(Message(data).data(number))
                inner = inside(Message(data[start:]), path[1:])
                out += wire.delimited(number, inner)
            else:
                out += data
        return out + (
            field if not path and message.text(InstructionField.OPCODE) == opcode else b""
        )

    return inside(Message(proto), [ModuleField.COMPUTATIONS, ComputationField.INSTRUCTIONS])


def without_layouts(proto: bytes) -> bytes:
    """The module as old files are: shapes of computations and instructions lack their layouts."""

    def inside(message: Message, path: list[set[int]]) -> bytes:
        out = b""
        for number, data in message.pieces():
            if number not in path[0]:
                out += data
                continue
            inner = Message(data).data(number)
            if len(path) == 1:
                inner = write_shape(read_shape(inner), layout=False)
            else:
                inner = inside(Message(inner), path[1:])
            out += wire.delimited(number, inner)
        return out

    in_order = [{ModuleField.COMPUTATIONS}, {ComputationField.INSTRUCTIONS}]
    bare = inside(Message(proto), [*in_order, {InstructionField.SHAPE}])
    shapes = [{ComputationField.PROGRAM_SHAPE}, {1, 2}]
    return inside(Message(bare), [{ModuleField.COMPUTATIONS}, *shapes])


def test_layouts_that_regions_leave_to_a_default_make_no_difference():
    proto = parse_hlo_text(REGIONS)
    bare = without_layouts(proto)
    assert len(bare) < len(proto)
    assert print_module(read_hlo(bare)) == print_module(read_hlo(proto))


def nested(depth: int) -> HloShape:
    """Tuples in each other."""
    shape = HloShape("token")
    for _ in range(depth):
        shape = HloShape("tuple", members=(shape,))
    return shape


def test_tuples_are_read_32_deep_and_no_deeper():
    assert read_shape(write_shape(nested(32))) == nested(32)
    with pytest.raises(GraphgenError, match="deeper than 32") as raised:
        read_shape(write_shape(nested(33)))
    assert raised.value.code == "GG0801"


PLAIN = """
HloModule m
ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %y = f32[4] negate(%x)
}
"""


@pytest.mark.parametrize(
    "field", [wire.integer(1000, 7), b"\xc5\x3e\1\2\3\4", wire.text(1001, "fast")]
)
def test_an_unknown_field_is_kept(field: bytes):
    module = read_hlo(with_field(parse_hlo_text(PLAIN), "negate", field))
    assert opcodes(module) == ["negate"]
    assert field in emit_hlo(module, module.programs()[0])
    assert print_module(again(module)) == print_module(module)


def test_a_contradiction_is_kept_and_named():
    module = read_hlo(parse_hlo_text(PLAIN.replace("ROOT %y = f32[4]", "ROOT %y = f32[5]")))
    assert opcodes(module) == ["negate"]
    stated = "negate: it states f32[5]{0}, but its operands give f32[4] (1)"
    assert module.meta["opaque"] == stated
    assert print_module(again(module)) == print_module(module)


def test_what_has_no_type_is_named():
    with pytest.raises(GraphgenError) as caught:
        read_hlo(parse_hlo_text(PLAIN.replace("  ROOT", "  %t = opaque[] parameter(1)\n  ROOT")))
    assert caught.value.code == "GG0101"
    assert "%t in %main" in caught.value.where


def test_a_computation_that_calls_itself():
    proto = parse_hlo_text(REGIONS)
    # The body of the loop is the fourth computation.
    damaged = with_field(proto, "reduce-window", wire.integers(InstructionField.CALLED_IDS, [4]))
    with pytest.raises(GraphgenError) as caught:
        read_hlo(damaged)
    assert caught.value.code == "GG0801"
    assert "before it is defined" in caught.value.what
