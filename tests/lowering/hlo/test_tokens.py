"""Tokens, what the host sends and receives, and asynchronous pairs: read, evaluated, written."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, evaluate_ranks
from graphgen.ir import Module, tensor
from graphgen.ir.dtype import DTYPES, dtype, holds, token
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.ops import OPS, InferError, infer, make_attrs, verify
from graphgen.ops.external import has_effect
from graphgen.report.diff import diff_functions
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo

# A host that feeds the device, and gets its results; tokens order them.
HOST = """
HloModule host

ENTRY %main (x: f32[2], t: token[]) -> (f32[2], token[]) {
  %x = f32[2] parameter(0)
  %t = token[] parameter(1)
  %fresh = token[] after-all()
  %both = token[] after-all(%t, %fresh)
  %fed = ((f32[2], s32[]), token[]) infeed(%both), infeed_config="a"
  %data = (f32[2], s32[]) get-tuple-element(%fed), index=0
  %first = f32[2] get-tuple-element(%data), index=0
  %after = token[] get-tuple-element(%fed), index=1
  %sum = f32[2] add(%x, %first)
  %out = token[] outfeed(%sum, %after), outfeed_shape=f32[2]{0}, outfeed_config="b"
  %send = (f32[2], u32[], token[]) send(%sum, %out), channel_id=1
  %sent = token[] send-done(%send), channel_id=1
  %recv = (f32[2], u32[], token[]) recv(%sent), channel_id=2
  %got = (f32[2], token[]) recv-done(%recv), channel_id=2
  %value = f32[2] get-tuple-element(%got), index=0
  %last = token[] get-tuple-element(%got), index=1
  ROOT %result = (f32[2], token[]) tuple(%value, %last)
}
"""

PAIRS = """
HloModule pairs, num_partitions=2

%inside (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  ROOT %n = f32[4] negate(%p)
}

