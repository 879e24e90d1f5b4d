"""One program in several forms, or in two spellings, has no differences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, facts, graphgen

# Programs of JAX, each written in four forms of the same lowering: four devices are needed.
MAKE = """
import sys
from functools import partial
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import numpy as np

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("dp", "tp"))
on = lambda *spec: NamedSharding(mesh, P(*spec))
x = jnp.ones((8, 16))

def attention(q, k):
    return jnp.einsum("bhqd,bhkd->bhqk", q, k, precision=lax.DotAlgorithmPreset.BF16_BF16_F32)

def layers(x, w):
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), x, w)

def norm(x, y):
    return (x - x.mean(0, keepdims=True)) / x.std(1, keepdims=True) + y * 2

def step(w, x):
    return w - 0.1 * jax.grad(lambda w: (jnp.maximum(x @ w, 0) ** 2).sum())(w)

q = jnp.ones((2, 2, 4, 8))
programs = {
    "mlp": jax.jit(lambda x, w, v: jnp.tanh(x @ w) @ v, out_shardings=on("dp", None),
                   in_shardings=(on("dp", None), on(None, "tp"), on("tp", None))
                   ).lower(x, jnp.ones((16, 32)), jnp.ones((32, 16))),
    "attention": jax.jit(attention).lower(q, q),
    "layers": jax.jit(layers).lower(x, jnp.ones((3, 16, 16))),
    "norm": jax.jit(norm).lower(x, x),
    "step": jax.jit(step, donate_argnums=0).lower(jnp.ones((16, 4)), x),
    "sort": jax.jit(lambda x: (jnp.sort(x, 1), jnp.argmax(x, 0))).lower(x),
}
for name, made in programs.items():
    hlo = made.compiler_ir("hlo")
    for form, data in (
        ("mlir", made.as_text().encode()),
        ("debug.mlir", made.as_text(debug_info=True).encode()),
        ("pb", hlo.as_serialized_hlo_module_proto()),
        ("hlo", hlo.as_hlo_text().encode()),
    ):
        with open(f"{sys.argv[1]}/{name}.{form}", "wb") as file:
            file.write(data)
"""
PROGRAMS = ("mlp", "attention", "layers", "norm", "step", "sort")
FORMS = ("mlir", "debug.mlir", "pb", "hlo")
# XLA's converter simplifies a step, and puts the state of a loop in another order.
CONVERTED = ("step", "layers")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forms")
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", MAKE, folder], check=True, env=environment)
    return folder


@pytest.mark.parametrize("forms", [*combinations(FORMS, 2)], ids="-".join)
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_program_in_two_forms_is_equal(written: Path, program: str, forms: tuple[str, str]):
    one, other = (written / f"{program}.{form}" for form in forms)
    result = graphgen("diff", one, other)
    assert result.exit_code == 0, result.output
    mixed = forms[0].endswith("mlir") != forms[1].endswith("mlir")
    converted = "compared in HLO, as XLA's converter writes StableHLO" in result.stderr
    assert converted == (mixed and program in CONVERTED)


@pytest.mark.parametrize("program", CONVERTED)
def test_a_difference_in_another_form_is_shown_alone(written: Path, tmp_path: Path, program: str):
    """What the converter changes is left out, and what differs is not."""
    text = (written / f"{program}.mlir").read_text()
    changed = tmp_path / "changed.mlir"
    old, new = ("tanh", "logistic") if program == "layers" else ("subtract", "add")
    assert f"stablehlo.{old}" in text
    changed.write_text(text.replace(f"stablehlo.{old}", f"stablehlo.{new}"))
    result = graphgen("diff", changed, written / f"{program}.pb", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["compared_in"].startswith("HLO")
    ops = [change["what"] for each in found["programs"] for change in each["changes"]]
    assert any(new in what or old in what for what in ops), ops
    assert not any("broadcast" in what for what in ops), ops


OPEN = """func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.tanh %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""


