"""StableHLO of other compilers: JAX's text, bytecode, artifacts; short forms, names, mistakes."""

# MLIR writes long lines.
# ruff: noqa: E501

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import serialize_portable_artifact

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Module, Role
from graphgen.lowering.open import open_module
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.text import print_module
from tests.oracles.structure import structure


def block(x: jax.Array, w: jax.Array, cache: jax.Array, at: jax.Array) -> dict[str, jax.Array]:
    with jax.named_scope("layers/0"):
        y = jax.nn.silu(x @ w)
    cache = cache.at[at].set(y, mode="drop")
    return {"probabilities": jax.nn.softmax(y, axis=-1), "cache": cache}


# Of ``y = ...`` above.
LINE = block.__code__.co_firstlineno + 2


def arguments() -> tuple[jax.Array, ...]:
    random = np.random.default_rng(0)
    shapes = (4, 8), (8, 16), (6, 16)
    x, w, cache = (jnp.asarray(random.standard_normal(shape), jnp.float32) for shape in shapes)
    return x, w, cache, jnp.array([2, 9, 0, 1])


@pytest.fixture(scope="module")
def lowered() -> Any:
    return jax.jit(block, donate_argnums=2).lower(*arguments())


def bytecode(module: Any) -> bytes:
    out = BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue()


def forms(lowered: Any) -> dict[str, str | bytes]:
    module = lowered.compiler_ir("stablehlo")
    return {
        "text": lowered.as_text(),
        "with locations": lowered.as_text(debug_info=True),
        "generic": module.operation.get_asm(print_generic_op_form=True),
        "bytecode": bytecode(module),
        "artifact": serialize_portable_artifact(lowered.as_text(), "1.0.0"),
    }


def test_every_form_of_a_jax_program_is_the_same_program(lowered: Any):
    read = {name: read_stablehlo(data) for name, data in forms(lowered).items()}
    first = structure(read["text"].function("main"))
    for name, module in read.items():
        # The writer of artifacts shares constants and puts them first.
        assert name == "artifact" or structure(module.function("main")) == first
    wanted = jax.tree.leaves(block(*arguments()))
    for module in read.values():
        (function,) = module.programs()
        names = [value.name or "" for value in function.args]
        given = {name: np.asarray(a) for name, a in zip(names, arguments(), strict=True)}
        # A dictionary's leaves go by its keys; "cache" comes first.
        for array, other in zip(evaluate(function, given).values(), wanted, strict=True):
            np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-6)


def test_jax_names_places_and_donations(lowered: Any):
    module = read_stablehlo(lowered.as_text(debug_info=True), "block.mlir")
    rows = {row.name: row.role for row in module.interface.values()}
    assert rows == {
        "x": Role.INPUT,
        "w": Role.INPUT,
        "cache": Role.STATE,
        "at": Role.INPUT,
        "result.probabilities": Role.OUTPUT,
    }
    dot = next(op for op in module.function("main").block if op.name == "dot_general")
    assert Path(dot.loc.file).name == Path(__file__).name
    assert dot.loc.line == LINE
    assert dot.loc.scope == "jit(block).layers.0.dot_general"
    # What a called function does not say is as at the call.
    inner = next(op for op in module.function("main").block if op.name == "negate")
    assert inner.loc.line == LINE
    assert inner.loc.scope.startswith("jit(block).layers.0.")


def test_a_donor_takes_the_first_output_of_its_type():
    module = read_stablehlo(
        """
        module @m {
          func.func public @main(%x: tensor<2xf32>, %y: tensor<2xf32> {jax.buffer_donor = true},
              %z: tensor<3xf32> {jax.buffer_donor = true}) -> (tensor<2xi32>, tensor<2xf32>) {
            %0 = stablehlo.add %x, %y : tensor<2xf32>
            %1 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xi32>
            return %1, %0 : tensor<2xi32>, tensor<2xf32>
          }
        }
        """
    )
    assert [name for name, _ in module.function("main").outputs] == ["result.0", "y"]
    assert [row.name for row in module.entries(Role.STATE)] == ["y"]


def test_aliases_of_a_module_that_was_hlo():
    module = read_stablehlo(
        """
        module @m attributes {mhlo.input_output_alias = [{alias = {kind = 0 : i64,
            parameter_index = array<i64>, parameter_number = 1 : i64},
            output_index = array<i64: 1>}]} {
          func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>)
              -> (tensor<2xf32>, tensor<2xf32>) {
            return %arg0, %arg0 : tensor<2xf32>, tensor<2xf32>
          }
        }
        """
    )
    assert [name for name, _ in module.function("main").outputs] == ["result.0", "arg1"]


