"""HLO protobufs of every vintage, read without JAX."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, numpy_dtype
from graphgen.ir import Function, Module, Role
from graphgen.ir.dtype import f32, s32
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    GroupField,
    InstructionField,
    ModuleField,
    WrapperField,
)
from graphgen.lowering.hlo_proto.replica_groups import read_groups, write_groups
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.open import open_module
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.ops import verify
from graphgen.text import parse, print_module
from tests.lowering.stablehlo.test_ops import ROUNDING
from tests.oracles import xla_hlo
from tests.oracles.op_samples import BY_OP, inputs, program
from tests.oracles.sample import difference


def of_jaxlib(module: Module, function: Function) -> bytes:
    """The program as jaxlib writes it: ids of 64 bits, groups in field 87, stack frames."""
    text = emit_stablehlo(module, function)
    found: Any = _jax.mlir.mlir_module_to_xla_computation(text)
    return found.as_serialized_hlo_module_proto()


def program_of(proto: bytes) -> tuple[Module, Function]:
    module = read_hlo(proto)
    verify(module)
    (function,) = module.programs()
    return module, function


def of_text(body: str) -> tuple[Module, Function]:
    return program_of(xla_hlo.from_text(body))


@pytest.mark.parametrize("name", BY_OP)
@pytest.mark.parametrize("writer", [emit_hlo, of_jaxlib], ids=["ours", "jaxlib"])
def test_every_op_is_read_back(name: str, writer: Any):
    samples = BY_OP[name]
    module = program(samples)
    function = module.function("f")
    given = inputs(samples)
    wanted = evaluate(function, given)
    _, again = program_of(writer(module, function))
    values = dict(zip([v.name for v in again.args], given.values(), strict=True))
    found = evaluate(again, {key or "": value for key, value in values.items()})
    assert list(filter(None, [
        difference(item, one, other, ROUNDING)
        for item, one, other in zip(samples, wanted.values(), found.values(), strict=True)
    ])) == []  # fmt: skip


def test_a_program_of_ours_comes_back_as_it_was():
    samples = BY_OP["dot_general"]
    module = program(samples)
    _, again = program_of(emit_hlo(module, module.function("f")))
    before = [(op.name, op.attrs) for op in module.function("f").block]
    assert [(op.name, op.attrs) for op in again.block] == before


BODY = """
HloModule m, input_output_alias={ {1}: (1, {}, must-alias) }
ENTRY %main (x: f32[2], cache: f32[2]) -> (f32[2], f32[2]) {
  %x = f32[2]{0} parameter(0), frontend_attributes={neff_input_names="tokens"}
  %cache = f32[2]{0} parameter(1), frontend_attributes={neff_input_names="kv.must_alias_input"}
  %y = f32[2]{0} add(%x, %cache), metadata={op_type="aten__add" op_name="Net/Layer[0]/add" \
source_file="net.py" source_line=12}
  %c = f32[2]{0} copy(%y)
  ROOT %t = (f32[2]{0}, f32[2]{0}) tuple(%c, %y), frontend_attributes={neff_output_names="out,kv"}
}
"""


def test_the_whole_of_a_small_module():
    module, _ = of_text(BODY)
    assert print_module(module) == "\n".join([
        "module @m level=logical {",
        '  meta format = "hlo"',
        "  input %tokens : f32[2]",
        "  state %kv : f32[2]",
        "  output %out : f32[2]",
        "}",
        "",
        "func @main phase=main {",
        "  arg %tokens : f32[2]",
        "  arg %kv : f32[2]",
        "  %y = add(%tokens, %kv) : f32[2]  # net.py:12 Net.Layer[0].add",
        "  return out = %y",
        "  return kv = %y",
        "}",
        "",
    ])  # fmt: skip


def test_buffers_that_any_output_may_take_come_and_go():
    module, function = of_text("""