def test_a_module_that_leaves_sizes_open_takes_those_of_the_other(tmp_path: Path):
    paths = [tmp_path / "open.mlir", tmp_path / "fixed.mlir"]
    paths[0].write_text(OPEN)
    paths[1].write_text(OPEN.replace("?", "3"))
    result = done("diff", *paths)
    assert "note: x_0=3: sizes of the other module" in result.stderr
    assert graphgen("diff", *paths, "--dims", "x_0=5").exit_code == 1


@pytest.mark.parametrize("program", ["mlp", "norm", "layers"])
@pytest.mark.parametrize("form", ["hlo", "hlo-text", "stablehlo"])
def test_a_program_written_here_is_equal_to_its_file(written: Path, program: str, form: str):
    source, made = written / f"{program}.mlir", written / f"{program}.{form}.made"
    done("lower", source, "--to", form, "-o", made)
    result = graphgen("diff", source, made)
    assert result.exit_code == 0, result.output


MODULE = """HloModule m, num_partitions=DEVICES
ENTRY %main (x: f32[4,2]) -> f32[4,2] {
  %x = f32[4,2] parameter(0), sharding=SHARDING
  ROOT %r = f32[4,2] negate(%x), sharding=SHARDING
}
"""


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("{devices=[2,1]0,1}", "{devices=[2,1]<=[2]}", True),
        ("{devices=[2,1]1,0}", "{devices=[2,1]<=[2]}", False),
        ("{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
         "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}", True),
        ("{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}",
         "{devices=[2,1,2]2,0,1,3 last_tile_dim_replicate}", True),
        ("{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
         "{devices=[2,1,2]<=[4] last_tile_dims={replicated}}", True),
        ("{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
         "{devices=[2,1,2]<=[4] last_tile_dims={manual}}", False),
        ("{replicated}", "{devices=[1,1,4]<=[4] last_tile_dim_replicate}", True),
        ("{devices=[2,2]<=[4]}", "{devices=[2,2]<=[2,2]T(1,0)}", False),
    ],
)  # fmt: skip
def test_shardings_are_compared_by_devices(tmp_path: Path, one: str, other: str, equal: bool):
    paths = [tmp_path / "a.hlo", tmp_path / "b.hlo"]
    for path, text in zip(paths, (one, other), strict=True):
        path.write_text(MODULE.replace("SHARDING", text).replace("DEVICES", "4"))
    assert graphgen("diff", *paths).exit_code == (0 if equal else 1)


TWO = """HloModule m
ENTRY %main (x: f32[4], y: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %y = f32[4] parameter(1)
  %n = f32[4] negate(%x)
  ROOT %r = f32[4] OP(%n, %y)
}
"""


@pytest.mark.parametrize(
    ("op", "equal"),
    [("add", True), ("multiply", True), ("maximum", True), ("subtract", False), ("power", False)],
)
def test_operands_of_commutative_ops_are_a_set(tmp_path: Path, op: str, equal: bool):
    paths = [tmp_path / "a.hlo", tmp_path / "b.hlo"]
    for path, order in zip(paths, ("%n, %y", "%y, %n"), strict=True):
        path.write_text(TWO.replace("OP", op).replace("%n, %y", order))
    assert graphgen("diff", *paths).exit_code == (0 if equal else 1)


def test_facts_that_one_form_has_are_notes(written: Path):
    paths = written / "mlp.mlir", written / "mlp.pb"
    assert any("num_partitions" in text for text in facts("diff", *paths)["only_in_one_form"])
    assert "not in both forms: num_partitions 4" in done("diff", *paths).stderr


def test_a_field_that_has_a_name_is_not_shown_in_hexadecimal(tmp_path: Path):
    paths = [tmp_path / "a.hlo", tmp_path / "b.hlo"]
    text = TWO.replace("OP", "add")
    paths[0].write_text(text)
    paths[1].write_text(
        text.replace("HloModule m", "HloModule m, allow_spmd_sharding_propagation_to_output={true}")
    )
    shown = graphgen("diff", *paths).output
    assert "field_" not in shown