FORMS = """\
func.func @main(%x: tensor<2x3xf32>, %i: tensor<i32>) -> tensor<6xf32> {
  %half = stablehlo.constant dense<5.000000e-01> : tensor<f32>
  %cst = stablehlo.constant dense<[[1.0, 0x7F800000, -2.5e-1], [0.0, 1e3, 3.0]]> : tensor<2x3xf32>
  %splat = stablehlo.constant dense<2.0> : tensor<2x3xf32>
  %0 = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
  %1 = stablehlo.multiply %0, %splat : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.minimum %cst, %1 : tensor<2x3xf32>
  // a reduction from something that is not neutral, by a region
  %3 = stablehlo.reduce(%2 init: %half) across dimensions = [1]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
   reducer(%a: tensor<f32>, %b: tensor<f32>)  {
    %4 = stablehlo.add %b, %a : tensor<f32>
    stablehlo.return %4 : tensor<f32>
  }
  %z = stablehlo.constant dense<0> : tensor<i32>
  %5 = stablehlo.dynamic_slice %x, %i, %z, sizes = [1, 3] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
  %6 = stablehlo.reshape %5 : (tensor<1x3xf32>) -> tensor<3xf32>
  %7 = call @twice(%6) : (tensor<3xf32>) -> tensor<3xf32>
  %8 = stablehlo.concatenate %7, %3, dim = 0 : (tensor<3xf32>, tensor<2xf32>) -> tensor<5xf32>
  %9 = stablehlo.pad %8, %half, low = [0], high = [1], interior = [0] : (tensor<5xf32>, tensor<f32>) -> tensor<6xf32>
  return %9 : tensor<6xf32>
}
func.func private @twice(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %arg0, %arg0 : tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""


def test_short_forms_by_hand():
    module = read_stablehlo(FORMS, "forms.mlir")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = evaluate(module.function("main"), {"x": x, "i": np.asarray(1, np.int32)})
    # 0.5 and the rows of min(cst, 1): 1 + 1 - 0.25 and 0 + 1 + 1.
    np.testing.assert_array_equal(out["result"], [6, 8, 10, 2.25, 2.5, 0.5])
    assert "%half" in print_module(module)


def test_a_constant_that_only_starts_a_reduction_goes():
    text = """
    func.func @main(%x: tensor<2x3xf32>) -> (tensor<2xf32>, tensor<f32>) {
      %a = stablehlo.constant dense<0.0> : tensor<f32>
      %b = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %a) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
      %1 = stablehlo.reduce(%x init: %b) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
      %2 = stablehlo.add %1, %b : tensor<f32>
      return %0, %2 : tensor<2xf32>, tensor<f32>
    }
    """
    names = [op.name for op in read_stablehlo(text).function("main").block]
    assert names == ["constant", "reduce", "reduce", "add"]


def test_a_large_splat_stays_small():
    text = """
    func.func @main() -> tensor<512x512xf32> {
      %0 = stablehlo.constant dense<1.5> : tensor<512x512xf32>
      return %0 : tensor<512x512xf32>
    }
    """
    function = read_stablehlo(text).function("main")
    assert [op.name for op in function.block] == ["constant", "broadcast_in_dim"]
    assert evaluate(function, {})["result"].sum() == 1.5 * 512 * 512


def test_the_precision_of_a_product_is_kept():
    text = """
    func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }
    """
    module = read_stablehlo(text)
    assert dict(next(module.programs()[0].ops).annotations) == {
        "hlo.operand_precision": "{highest,highest}"
    }
    written = emit_stablehlo(module, module.programs()[0], locs=False)
    assert "precision_config = [#stablehlo<precision HIGHEST>, " in written


def refused(text: str) -> str:
    with pytest.raises(GraphgenError) as caught:
        read_stablehlo(text, "m.mlir")
    return str(caught.value)


def body(*lines: str) -> str:
    inner = "\n".join(f"  {line}" for line in lines)
    return f"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{\n{inner}\n}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "error[GG0201]: the text holds no module"),
        ("module @m {", "error[GG0201]: expected an op"),
        ("module @m {}", "error[GG0201]: the module has no function @main, and no other public one"),
        (body("%0 = stablehlo.fft %x : tensor<2xf32>"), "error[GG0104]: "),
        (
            body('%0 = "stablehlo.frobnicate"(%x) : (tensor<2xf32>) -> tensor<2xf32>'),
            "error[GG0103]: stablehlo.frobnicate is not modelled\n  --> m.mlir:2:3\n",
        ),
        (
            body("%0 = stablehlo.add %x, %y : tensor<2xf32>"),
            "error[GG0202]: %y is not defined before this op\n  --> m.mlir:2:3\n",
        ),
        (
            body("%0 = stablehlo.add %x, %x : tensor<3xf32>"),
            "error[GG0203]: stablehlo.add states tensor<3xf32>, but the op gives f32[2]\n",
        ),
        (
            body("%0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<3xf32>"),
            "error[GG0104]: a constant f32[3] has 2 elements\n",
        ),
        (
            body("%0 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf7>"),
            "error[GG0101]: unknown element type 'f7'\n",
        ),
        (
            body("%0 = call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>"),
            "error[GG0202]: no function @f\n",
        ),
        ("[" * 5000, "error[GG0201]: expected an op"),
        (body("%0 = stablehlo.iota dim = " + "[" * 5000), "error[GG0201]: nested deeper"),
        (body("%0 = stablehlo.add %x, \x01"), "error[GG0201]: this character has no meaning here"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(text: str, expected: str):
    assert refused(text).startswith(expected)


def test_a_function_that_calls_itself_is_refused():
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    """
    assert refused(text).startswith("error[GG0201]: nested deeper than 100\n")


def test_damaged_bytecode_is_an_error_of_its_own(tmp_path: Path):
    path = tmp_path / "m.bc"
    path.write_bytes(b"ML\xefR\rgarbage")
    with pytest.raises(GraphgenError) as caught:
        open_module(path)
    assert str(caught.value).startswith("error[GG0201]: MLIR cannot read it: ")


def test_the_seam_tells_files_by_what_is_in_them(lowered: Any, tmp_path: Path):
    read: list[Module] = []
    for index, data in enumerate(forms(lowered).values()):
        path = tmp_path / f"{index}.whatever"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        read.append(open_module(path))
    text = print_module(read[0])
    (tmp_path / "m.mlir").write_text(text)
    assert print_module(open_module(tmp_path / "m.mlir")) == text
