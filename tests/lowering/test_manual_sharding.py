"""Sharded programs of JAX before XLA splits them run on all ranks, with JAX's own outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.manual_sharding import on_ranks
from tests.graphgen.cli.conftest import done, facts, graphgen

# Programs on 8 devices: their text, inputs and outputs.
MAKE = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = np.array(jax.devices())
mesh = Mesh(devices.reshape(2, 2, 2), ("a", "b", "c"))
turned = Mesh(devices[[3, 1, 4, 0, 5, 2, 7, 6]].reshape(4, 2), ("a", "b"))
x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)

def mapped(f, ins, outs, on=mesh, **how):
    return jax.shard_map(f, mesh=on, in_specs=ins, out_specs=outs, check_vma=False, **how)

def nested(x):
    inner = jax.shard_map(lambda y: lax.psum(y, "b"), in_specs=P(None, "b"), out_specs=P(),
                          axis_names={"b"})
    return inner(x) * 2

def looped(x):
    return lax.fori_loop(0, 3, lambda i, h: h + lax.ppermute(h, "a", [(0, 1), (1, 0)]) * i, x)

everything = {
    "psum": mapped(lambda x: lax.psum(x, "a"), P("a"), P()),
    "pmean_of_some": mapped(lambda x: lax.pmean(x, ("b", "c")), P(("b", "c")), P()),
    "pmax": mapped(lambda x: lax.pmax(x, "a") - lax.pmin(x, "a"), P("a"), P()),
    "all_gather": mapped(lambda x: lax.all_gather(x, "a", tiled=True) * 2, P("a", "b"),
                         P(None, "b")),
    "psum_scatter": mapped(lambda x: lax.psum_scatter(x, "a", tiled=True), P(None, "b"),
                           P("a", "b")),
    "all_to_all": mapped(lambda x: lax.all_to_all(x, "b", 0, 1, tiled=True), P("a", "b"),
                         P("a", "b")),
    "ppermute": mapped(lambda x: lax.ppermute(x, "c", [(0, 1), (1, 0)]), P("c"), P("c")),
    "axis_index": mapped(lambda x: x + lax.axis_index("b") + 10 * lax.axis_index("c"),
                         P("c", "b"), P("c", "b")),
    "axes_on_one_dim": mapped(lambda x: x * (1 + lax.axis_index("a")), P(("a", "c"), "b"),
                              P(("a", "c"), "b")),
    "axes_turned": mapped(lambda x: x[:1] + lax.axis_index("c"), P(("c", "a")), P(("c", "a"))),
    "replicated": mapped(lambda x: x[:2] + lax.axis_index("a"), P(), P("a")),
    "partial": mapped(lambda x: lax.psum(x, "a") + lax.axis_index("a"), P("a"), P("a"),
                      axis_names={"a"}),
    "nested": jax.shard_map(nested, mesh=mesh, in_specs=P("a"), out_specs=P("a"),
                            axis_names={"a"}),
    "loop": mapped(looped, P("a"), P("a")),
    "other_device_order": mapped(lambda x: x + 100 * lax.axis_index("a") + lax.psum(x, "b"),
                                 P("a", "b"), P("a", "b"), turned),
    "pjit": jax.jit(lambda x: jnp.tanh(x @ x.T), out_shardings=NamedSharding(mesh, P("a", "b"))),
    "constraint": lambda x: lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("a"))) + 1,
}
for name, f in everything.items():
    made = jax.jit(f).lower(x)
    hlo = made.compiler_ir("hlo")
    for form, data in (
        ("mlir", made.as_text().encode()), ("debug.mlir", made.as_text(debug_info=True).encode()),
        ("hlo", hlo.as_hlo_text().encode()), ("pb", hlo.as_serialized_hlo_module_proto()),
    ):
        with open(f"{sys.argv[1]}/{name}.{form}", "wb") as file:
            file.write(data)
    np.savez(f"{sys.argv[1]}/{name}.npz", x=x, made=made.compile()(x))
"""
PROGRAMS = (
    *("psum", "pmean_of_some", "pmax", "all_gather", "psum_scatter", "all_to_all", "ppermute"),
    *("axis_index", "axes_on_one_dim", "axes_turned", "replicated", "partial", "nested", "loop"),
    *("other_device_order", "pjit", "constraint"),
)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", MAKE, folder], check=True, env=environment)
    return folder


