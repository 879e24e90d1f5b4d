"""Attributes that no op models: shardings, meshes, layouts, precision, composites, custom calls.

Each is read as an annotation, shown, written again in a form that MLIR takes, and compared.
"""

# MLIR writes long lines.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from graphgen.analysis.annotation_diff import module_differences
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.mlir.generic_form import generic_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.lowering.stablehlo.shardy import hlo_sharding, parse_mesh
from graphgen.report.diff import diff_functions
from graphgen.text import parse, print_module

HEAD = "module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n"
MESH = '  sdy.mesh @mesh = <["data"=2, "model"=2]>\n'
SHARDY = (
    HEAD
    + MESH
    + """  func.func public @main(
      %x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
      %w: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>})
      -> (tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {"model"}]> : tensor<8x32xf32>
    return %1 : tensor<8x32xf32>
  }
}
"""
)
GSPMD = (
    HEAD
    + """  func.func public @main(
      %x: tensor<8x16xf32> {mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"})
      -> (tensor<8x16xf32> {mhlo.sharding = "{replicated}"}) {
    %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2,2]<=[4]}"} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
"""
)
MANUAL = (
    HEAD
    + MESH
    + """  func.func public @main(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> tensor<8x32xf32> {
    %0 = sdy.manual_computation(%x, %w) in_shardings=[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"model"}, {}]>] out_shardings=[<@mesh, [{"data"}, {}]>] manual_axes={"data", "model"} (%a: tensor<4x8xf32>, %b: tensor<8x32xf32>) {
      %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x32xf32>) -> tensor<4x32xf32>
      %2 = "stablehlo.all_reduce"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %3 = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %3 : tensor<f32>
      }) : (tensor<4x32xf32>) -> tensor<4x32xf32>
      sdy.return %2 : tensor<4x32xf32>
    } : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    return %0 : tensor<8x32xf32>
  }
}
"""
)


def notes(module: Module) -> list[tuple[str, dict[str, object]]]:
    return [
        *[
            (value.name or "", dict(value.annotations))
            for function in module.functions.values()
            for value in function.args
        ],
        *[
            (op.name, dict(op.annotations))
            for function in module.functions.values()
            for op in function.ops
        ],
        *[(name, dict(item.annotations)) for name, item in module.functions.items()],
    ]


def written(module: Module) -> str:
    """The module as text, which MLIR takes, and which is read as the same module."""
    text = emit_stablehlo(module, module.programs()[0], locs=False)
    generic_text(text, "written")
    again = read_stablehlo(text)
    kept = [item for item in notes(again) if item[1]]
    assert [found for _, found in kept] == [found for _, found in notes(module) if found]
    assert again.meta == module.meta
    return text


def scalar_program(line: str) -> Module:
    return read_stablehlo(
        f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n  {line}\n"
        "  return %0 : tensor<4xf32>\n}\n"
    )


def test_shardy_is_shown_written_and_known_to_hlo():
    module = read_stablehlo(SHARDY)
    found = partitioning_of(module)
    assert found is not None
    assert (found.partitions, found.before, list(found.meshes)) == (4, True, ["mesh"])
    shown = [(item.name, str(item.per_rank)) for item in found.arguments]
    assert shown == [("x", "f32[4,16]"), ("w", "f32[16,16]")]
    text = written(module)
    assert '  sdy.mesh @mesh = <["data"=2, "model"=2]>\n' in text
    assert '%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}' in text
    assert 'sdy.sharding_constraint %0 <@mesh, [{"data"}, {"model"}]> : tensor<8x32xf32>' in text
    assert 'sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>})' in text
    again = read_hlo(emit_hlo(module, module.programs()[0]))
    argument = again.programs()[0].args[0]
    assert argument.annotations == module.programs()[0].args[0].annotations
    assert again.meta["hlo.num_partitions"] == "4"


def test_shardings_of_gspmd_are_written_again():
    text = written(read_stablehlo(GSPMD))
    assert '{mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"}' in text
    assert 'jax.result_info = "result", mhlo.sharding = "{replicated}"}' in text
    assert '@"Sharding"(%x) {mhlo.sharding = "{devices=[2,2]<=[4]}"}' in text


