"""Parts of HLO that no op models: annotations, written again, taken by XLA, compared and shown."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.analysis.overview import overview
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Module, attrs_of
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.report.diff import diff_modules
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo


def read(text: str) -> Module:
    return read_hlo(parse_hlo_text(text))


def written(module: Module) -> str:
    """The HLO text of the program, after XLA took its protobuf and IR text kept it."""
    again = parse(print_module(module))
    (program,) = again.programs()
    proto = emit_hlo(again, program)
    xla_hlo.parsed(proto)
    return print_hlo_text(proto)


SHARDED = """HloModule m, num_partitions=4, frontend_attributes={a="b"}
ENTRY main {
  a = f32[8,4]{1,0} parameter(0), sharding={devices=[4,1]<=[4]}
  b = f32[8,4]{1,0} parameter(1), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  s = f32[8,4]{1,0} custom-call(a), custom_call_target="Sharding", sharding={devices=[1,4]0,2,1,3}
  ROOT t = (f32[8,4]{1,0}, f32[8,4]{1,0}) tuple(s, b), sharding={{replicated}, {manual}}
}
"""


def test_shardings_and_partitions_are_written_again():
    text = written(read(SHARDED))
    for part in SHARDED.split("sharding=")[1:]:
        assert f"sharding={part.splitlines()[0]}" in text
    assert "num_partitions=4" in text
    assert 'frontend_attributes={a="b"}' in text


def test_a_module_before_partitioning_says_how_it_will_be_split():
    found = partitioning_of(read(SHARDED))
    assert found is not None
    assert (found.partitions, found.before, found.sizes) == (4, True, "global")
    assert [item.per_rank and item.per_rank.text for item in found.arguments] == [
        "f32[2,4]",
        "f32[4,4]",
    ]
    plain = "HloModule m\nENTRY e {\n  ROOT a = f32[2] parameter(0)\n}"
    assert partitioning_of(read(plain)) is None


def test_modules_that_differ_in_shardings_or_partitions_differ():
    first = read(SHARDED)
    assert diff_modules(first, read(SHARDED)).same
    second = diff_modules(first, read(SHARDED.replace("[4,1]<=[4]", "[4,1]0,2,1,3")))
    assert not second.same
    assert (
        "sharding {devices=[4,1]<=[4]} / {devices=[4,1]0,2,1,3}" in second.programs[0].interface[0]
    )
    third = diff_modules(first, read(SHARDED.replace("partitions=4", "partitions=8")))
    assert third.module == ["module: num_partitions 4 / 8"]


def test_a_bitcast_that_changes_the_layout_is_a_transpose_and_written_as_it_was():
    module = read("""HloModule bc
ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  b = f32[3,2]{0,1} bitcast(x)
  c = f32[3,2]{1,0} copy(b)
  r = f32[2,3]{0,1} bitcast(c)
  ROOT n = f32[2,3]{0,1} negate(r)
}
""")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (program,) = module.programs()
    np.testing.assert_array_equal(evaluate(program, {"x": x})["output0"], -x)
    text = written(module)
    assert "f32[3,2]{0,1} bitcast(%x)" in text
    assert "f32[3,2]{1,0} copy(%b)" in text
    assert "f32[2,3]{0,1} bitcast(%c)" in text


def test_a_bitcast_of_shape_and_layout_moves_no_byte():
    module = read("""HloModule bc
ENTRY main {
  x = f32[2,6]{0,1} parameter(0)
  ROOT b = f32[4,3]{1,0} bitcast(x)
}
""")
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    (program,) = module.programs()
    np.testing.assert_array_equal(evaluate(program, {"x": x})["output0"], x.T.reshape(4, 3))
    written(module)


FUSED = """HloModule f, is_scheduled=true
fused (p: f32[4,8], q: f32[8,4]) -> f32[4,4] {
  p = f32[4,8]{1,0} parameter(0)
  q = f32[8,4]{1,0} parameter(1)
  ROOT d = f32[4,4]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY main {
  a = f32[4,8]{1,0} parameter(0)
  b = f32[8,4]{1,0} parameter(1)
  ROOT f = f32[4,4]{1,0} fusion(a, b), kind=kOutput, calls=fused
}
"""


def test_a_fusion_is_a_call_whose_work_counts():
    module = read(FUSED)
    (program,) = module.programs()
    assert overview(module, program).work.flops == 2 * 4 * 8 * 4
    assert "fusion(%a, %b), kind=kOutput, calls=%fused" in written(module)
    a, b = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)
    given = module.evaluate({"a": a, "b": b})
    np.testing.assert_array_equal(np.asarray(given["output0"]), a @ b)


def test_may_alias_stays_may_alias():
    module = read("""HloModule a, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY m {
  x = f32[4]{0} parameter(0)
  ROOT n = f32[4]{0} negate(x)
}
""")
    assert module.meta["hlo.may_alias"] == "x"
    assert "(0, {}, may-alias)" in written(module)


def test_an_annotation_of_another_shape_is_refused():
    module = read(SHARDED)
    (program,) = module.programs()
    program.args[0].annotations = attrs_of({"hlo.shape": "f32[4,8]{0,1}"})
    with pytest.raises(GraphgenError, match=r"hlo\.shape is of f32\[4,8\]") as caught:
        emit_hlo(module, program)
    assert caught.value.code == "GG0401"
