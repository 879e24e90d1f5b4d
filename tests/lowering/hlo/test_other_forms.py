"""Forms of instructions that ops of the IR do not have: rewritten on reading, or kept whole."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.text import print_module
from tests.oracles import xla_hlo


def module_of(body: str, head: str = "") -> Module:
    return read_hlo(parse_hlo_text(f"HloModule m\n{head}\nENTRY %main {{\n{body}\n}}\n"))


def names(module: Module) -> list[str]:
    return [op.name for op in module.programs()[0].block]


PRODUCTS = {
    "f16 and f32": (
        "%x = f16[2,3] parameter(0)\n%y = f32[3,2] parameter(1)\n"
        "ROOT %d = f32[2,2] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ["convert", "dot_general"],
    ),
    "s16 and s8": (
        "%x = s16[2,3] parameter(0)\n%y = s8[3,2] parameter(1)\n"
        "ROOT %d = s32[2,2] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ["convert", "dot_general"],
    ),
    "gather by batch": (
        "%x = f32[2,5,3] parameter(0)\n%y = s32[2,4,1] parameter(1)\n"
        "ROOT %g = f32[2,4,3] gather(%x, %y), offset_dims={2}, collapsed_slice_dims={1}, "
        "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
        "index_vector_dim=2, slice_sizes={1,1,3}",
        ["iota", "concatenate", "gather"],
    ),
    "wider elements": (
        "%x = u8[2,8] parameter(0)\n%y = s32[2] parameter(1)\n"
        "%w = s32[4] bitcast(%x)\n%n = u8[8] bitcast(%y)\n"
        "ROOT %t = (s32[4], u8[8]) tuple(%w, %n)",
        ["reshape", "bitcast_convert", "bitcast_convert", "reshape"],
    ),
    "one predicate": (
        "%x = f32[3] parameter(0)\n%y = pred[] parameter(1)\n%n = f32[3] negate(%x)\n"
        "ROOT %s = f32[3] select(%y, %x, %n)",
        ["negate", "broadcast_in_dim", "select"],
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_the_numbers_are_xlas(case: str):
    body, expected = PRODUCTS[case]
    module = module_of(body)
    assert names(module) == expected
    random = np.random.default_rng(3)
    (function,) = module.programs()
    given = {
        value.name or "": random.integers(0, 2, value.type.dims).astype(
            value.dtype.name.replace("pred", "bool").replace("s", "i").replace("i", "int")
            if value.dtype.name[0] in "sp"
            else {"f16": "float16", "f32": "float32", "u8": "uint8"}[value.dtype.name]
        )
        for value in function.args
    }
    ours = evaluate(function, given)
    written = emit_hlo(module, function)
    (theirs,) = xla_hlo.run(written, [list(given.values())])
    for one, other in zip(ours.values(), theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert print_module(read_hlo(written)).count("=") == print_module(module).count("=")


SCATTER = """%x = f32[2,5] parameter(0)
%i = s32[2,3,1] parameter(1)
%u = f32[2,3] parameter(2)
ROOT %s = f32[2,5] scatter(%x, %i, %u), update_window_dims={}, inserted_window_dims={1}, \
scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, \
index_vector_dim=2, to_apply=%add"""
ADD = """%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}"""


def test_a_scatter_by_batch():
    module = module_of(SCATTER, ADD)
    x = np.zeros((2, 5), np.float32)
    index = np.asarray([[[0], [1], [1]], [[4], [4], [2]]], np.int32)
    found = evaluate(module.programs()[0], {"x": x, "i": index, "u": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(found["output0"], [[1, 2, 0, 0, 0], [0, 0, 1, 0, 2]])


def test_a_product_that_no_type_holds_is_kept():
    body, _ = PRODUCTS["f16 and f32"]
    module = module_of(body.replace("f16", "s32"))
    assert names(module) == ["hlo.opaque"]
    assert "no element type of ['f32', 's32'] holds both" in module.meta["opaque"]


def test_what_gives_nothing_is_kept():
    module = module_of(
        "%x = f32[2] parameter(0)\n%p = pred[] parameter(1)\n"
        "%c = () conditional(%p, %x, %x), true_computation=%yes, false_computation=%yes\n"
        "ROOT %n = f32[2] negate(%x)",
        "%yes {\n  %a = f32[2] parameter(0)\n  %t = token[] after-all()\n"
        "  %o = token[] outfeed(%a, %t), outfeed_shape=f32[2]{0}\n  ROOT %r = () tuple()\n}",
    )
    (program,) = module.programs()
    first = program.block.first
    assert first is not None
    assert (first.attrs.text("opcode"), first.attrs.text("form")) == ("conditional", "xxx->()")
    written = emit_hlo(module, program)
    assert xla_hlo.instructions(written)
    assert (
        print_module(read_hlo(written)).splitlines()[-4:] == print_module(module).splitlines()[-4:]
    )


def test_constants_keep_their_memory():
    body = "%c = f32[2,3]{0,1:T(8,128)S(1)} constant({{1,2,3},{4,5,6}})\n"
    module = module_of(f"{body}ROOT %n = f32[2,3] negate(%c)")
    op = module.programs()[0].block.first
    assert op is not None
    assert op.annotations["hlo.shape"] == "f32[2,3]{0,1:T(8,128)S(1)}"
    written = emit_hlo(module, module.programs()[0])
    assert xla_hlo.instructions(written)
    assert print_module(read_hlo(written)) == print_module(module)


LOOP = """%body {
  %p = ((f32[2], u32[], token[]), f32[2]) parameter(0)
  %c = (f32[2], u32[], token[]) get-tuple-element(%p), index=0
  %x = f32[2] get-tuple-element(%p), index=1
  %d = token[] send-done(%c), channel_id=1
  %s = (f32[2], u32[], token[]) send(%x, %d), channel_id=1
  ROOT %t = ((f32[2], u32[], token[]), f32[2]) tuple(%s, %x)
}
%cond {
  %p = ((f32[2], u32[], token[]), f32[2]) parameter(0)
  ROOT %c = pred[] constant(false)
}"""


def test_a_loop_that_ends_what_its_caller_began_is_kept_whole():
    module = module_of(
        "%x = f32[2] parameter(0)\n%a = token[] after-all()\n"
        "%s = (f32[2], u32[], token[]) send(%x, %a), channel_id=1\n"
        "%i = ((f32[2], u32[], token[]), f32[2]) tuple(%s, %x)\n"
        "%w = ((f32[2], u32[], token[]), f32[2]) while(%i), condition=%cond, body=%body\n"
        "ROOT %y = f32[2] get-tuple-element(%w), index=1",
        LOOP,
    )
    assert "while: %d in %body: send-done ends what its caller began" in module.meta["opaque"]
    written = emit_hlo(module, module.programs()[0])
    # XLA takes this as text alone: of a protobuf it wants the send beside its end.
    assert xla_hlo.from_text(print_hlo_text(written))