def test_a_manual_computation_is_one_op_again():
    module = read_stablehlo(MANUAL)
    targets = [op.attrs.get("target") for op in module.programs()[0].ops]
    assert targets == ["xla.sdy.GlobalToLocalShape", None, "xla.sdy.LocalToGlobalShape"]
    text = written(module)
    line = next(line for line in text.splitlines() if "sdy.manual_computation(" in line)
    assert 'out_shardings=[<@mesh, [{"data"}, {}]>] manual_axes={"data", "model"}' in line
    assert "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>" in text
    # XLA takes a function of that name for one that it has written itself.
    assert "xla.sdy.manual_computation_body" not in text
    assert parse(print_module(module)).functions.keys() == module.functions.keys()


def differences(first: Module, second: Module) -> list[str]:
    (one,), (other,) = first.programs(), second.programs()
    found = diff_functions((first, second), one, other)
    return [*module_differences(first, second), *found.interface, *map(str, found.changes)]


@pytest.mark.parametrize("text", [SHARDY, GSPMD, MANUAL], ids=["shardy", "gspmd", "manual"])
def test_diff_compares_shardings(text: str):
    first = read_stablehlo(text)
    assert not differences(first, read_stablehlo(text))
    pairs = [('["data"=2, "model"=2]', '["data"=4, "model"=1]'), ("[2,2]<=[4]", "[4,1]<=[4]")]
    for old, new in pairs:
        if old in text:
            assert differences(first, read_stablehlo(text.replace(old, new)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('<@m, [{"a"}, {}]>', "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        ('<@m, [{}, {"b"}]>', "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        ('<@m, [{"a", "b"}, {}]>', "{devices=[8,1]<=[8]}"),
        ('<@m, [{"b", "a"}]>', "{devices=[8]<=[2,4]T(1,0)}"),
        ('<@m, [{"b":(1)2, ?}]>', "{devices=[2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}"),
        ('<@m, [{}, {}], replicated={"a"}>', "{replicated}"),
        ("<@one, []>", "{maximal device=3}"),
        ('<@m, [{"a"}], unreduced={"b"}>', ""),
        ('<@other, [{"a"}]>', ""),
    ],
)
def test_shardings_of_shardy_in_the_words_of_hlo(text: str, wanted: str):
    meshes = {
        name: parse_mesh(mesh)
        for name, mesh in {"m": '<["a"=2, "b"=4]>', "one": "<[], device_ids=[3]>"}.items()
    }
    known = {name: mesh for name, mesh in meshes.items() if mesh is not None}
    assert hlo_sharding(f"#sdy.sharding{text}", known) == wanted


COMPOSITE = """func.func @main(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.composite "my.op" %x, %y {composite_attributes = {k = 3.5 : f64, r = dense<[1, 2]> : tensor<2xi32>}, decomposition = @"my.op", version = 2 : i32} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func private @"my.op"(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.subtract %a, %b : tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""


def test_a_composite_is_a_call_with_its_attributes():
    module = read_stablehlo(COMPOSITE)
    (call,) = module.programs()[0].ops
    assert (call.name, call.annotations["hlo.is_composite"]) == ("call", "true")
    text = written(module)
    assert '= stablehlo.composite "my.op" %x, %y {composite_attributes = {k = 3.5 : f64, ' in text
    x, y = np.array([1, 2, 3], np.float32), np.array([3, 1, 1], np.float32)
    (found,) = module.evaluate({"x": x, "y": y}).values()
    np.testing.assert_array_equal(found, x - y)
    again = read_hlo(emit_hlo(module, module.programs()[0]))
    (back,) = again.programs()[0].ops
    assert dict(back.annotations) == dict(call.annotations)


@pytest.mark.parametrize(
    "line",
    [
        'stablehlo.sine %x {mhlo.frontend_attributes = {a = "1", foo = "b c"}} : tensor<4xf32>',
        "stablehlo.sine %x {mhlo.other = 7 : i32} : tensor<4xf32>",
        "stablehlo.custom_call @f(%x) {api_version = 4 : i32, backend_config = {index = 1 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>]} : (tensor<4xf32>) -> tensor<4xf32>",
        'stablehlo.custom_call @f(%x) {backend_config = "{a}\\22", has_side_effect = true, mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<4xf32>',
        "stablehlo.custom_call @f(%x) {output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]} : (tensor<4xf32>) -> tensor<4xf32>",
    ],
    ids=["frontend", "other", "typed", "effect", "alias"],
)
def test_attributes_of_ops(line: str):
    module = scalar_program(f"%0 = {line}")
    text = written(module)
    again = read_stablehlo(text)
    kinds = [(op.name, op.attrs) for op in again.programs()[0].ops]
    assert kinds == [(op.name, op.attrs) for op in module.programs()[0].ops]
    found = read_hlo(emit_hlo(module, module.programs()[0]))
    assert next(found.programs()[0].ops).attrs == next(module.programs()[0].ops).attrs


def test_a_barrier_gives_what_it_takes():
    module = scalar_program(
        "%0, %1 = stablehlo.optimization_barrier %x, %x : tensor<4xf32>, tensor<4xf32>"
    )
    assert "stablehlo.optimization_barrier %x, %x : tensor<4xf32>, tensor<4xf32>" in written(module)
    x = np.arange(4, dtype=np.float32)
    (found,) = evaluate(module.programs()[0], {"x": x}).values()
    np.testing.assert_array_equal(found, x)


ALGORITHM = "lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false"


def test_the_algorithm_of_a_product_is_kept():
    module = read_stablehlo(
        '"func.func"() <{function_type = (tensor<2x2xf32>) -> tensor<2x2xf32>, sym_name = "main"}> '
        "({\n^bb0(%x: tensor<2x2xf32>):\n"
        '  %0 = "stablehlo.dot_general"(%x, %x) <{algorithm = #stablehlo.dot_algorithm<'
        f"{ALGORITHM}>, dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
        "rhs_contracting_dimensions = [0]>}> : (tensor<2x2xf32>, tensor<2x2xf32>) -> "
        'tensor<2x2xf32>\n  "func.return"(%0) : (tensor<2x2xf32>) -> ()\n}) : () -> ()\n'
    )
    (product,) = module.programs()[0].ops
    assert dict(product.annotations) == {"hlo.algorithm": "dot_bf16_bf16_f32_x3"}
    assert f"algorithm = #stablehlo.dot_algorithm<{ALGORITHM}>" in written(module)


def test_what_stablehlo_has_no_words_for_is_refused_by_name():
    module = scalar_program("%0 = stablehlo.sine %x : tensor<4xf32>")
    text = print_module(module).replace("sine(%x)", 'sine(%x) hlo.result_accuracy="{tolerance}"')
    with pytest.raises(GraphgenError, match=r"no words for hlo\.result_accuracy") as caught:
        emit_stablehlo(parse(text), parse(text).programs()[0])
    assert caught.value.code == "GG0401"


RESOURCE = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.constant dense_resource<blob1> : tensor<2xf32>
  %1 = stablehlo.add %0, %x : tensor<2xf32>
  return %1 : tensor<2xf32>
}
"""
BLOBS = """{-#
  dialect_resources: {
    builtin: {
      blob1: "0x040000000000803F00000040"
    }
  }
#-}
"""


def test_constants_behind_the_module_are_read():
    module = read_stablehlo(RESOURCE + BLOBS)
    (found,) = module.evaluate({"x": np.ones(2, np.float32)}).values()
    np.testing.assert_array_equal(found, np.array([2, 3], np.float32))


def test_constants_that_a_file_leaves_out_are_shown_and_not_computed_with():
    module = read_stablehlo(RESOURCE.replace("blob1", "__elided__"))
    assert "dense_resource<__elided__> : tensor<2xf32>" in written(module)
    with pytest.raises(GraphgenError, match=r"hlo\.opaque constant") as caught:
        module.evaluate({"x": np.ones(2, np.float32)})
    assert caught.value.code == "GG0403"


def test_top_k_is_written_as_chlo_has_it():
    module = read_stablehlo(
        "func.func @main(%x: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>) {\n"
        "  %0:2 = chlo.top_k(%x, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)\n"
        "  return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>\n}\n"
    )
    assert '"chlo.top_k"(%x) <{k = 2 : i64}>' in written(module)


ALL_REDUCE = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, \
channel_handle = #stablehlo.channel_handle<handle = 5, type = TYPE>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %1 = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_the_type_of_a_channel_is_kept(kind: int):
    module = read_stablehlo(ALL_REDUCE.replace("TYPE", str(kind)))
    text = emit_stablehlo(module, module.programs()[0])
    assert text.count(f"channel_handle<handle = 5, type = {kind}>") == 1
    assert text.count("channel_handle") == 2


CALL = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @foo(%a) {VERSION} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@pytest.mark.parametrize(("number", "shown"), [(0, 0), (1, None), (2, 2), (3, 3), (None, None)])
def test_the_version_of_a_calls_interface_is_kept(number: int | None, shown: int | None):
    version = "" if number is None else f"api_version = {number} : i32"
    module = read_stablehlo(CALL.replace("VERSION", version))
    text = emit_stablehlo(module, module.programs()[0])
    assert ("api_version" in text) == (shown is not None)
    assert shown is None or f"api_version = {shown} : i32" in text