HloModule m, buffer_donor={ (1, {}) }
ENTRY %main (x: f32[2], y: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  %y = f32[2] parameter(1)
  ROOT %z = f32[2] add(%x, %y)
}
""")
    assert module.meta["donated"] == "y"
    proto = emit_hlo(module, function)
    assert "buffer_donor={ (1, {}) }" in xla_hlo.parsed(proto)
    assert read_hlo(proto).meta["donated"] == "y"


def test_the_wrappers_that_xla_dumps():
    proto = xla_hlo.from_text(BODY)
    text = print_module(read_hlo(proto))
    assignment = wire.delimited(WrapperField.BUFFER_ASSIGNMENT, wire.delimited(1, b"\x08\x01"))
    dumped = wire.delimited(WrapperField.MODULE, proto) + assignment
    assert print_module(read_hlo(dumped)) == text
    snapshot = wire.delimited(1, dumped) + wire.text(4, "cpu")
    assert print_module(read_hlo(snapshot)) == text


def test_ids_of_64_bits():
    module, function = of_text(BODY)
    proto = of_jaxlib(module, function)
    ids = [
        instruction.integer(InstructionField.ID)
        for computation in Message(proto).messages(ModuleField.COMPUTATIONS)
        for instruction in computation.messages(2)
    ]
    assert max(ids) > 1 << 32
    _, again = program_of(proto)
    assert [op.name for op in again.block] == ["add"]


def test_replica_groups_in_each_field_that_has_held_them():
    listed = Message(write_groups([(0, 2), (1, 3)]))
    assert read_groups(listed) == ((0, 2), (1, 3))
    group = wire.delimited(GroupField.LIST_GROUPS, wire.integers(GroupField.REPLICA_IDS, (1, 0)))
    newer = wire.delimited(InstructionField.COLLECTIVE_DEVICE_LIST, group)
    assert read_groups(Message(newer)) == ((1, 0),)
    iota = (
        wire.integer(GroupField.IOTA_GROUPS, 4)
        + wire.integer(GroupField.IOTA_PER_GROUP, 2)
        + wire.integers(GroupField.IOTA_DIMS, (2, 4))
        + wire.integers(GroupField.IOTA_PERMUTATION, (1, 0))
    )
    formula = wire.delimited(GroupField.LIST_IOTA, iota)
    newest = wire.delimited(InstructionField.COLLECTIVE_DEVICE_LIST, formula)
    wanted = tuple(map(tuple, np.arange(8).reshape(2, 4).T.reshape(4, 2).tolist()))
    assert read_groups(Message(newest)) == wanted
    alone = wire.delimited(InstructionField.IOTA_DEVICE_LIST, iota)
    assert read_groups(Message(alone)) == wanted


def test_a_formula_of_too_many_ranks_is_refused():
    iota = wire.integer(GroupField.IOTA_GROUPS, 1 << 40) + wire.integer(
        GroupField.IOTA_PER_GROUP, 1 << 40
    )
    formula = wire.delimited(GroupField.LIST_IOTA, iota)
    newest = wire.delimited(InstructionField.COLLECTIVE_DEVICE_LIST, formula)
    with pytest.raises(GraphgenError, match="replica groups"):
        read_groups(Message(newest))


def test_tuples_are_taken_apart():
    module, function = of_text("""
HloModule m
ENTRY %main (p: (f32[2], (s32[], f32[2]))) -> ((f32[2], f32[2]), f32[2]) {
  %p = (f32[2], (s32[], f32[2])) parameter(0)
  %a = f32[2] get-tuple-element(%p), index=0
  %q = (s32[], f32[2]) get-tuple-element(%p), index=1
  %b = f32[2] get-tuple-element(%q), index=1
  %in = (f32[2], f32[2]) tuple(%b, %a)
  %n = f32[2] negate(%a)
  ROOT %out = ((f32[2], f32[2]), f32[2]) tuple(%in, %n)
}
""")
    assert [(v.name, v.type.text) for v in function.args] == [
        ("p.0", "f32[2]"), ("p.1.0", "s32[]"), ("p.1.1", "f32[2]")
    ]  # fmt: skip
    assert [(name, value.name) for name, value in function.outputs] == [
        ("output0", "p.1.1"), ("output1", "p.0"), ("output2", "n")
    ]  # fmt: skip
    assert [row.role for row in module.interface.values()] == [Role.INPUT] * 3 + [Role.OUTPUT] * 3


def test_a_reduction_from_another_start_is_combined_with_it():
    _, function = of_text("""
