"""Programs that leave sizes open: read, written again, and run with sizes as JAX runs them."""

# jax carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.open import open_module
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.lowering.stablehlo.bind_sizes import (
    bind_sizes,
    leaves_sizes_open,
    open_sizes,
    size_arguments,
)
from graphgen.report.diff import diff_modules
from tests.graphgen.cli.conftest import done, error, facts, graphgen


def exported(run: Callable[..., Any], *shapes: str) -> Any:
    """A function exported for arguments of symbolic shapes."""
    scope = export.SymbolicScope()
    given = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32)
        for shape in shapes
    ]
    return export.export(jax.jit(run))(*given)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "elementwise": (lambda x: jnp.tanh(x) * 2 + x.sum(0), ("b, 4",)),
    "mean": (lambda x: x - x.mean(), ("b, 4",)),
    "reshape": (lambda x: jnp.concatenate([x.reshape(-1), x.reshape(-1) + 1]), ("b, 4",)),
    "product": (lambda x, y: jax.nn.softmax(x @ y), ("a, b", "b, 3")),
    "iota": (lambda x: x + jnp.arange(x.shape[0], dtype=np.float32)[:, None], ("b, 4",)),
    "slice": (lambda x: x[1:] - x[:-1], ("b, 4",)),
    "stride": (lambda x: x[::2], ("b, 4",)),
    "pad": (lambda x: jnp.pad(x, ((0, x.shape[0]), (1, 1))), ("b, 2",)),
    "index": (lambda x: x[-1] + x[0], ("b, 4",)),
    "gather": (lambda x: x[jnp.array([0, 1])], ("b, 4",)),
    "sort": (lambda x: jnp.argsort(x, 0), ("b, 4",)),
    "argmax": (lambda x: jnp.argmax(x, 0), ("b, 4",)),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, s: s * 0.5 + i, x), ("b, 4",)),
    "choice": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), ("b, 4",)),
    "scan": (lambda x: lax.scan(lambda s, r: (s + r, s), jnp.zeros(4), x), ("b, 4",)),
    "two sizes": (lambda x, y: (x[:, None] + y[None], x.shape[0] * y.shape[0]), ("a", "b")),
    "division": (lambda x: x.reshape(2, x.shape[0] // 2, 4).sum(0), ("2*b, 4",)),
    "repeat": (lambda x: x[None].repeat(2, 0), ("b",)),
    "attention": (
        lambda q, k: jnp.where(jnp.tri(q.shape[0], k.shape[0]) > 0, q @ k.T, -1e9),
        ("s, 4", "t, 4"),
    ),
}


def bound(module: Module, arrays: Mapping[str, Any]) -> Module:
    """The module with the sizes of arrays."""
    function = module.programs()[0]
    sizes = {
        name: arrays[argument].shape[place]
        for name, (argument, place) in open_sizes(function).items()
    }
    return bind_sizes(module, function, sizes, {})


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_jax_run_with_every_size(name: str):
    run, shapes = PROGRAMS[name]
    made = exported(run, *shapes)
    module = read_stablehlo(made.mlir_module())
    assert leaves_sizes_open(module)
    again = read_stablehlo(emit_stablehlo(module, module.programs()[0]))
    assert diff_modules(module, again).same
    rng = np.random.default_rng(0)
    for size in (6, 4):
        dims = [
            [{"2*b": size, "4": 4, "3": 3, "2": 2}.get(d.strip(), size) for d in shape.split(",")]
            for shape in shapes
        ]
        given = [rng.standard_normal(each).astype(np.float32) for each in dims]
        names = [value.name or "" for value in module.programs()[0].args]
        arrays = dict(zip(names, given, strict=True))
        wanted = jax.tree.leaves(run(*given))
        for each in (module, again):
            fixed = bound(each, arrays)
            assert not leaves_sizes_open(fixed)
            found = [*evaluate(fixed.programs()[0], arrays, module=fixed).values()]
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


VALUE = """func.func @main(%n: tensor<i64>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.convert %n : (tensor<i64>) -> tensor<i32>
  %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
  %2 = stablehlo.dynamic_iota %1, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %3 = stablehlo.add %2, %x : tensor<?xf32>
  return %3 : tensor<?xf32>
}
"""


def test_a_size_may_be_the_value_of_an_argument(tmp_path: Path):
    module = read_stablehlo(VALUE)
    function = module.programs()[0]
    assert (open_sizes(function), size_arguments(function)) == ({"x_0": ("x", 0)}, ["n"])
    fixed = bind_sizes(module, function, {"x_0": 3}, {"n": 3})
    x = np.array([1, 2, 3], np.float32)
    found = evaluate(fixed.programs()[0], {"n": np.array(3), "x": x})
    np.testing.assert_array_equal(next(iter(found.values())), x + np.arange(3))
    with pytest.raises(GraphgenError) as caught:
        bind_sizes(module, function, {"x_0": 4}, {"n": 3})
    assert caught.value.code in ("GG0105", "GG0203")
    file = tmp_path / "m.mlir"
    file.write_text(VALUE)
    inputs = tmp_path / "x.npz"
    np.savez(inputs, n=np.int64(5), x=np.ones(5, np.float32))
    assert "f32[5]" in done("run", file, "--inputs", inputs).stdout
    assert "f32[7]" in done("run", file, "--dims", "n=7,x_0=7").stdout
    assert "x_0=4, n=4 by default" in graphgen("run", file).stderr
    said = error("run", file, "--dims", "y=7")
    assert said.startswith("error[GG0705]: --dims: @main has no symbol 'y'")
    assert "it has x_0, n" in said


def test_lowering_writes_open_sizes_unless_they_are_bound(tmp_path: Path):
    file = tmp_path / "m.mlir"
    file.write_text(VALUE)
    written = done("lower", file, "--to", "stablehlo").stdout
    assert "stablehlo.dynamic_iota" in written
    assert "tensor<?xf32>" in written
    fixed = done("lower", file, "--to", "stablehlo", "--dims", "n=7,x_0=7").stdout
    assert "stablehlo.iota dim = 0 : tensor<7xf32>" in fixed
    assert "?" not in fixed
    said = error("lower", file, "--to", "hlo")
    assert said.startswith("error[GG0705]: @main leaves the sizes x_0, n open")
    assert "--dims x_0=4,n=4 binds them" in said
    done("lower", file, "--to", "hlo", "--dims", "n=7,x_0=7", "-o", tmp_path / "m.pb")
    assert facts("memory", file)["bytes"] > 0
    assert done("equiv", file, file).stdout.startswith("equal")


DATA = """func.func @main(%x: tensor<?xf32>, %i: tensor<2xi32>) -> tensor<?xf32> {
  %0 = stablehlo.slice %i [0:1] : (tensor<2xi32>) -> tensor<1xi32>
  %1 = stablehlo.slice %i [1:2] : (tensor<2xi32>) -> tensor<1xi32>
  %2 = stablehlo.constant dense<1> : tensor<1xi32>
  %3 = stablehlo.real_dynamic_slice %x, %0, %1, %2 : (tensor<?xf32>, tensor<1xi32>, \
tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  return %3 : tensor<?xf32>
}
"""


def test_sizes_that_depend_on_data_are_refused_by_op_and_line(tmp_path: Path):
    file = tmp_path / "m.mlir"
    file.write_text(DATA)
    assert "real_dynamic_slice" in done("inspect", file).stdout
    said = error("run", file)
    assert said.startswith("error[GG0103]: stablehlo.real_dynamic_slice: a shape that depends on")


def test_an_assertion_about_sizes_is_checked():
    module = read_stablehlo(exported(lambda x: x + 1, "2*b, 4").mlir_module())
    function = module.programs()[0]
    (name,) = open_sizes(function)
    bind_sizes(module, function, {name: 6}, {})
    with pytest.raises(GraphgenError, match="Input shapes do not match the polymorphic shapes"):
        bind_sizes(module, function, {name: 5}, {})


def test_exported_objects_and_their_files_are_read(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(
        "import jax, numpy as np\nfrom jax import export\n\n\ndef make():\n"
        "    (b,) = export.symbolic_shape('b')\n"
        "    x = jax.ShapeDtypeStruct((b, 4), np.float32)\n"
        "    return export.export(jax.jit(lambda x: x + x.shape[0]))(x)\n"
    )
    done("import", f"{script}:make", "-o", tmp_path / "m.gg")
    # A table of FlatBuffers that holds the module as a vector of bytes, as JAX writes it.
    module = bytes(exported(lambda x: x + x.shape[0], "b, 4").mlir_module_serialized)
    file = tmp_path / "exported.bin"
    file.write_bytes(b"\x08\0\0\0" + bytes(8) + len(module).to_bytes(4, "little") + module + b"\0")
    read = open_module(file)
    assert [size for size, _ in open_sizes(read.programs()[0]).values()] == ["arg0"]
    file.write_bytes(b"\x08\0\0\0" + bytes(8) + (1 << 30).to_bytes(4, "little") + module)
    with pytest.raises(GraphgenError, match="the exported program is damaged"):
        open_module(file)
