"""Calls of host code in dumps: run, or refused by name, on every way, and never a signal."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from jaxlib import xla_client
from jaxlib.cpu import _lapack  # pyright: ignore[reportMissingTypeStubs]

from graphgen.ops.admitted_calls import ADMITTED, LAPACK
from tests.graphgen.cli.conftest import error, facts, graphgen

# Host code that JAX's CPU client is told of, and names of older releases.
REGISTERED = sorted(
    {
        *_lapack.registrations(),
        *xla_client.custom_call_targets("cpu"),
        "xla_python_cpu_callback",
        "xla_ffi_partitioned_python_cpu_callback",
        "blas_strsm",
        "lapack_spotrf",
        "my_kernel",
    }
)
CALL = """
HloModule host
%top (a: f32[], b: f32[], c: s32[], d: s32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %c = s32[] parameter(2)
  %d = s32[] parameter(3)
  ROOT %g = pred[] compare(%a, %b), direction=GT
}
ENTRY %main (x: f32[4,4]) -> (f32[4,4], f32[4,2]) {
  %x = f32[4,4] parameter(0)
  %h = (f32[4,4], s32[]) custom-call(%x), custom_call_target="TARGET", \
api_version=API_VERSION_TYPED_FFI, metadata={op_name="h" source_file="net.py" source_line=8}
  %y = f32[4,4] get-tuple-element(%h), index=0
  BESIDE
  %k = f32[4,2] get-tuple-element(%t), index=0
  ROOT %r = (f32[4,4], f32[4,2]) tuple(%y, %k)
}
"""
# An op of XLA alone, and a call.
ALONE = '%t = (f32[4,2], s32[4,2]) custom-call(%x), custom_call_target="AwsNeuronTopK", \
backend_config="2"'
TOP_K = "%t = (f32[4,2], s32[4,2]) topk(%x), k=2, largest=true"


def test_the_table_has_all_of_jaxlibs_lapack():
    assert set(_lapack.registrations()) == LAPACK


@pytest.mark.parametrize("beside", [ALONE, TOP_K], ids=["alone", "topk"])
@pytest.mark.parametrize("target", REGISTERED)
@pytest.mark.one_in(12)
def test_every_registered_target_runs_or_is_refused(tmp_path: Path, target: str, beside: str):
    path = tmp_path / "h.hlo"
    path.write_text(CALL.replace("TARGET", target).replace("BESIDE", beside))
    for on in ("auto", "numpy", "cpu"):
        result = graphgen("run", path, "--on", on)
        assert result.exit_code in (0, 1), result.output
        if target not in ADMITTED:
            assert f"error[GG0403]: custom_call {target} cannot be run here" in result.stderr
            assert "net.py:8" in result.stderr
            assert "help: graphgen slice" in result.stderr


WHILE = """
HloModule w
%body (s: (s32[], f32[2])) -> (s32[], f32[2]) {
  %s = (s32[], f32[2]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[2] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %n = s32[] add(%i, %one)
  %y = f32[2] custom-call(%x), custom_call_target="xla_ffi_python_cpu_callback"
  ROOT %t = (s32[], f32[2]) tuple(%n, %y)
}
%cond (s: (s32[], f32[2])) -> pred[] {
  %s = (s32[], f32[2]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %three = s32[] constant(3)
  ROOT %l = pred[] compare(%i, %three), direction=LT
}
ENTRY %main (i: s32[], x: f32[2]) -> f32[2] {
  %i = s32[] parameter(0)
  %x = f32[2] parameter(1)
  %s = (s32[], f32[2]) tuple(%i, %x)
  %w = (s32[], f32[2]) while(%s), condition=%cond, body=%body
  ROOT %y = f32[2] get-tuple-element(%w), index=1
}
"""
OPAQUE = """
HloModule o
%red (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] custom-call(%a, %b), custom_call_target="xla_ffi_python_cpu_callback"
}
ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  ROOT %y = f32[2] all-reduce(%x), to_apply=%red, replica_groups={}
}
"""


@pytest.mark.parametrize("on", ["auto", "cpu"])
@pytest.mark.parametrize("text", [WHILE, OPAQUE], ids=["loop", "region of an opaque op"])
def test_calls_in_inner_computations_are_found(tmp_path: Path, text: str, on: str):
    path = tmp_path / "w.hlo"
    path.write_text(text)
    assert "custom_call xla_ffi_python_cpu_callback cannot" in error("run", path, "--on", on)


def test_what_jax_lowers_to_lapack_runs(tmp_path: Path):
    path, given, saved = tmp_path / "c.mlir", tmp_path / "in.npz", tmp_path / "out.npz"

    def program(x: jax.Array) -> tuple[jax.Array, ...]:
        return (*jax.numpy.linalg.qr(x), *jax.lax.top_k(x, 2), *jax.numpy.linalg.eigh(x @ x.T))

    x = np.random.default_rng(0).standard_normal((4, 4), np.float32)
    path.write_text(jax.jit(program).lower(x).as_text())
    np.savez(given, arg0=x)
    assert facts("run", path, "--inputs", given, "--save", saved)["on"] == "cpu"
    with np.load(saved) as made:
        for ours, theirs in zip(made.values(), program(jax.numpy.asarray(x)), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


FEED = """\
HloModule feed

body {
  s = (s32[], token[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  t = token[] get-tuple-element(s), index=1
  f = (s32[], token[]) infeed(t)
  v = s32[] get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  m = s32[] add(n, v)
  ROOT r = (s32[], token[]) tuple(m, u)
}

condition {
  s = (s32[], token[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  c = s32[] constant(3)
  ROOT p = pred[] compare(n, c), direction=LT
}

ENTRY main {
  x = s32[] parameter(0)
  t = token[] after-all()
  s = (s32[], token[]) tuple(x, t)
  w = (s32[], token[]) while(s), condition=condition, body=body
  ROOT y = s32[] get-tuple-element(w), index=0
}
"""
FED = """\
HloModule fed

ENTRY main {
  x = s32[] parameter(0)
  t = token[] after-all()
  f = (s32[], token[]) infeed(t)
  v = s32[] get-tuple-element(f), index=0
  ROOT y = s32[] add(x, v)
}
"""


@pytest.mark.parametrize("text", [FEED, FED], ids=["in a loop", "in the entry"])
@pytest.mark.parametrize("on", ["numpy", "cpu", "xla"])
def test_what_waits_for_a_host_is_refused(tmp_path: Path, text: str, on: str):
    """XLA would wait for numbers that nobody sends."""
    file = tmp_path / "feed.hlo"
    file.write_text(text, encoding="utf-8")
    said = error("run", file, "--on", on)
    assert "GG0403" in said
    assert "infeed" in said