ENTRY %main (x: f32[4]) -> (f32[8], f32[4], f32[4]) {
  %x = f32[4] parameter(0)
  %gs = (f32[4], f32[8]) all-gather-start(%x), channel_id=1, replica_groups={{0,1}}, \
dimensions={0}, use_global_device_ids=true
  %cs = (f32[4], f32[4], u32[]) copy-start(%x)
  %as = ((f32[4]), f32[4], u32[]) async-start(%x), calls=%inside
  %au = ((f32[4]), f32[4], u32[]) async-update(%as)
  %gd = f32[8] all-gather-done(%gs)
  %cd = f32[4] copy-done(%cs)
  %ad = f32[4] async-done(%au)
  ROOT %out = (f32[8], f32[4], f32[4]) tuple(%gd, %cd, %ad)
}
"""


def again(module: Module) -> Module:
    """Written, taken by XLA, and read."""
    proto = emit_hlo(module, module.programs()[0])
    xla_hlo.instructions(proto)
    read = read_hlo(proto)
    read.meta = module.meta
    return read


@pytest.mark.parametrize("text", [HOST, PAIRS], ids=["host", "pairs"])
def test_both_ways_by_text_and_by_xla(text: str):
    modules = read_hlo(xla_hlo.from_text(text)), read_hlo(parse_hlo_text(text))
    for module in modules:
        verify(module)
        printed = print_module(module)
        assert print_module(parse(printed)) == printed
        assert print_module(again(module)) == printed


def test_texts_and_protobufs_are_equal_to_diff():
    modules = read_hlo(xla_hlo.from_text(HOST)), read_hlo(parse_hlo_text(HOST))
    one, other = [module.programs()[0] for module in modules]
    assert diff_functions(modules, one, other).same


def test_tokens_are_values_of_no_bytes():
    module = read_hlo(parse_hlo_text(HOST))
    (function,) = module.programs()
    assert [value.type.text for value in function.args] == ["f32[2]", "token[]"]
    assert function.args[1].type.nbytes == 0
    kept = [op.attrs.text("opcode") for op in function.block if has_effect(op.name, op.attrs)]
    assert kept == ["infeed", "outfeed", "send", "send-done", "recv", "recv-done"]


def test_the_host_is_refused_by_name():
    module = read_hlo(parse_hlo_text(HOST))
    given = {"x": np.zeros(2, np.float32), "t": np.asarray(False)}
    with pytest.raises(GraphgenError) as caught:
        evaluate(module.programs()[0], given)
    assert (caught.value.code, caught.value.what) == (
        "GG0403", "infeed needs a host that sends or receives, which is not here",
    )  # fmt: skip


ORDERED = """
HloModule ordered
ENTRY %main (x: f32[2], t: token[]) -> (f32[2], token[]) {
  %x = f32[2] parameter(0)
  %t = token[] parameter(1)
  %u = token[] after-all(%t)
  %y = f32[2] add-dependency(%x, %u)
  %z = f32[2] negate(%y)
  %w = (f32[2], token[]) tuple(%z, %u)
  ROOT %b = (f32[2], token[]) opt-barrier(%w)
}
"""


def test_what_only_orders_is_evaluated():
    (function,) = read_hlo(parse_hlo_text(ORDERED)).programs()
    x = np.asarray([1, -2], np.float32)
    found = evaluate(function, {"x": x, "t": np.asarray(False)})
    np.testing.assert_array_equal(found["output0"], -x)


# The scalar orders the collectives of torch-xla and Neuron: it has no dimension of its own.
SCALARS = """
HloModule scalars
%add (p: bf16[], q: bf16[]) -> bf16[] {
  %p = bf16[] parameter(0)
  %q = bf16[] parameter(1)
  ROOT %s = bf16[] add(%p, %q)
}
ENTRY %main (x: bf16[4,2], t: bf16[]) -> (bf16[2,2], bf16[4,2], bf16[]) {
  %x = bf16[4,2] parameter(0)
  %t = bf16[] parameter(1)
  %rs = (bf16[2,2], bf16[]) reduce-scatter(%x, %t), replica_groups={{0,1}}, dimensions={0}, \
to_apply=%add
  %part = bf16[2,2] get-tuple-element(%rs), index=0
  %after = bf16[] get-tuple-element(%rs), index=1
  %ag = (bf16[4,2], bf16[]) all-gather(%part, %after), replica_groups={}, dimensions={0}
  %whole = bf16[4,2] get-tuple-element(%ag), index=0
  %last = bf16[] get-tuple-element(%ag), index=1
  ROOT %r = (bf16[2,2], bf16[4,2], bf16[]) tuple(%part, %whole, %last)
}
"""


def test_scalars_that_order_collectives():
    module = read_hlo(parse_hlo_text(SCALARS))
    names = [op.name for op in module.programs()[0].block]
    assert names == ["reduce_scatter", "all_reduce", "all_gather"]
    assert module.mesh == {"replica": 2}
    assert "scalar tokens of reduce-scatter (1)" in module.meta["dropped"]
    bf16 = np.dtype("bfloat16")
    x = np.arange(8).reshape(4, 2)
    zero = np.zeros((), bf16)
    given = [{"x": (x * (rank + 1)).astype(bf16), "t": zero} for rank in range(2)]
    found = evaluate_ranks(module.programs()[0], given)
    for rank, outputs in enumerate(found):
        np.testing.assert_array_equal(outputs["output0"].astype(int), (3 * x)[2 * rank :][:2])
        np.testing.assert_array_equal(outputs["output1"].astype(int), 3 * x)
        assert outputs["output2"] == 0


def test_arithmetic_takes_no_tokens():
    for name in ("negate", "reshape"):
        attrs = make_attrs(name, {"shape": ()} if name == "reshape" else {})
        with pytest.raises(InferError, match="a token has no elements"):
            infer(name, (tensor(token),), attrs)
    with pytest.raises(GraphgenError, match="dtype is token"):
        make_attrs("convert", {"dtype": token})
    assert dtype("token") is token
    assert OPS["call"] is not None


@pytest.mark.parametrize(
    ("text", "trips"), [("replica_count=3", 3), ("num_partitions=3", 0), ("is_scheduled=true", 0)]
)
def test_groups_of_all_ranks(text: str, trips: int):
    source = SCALARS.replace("HloModule scalars", f"HloModule scalars, {text}")
    source = (
        source[: source.index("ENTRY")]
        + """ENTRY %main (x: bf16[4]) -> bf16[4] {
  %x = bf16[4] parameter(0)
  ROOT %y = bf16[4] all-reduce(%x), replica_groups={}, to_apply=%add
}
"""
    )
    module = read_hlo(parse_hlo_text(source))
    (op,) = module.programs()[0].block
    if trips:
        assert op.attrs.groups("replica_groups") == (tuple(range(trips)),)
    else:
        assert op.name == "hlo.opaque"
        assert "all-reduce: its group" in module.meta["opaque"]


def test_a_type_holds_the_values_of_a_narrower_one():
    def held(kind: str) -> set[str]:
        return {name for name, other in DTYPES.items() if holds(DTYPES[kind], other)}

    assert held("s8") == {"pred", "s2", "s4", "s8", "u2", "u4"}
    assert held("u8") == {"pred", "u2", "u4", "u8"}
    assert held("bf16") == {"pred", "s2", "s4", "s8", "u2", "u4", "u8", "bf16"}
    assert {"f16", "bf16", "s16", "f8e4m3"} <= held("f32")
    assert "s32" not in held("f32")