HloModule m
%most (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] maximum(%b, %a)
}
ENTRY %main (x: f32[2,3], s: f32[]) -> (f32[2], f32[2]) {
  %x = f32[2,3] parameter(0)
  %s = f32[] parameter(1)
  %low = f32[] constant(-inf)
  %plain = f32[2] reduce(%x, %low), dimensions={1}, to_apply=%most
  %from = f32[2] reduce(%x, %s), dimensions={1}, to_apply=%most
  ROOT %t = (f32[2], f32[2]) tuple(%plain, %from)
}
""")
    assert [op.name for op in function.block] == [
        "reduce", "reduce", "broadcast_in_dim", "maximum"
    ]  # fmt: skip
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = evaluate(function, {"x": x, "s": np.asarray(4.0, np.float32)})
    np.testing.assert_array_equal(out["output0"], [2, 5])
    np.testing.assert_array_equal(out["output1"], [4, 5])


def test_layouts_and_precisions_are_annotations():
    module, _ = of_text("""
HloModule m
ENTRY %main (x: f32[2,2]) -> f32[2,2] {
  %x = f32[2,2] parameter(0)
  %t = f32[2,2]{0,1} transpose(%x), dimensions={1,0}
  ROOT %d = f32[2,2] dot(%t, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
operand_precision={highest,highest}
}
""")
    assert "dropped" not in module.meta
    turned, product = module.function("main").block
    assert turned.annotations["hlo.shape"] == "f32[2,2]{0,1}"
    assert product.annotations["hlo.operand_precision"] == "{highest,highest}"


def test_a_constant_in_another_layout_is_turned():
    proto = xla_hlo.from_text("""
HloModule m
ENTRY %main () -> s32[2,3] {
  ROOT %c = s32[2,3]{0,1} constant({{1,2,3},{4,5,6}})
}
""")
    _, function = program_of(proto)
    np.testing.assert_array_equal(evaluate(function, {})["output0"], [[1, 2, 3], [4, 5, 6]])


def test_constants_stay_in_the_file(tmp_path: Path):
    text = "module @m level=target {\n  output %y : f32[4096]\n}\n\nfunc @f phase=main {\n"
    data = np.arange(4096, dtype=np.float32).tobytes().hex()
    text += f"  %y = constant() value=f32[4096](0x{data}) : f32[4096]\n  return y = %y\n}}\n"
    module = parse(text)
    file = tmp_path / "m.pb"
    # Other elements than those of the literal, which the IR would find again.
    proto, data = emit_hlo(module, module.function("f")), bytes.fromhex(data)
    file.write_bytes(proto.replace(data, data[::-1]))
    again = open_module(file)
    (op,) = again.function("f").block
    stored = op.attrs.literal("value").data
    assert isinstance(stored, memoryview)
    assert isinstance(stored.obj, mmap.mmap)
    assert bytes(stored) == data[::-1]


def test_many_varints_at_once():
    random = np.random.default_rng(0)
    for kind in ("s32", "s64", "u32", "u64"):
        info = np.iinfo(numpy_dtype({"s32": s32}.get(kind, f32)) if kind == "s32" else kind[0:1]
                        .replace("s", "i") + str(int(kind[1:]) // 8))  # fmt: skip
        values = random.integers(info.min, info.max, 5000, info.dtype, endpoint=True)
        data = values.tobytes().hex()
        body = f"  %y = constant() value={kind}[5000](0x{data}) : {kind}[5000]\n"
        module = parse(f"module @m level=target {{\n}}\n\nfunc @f {{\n{body}  return y = %y\n}}\n")
        _, function = program_of(emit_hlo(module, module.function("f")))
        np.testing.assert_array_equal(evaluate(function, {})["y"], values)


@pytest.mark.parametrize("cut", [1, 10, 100, -1])
def test_a_cut_file_is_refused(cut: int):
    proto = xla_hlo.from_text(BODY)
    with pytest.raises(GraphgenError) as caught:
        read_hlo(proto[:cut], "cut.pb")
    assert caught.value.code in ("GG0801", "GG0202")
    assert caught.value.where.startswith("cut.pb")