def is_right(folder: Path, name: str, form: str, on: str) -> None:
    with np.load(folder / f"{name}.npz") as both:
        x, wanted = both["x"], both["made"]
    given, saved = folder / "in.npz", folder / "out.npz"
    argument = "arg0" if form == "mlir" else "x" if form == "debug.mlir" else "x.1"
    np.savez(given, **{argument: x})
    done("run", folder / f"{name}.{form}", "--inputs", given, "--save", saved, "--on", on)
    with np.load(saved) as made:
        (output,) = made.values()
    # All ranks are saved where they differ.
    output = output[0] if output.ndim > wanted.ndim else output
    np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["mlir", "hlo"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_sharded_program_gives_what_jax_gives(sharded: Path, name: str, form: str):
    is_right(sharded, name, form, "auto")


@pytest.mark.parametrize("form", ["debug.mlir", "pb"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(4)
def test_so_do_its_other_forms(sharded: Path, name: str, form: str):
    is_right(sharded, name, form, "auto")


@pytest.mark.parametrize("form", ["mlir", "hlo"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(4)
def test_so_does_xla(sharded: Path, name: str, form: str):
    is_right(sharded, name, form, "cpu")


WHOLE = """HloModule whole
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
ENTRY %main (x.1: f32[8,16]) -> f32[4,16] {
  %x.1 = f32[8,16] parameter(0)
  %r = f32[2,4,16] reshape(%x.1)
  %zero = f32[] constant(0)
  ROOT %y = f32[4,16] reduce(%r, %zero), dimensions={0}, to_apply=%add
}
"""


def test_it_is_equal_to_the_program_without_sharding(sharded: Path, tmp_path: Path):
    whole = tmp_path / "whole.hlo"
    whole.write_text(WHOLE)
    assert facts("equiv", sharded / "psum.hlo", whole)["equal"] is True
    other = tmp_path / "other.hlo"
    other.write_text(WHOLE.replace("add(%a", "maximum(%a"))
    assert graphgen("equiv", sharded / "psum.hlo", other).exit_code == 1


def test_passes_over_it_are_validated(sharded: Path):
    text = done("validate", sharded / "psum.hlo", "-p", "cse,dce").stdout
    assert "WRONG" not in text
    assert text.count(" ok") == 2


# As JAX wrote it before Shardy.
OLD = """HloModule old, num_partitions=4
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
ENTRY %main (x: f32[8,6]) -> f32[8,6] {
  %x = f32[8,6] parameter(0), sharding={devices=[4,1]IOTA}
  %s = f32[8,6] custom-call(%x), custom_call_target="Sharding", sharding={devices=[4,1]IOTA}
  %l = f32[2,6] custom-call(%s), custom_call_target="SPMDFullToShardShape", sharding={manual}
  %p = u32[] partition-id()
  %c = f32[] convert(%p)
  %w = f32[2,6] broadcast(%c), dimensions={}
  %m = f32[2,6] multiply(%l, %w)
  %r = f32[2,6] all-reduce(%m), replica_groups={{0,1,2,3}}, channel_id=1, \
use_global_device_ids=true, to_apply=%add
  %n = f32[2,6] add(%r, %m)
  %t = f32[2,6] custom-call(%n), custom_call_target="Sharding", sharding={manual}
  ROOT %g = f32[8,6] custom-call(%t), custom_call_target="SPMDShardToFullShape", \
sharding={devices=[4,1]IOTA}
}
"""


@pytest.mark.parametrize("on", ["auto", "cpu"])
@pytest.mark.parametrize(("text", "order"), [("<=[4]", [0, 1, 2, 3]), ("2,0,3,1", [2, 0, 3, 1])])
def test_the_targets_before_shardy(tmp_path: Path, text: str, order: list[int], on: str):
    path, given, saved = tmp_path / "o.hlo", tmp_path / "in.npz", tmp_path / "out.npz"
    path.write_text(OLD.replace("IOTA", text))
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    np.savez(given, x=x)
    done("run", path, "--inputs", given, "--save", saved, "--on", on)
    parts = [x[2 * n : 2 * n + 2] * device for n, device in enumerate(order)]
    with np.load(saved) as made:
        (output,) = made.values()
    np.testing.assert_array_equal(output, np.concatenate([sum(parts) + part for part in parts]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('target="Sharding", sharding={devices=[4,1]<=[4]}', 'target="Sharding"', "no sharding"),
        ("{devices=[4,1]<=[4]}\n  %l", "{devices=[2,2]<=[4]}\n  %l", "not a part of"),
        ("{devices=[4,1]<=[4]}\n  %l", "{replicated}\n  %l", "does not give each of 4"),
    ],
)
def test_a_part_that_no_sharding_gives_is_refused(old: str, new: str, message: str):
    text = OLD.replace("IOTA", "<=[4]")
    assert old in text
    with pytest.raises(GraphgenError, match=message):
        on_ranks(read_hlo(parse_hlo_text(text.replace(old, new)), "o.hlo"))
