"""Backends by name: what each compiles, plugins of JAX, the limit on time, IREE where it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import graphgen as gg
from graphgen.errors import GraphgenError
from graphgen.exec import run_program
from graphgen.ir import Module
from graphgen.lowering.backends import named
from graphgen.lowering.backends.named import backend_called, has_iree
from graphgen.lowering.cpu import isolated_run
from graphgen.lowering.cpu.backend import alone_for_xla
from graphgen.lowering.cpu.isolated_run import IsolatedRuns, isolated_on
from graphgen.lowering.stablehlo import read_stablehlo
from graphgen.worker_process import WorkerProcess
from tests.lowering.backends.test_triage import NESTED
from tests.oracles.small_modules import function

needs_iree = pytest.mark.skipif(
    not has_iree(), reason="IREE is not installed: graphgen-compiler[iree]"
)
GIVEN = {"buf": np.arange(10, dtype=np.float32), "i": np.array(9), "j": np.array(0)}
PLUGIN = """
from jax._src import xla_bridge
from jaxlib import xla_client


class Refusing:
    def __init__(self, client, status):
        self._client, self._status = client, status

    def __getattr__(self, name):
        return getattr(self._client, name)

    def compile_and_load(self, text, devices, options):
        if self._status:
            raise xla_client.XlaRuntimeError(self._status + ": of the stand-in")
        return self._client.compile_and_load(text, devices, options)


def register(name, status):
    def factory():
        return Refusing(xla_client.make_cpu_client(), status)

    xla_bridge.register_backend_factory(name, factory, priority=0, fail_quietly=False)


def initialize():
    register("other_cpu", "")
    for status in STATUSES:
        register(status.lower(), status)
"""
# The codes of PJRT_Error_Code.
STATUSES = (
    *("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)


def nested() -> Module:
    return read_stablehlo(NESTED, "nested.mlir")


def result(name: str) -> float:
    module = nested()
    (found,) = run_program(module, module.programs()[0], GIVEN, backend_called(name, 1))
    return float(np.asarray(found.array)[0])


def test_xla_compiles_what_stands_there_and_cpu_goes_around_its_fault():
    assert [result(name) for name in ("numpy", "cpu", "xla")] == [6, 6, 9]


def test_a_program_with_a_sharding_goes_to_xla_as_it_stands():
    """XLA reads the call itself: products keep their types."""
    module = gg.parse(
        function(
            "arg %x : bf16[2,4]",
            "arg %w : bf16[3,4]",
            '%s = custom_call(%x) target="Sharding" results=[bf16[2,4]] : bf16[2,4]',
            "%y = dot_general(%s, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 "
            ": bf16[2,3]",
            "return y = %y",
        )
    )
    program = next(iter(module.functions.values()))
    _, alone = alone_for_xla(module, program, as_is=True)
    assert [op.name for op in alone.block] == ["custom_call", "dot_general"]
    assert alone.outputs[0][1].type.text == "bf16[2,3]"


@pytest.mark.parametrize("name", ["tpu", "pjrt:", "pjrt:a b", "", "XLA"])
def test_other_names_are_refused(name: str):
    with pytest.raises(GraphgenError, match="is not a backend") as caught:
        backend_called(name)
    assert caught.value.code == "GG0705"
    assert "pjrt:PLATFORM" in caught.value.help


def test_a_missing_iree_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(named, "find_spec", lambda name: None)
    with pytest.raises(GraphgenError, match="IREE, which is not installed") as caught:
        backend_called("iree")
    assert "graphgen-compiler[iree]" in caught.value.help


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a plugin of JAX, on the path of child processes."""
    folder = tmp_path / "jax_plugins"
    folder.mkdir()
    text = PLUGIN.replace("STATUSES", repr(STATUSES))
    (folder / "several_stand_ins.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    known = dict(isolated_run._platforms)  # pyright: ignore[reportPrivateUsage]
    yield
    for name, runs in isolated_run._platforms.items():  # pyright: ignore[reportPrivateUsage]
        if name not in known:
            runs.worker.close()
    isolated_run._platforms.clear()  # pyright: ignore[reportPrivateUsage]
    isolated_run._platforms.update(known)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.usefixtures("plugins")
def test_the_cpu_client_of_jaxlib_under_another_name():
    assert result("pjrt:other_cpu") == 9


@pytest.mark.usefixtures("plugins")
def test_a_platform_that_is_none_is_named():
    with pytest.raises(GraphgenError, match="JAX has no platform nowhere") as caught:
        result("pjrt:nowhere")
    assert caught.value.code == "GG1005"
    assert "jax_plugins" in caught.value.help


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    "status",
    ["INTERNAL", *[pytest.param(s, marks=pytest.mark.slow) for s in STATUSES if s != "INTERNAL"]],
)
def test_an_error_of_pjrt_is_one_error_with_its_text(status: str):
    with pytest.raises(GraphgenError) as caught:
        result(f"pjrt:{status.lower()}")
    assert caught.value.code == "GG0401"
    assert caught.value.what == f"{status.lower()} refuses the program: {status}: of the stand-in"


def test_a_program_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHGEN_LIMITS", "run-seconds=1")
    deaf = WorkerProcess(lambda: (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(named, "ISOLATED", IsolatedRuns(deaf))
    with pytest.raises(GraphgenError, match="by XLA in 1 seconds") as caught:
        result("xla")
    assert "--limits run-seconds=N" in caught.value.help
    assert not isolated_on("cpu").worker.took_too_long


@needs_iree
def test_iree_gives_the_numbers_of_numpy():
    assert result("iree") == 6
    module = gg.Module("m")
    function = module.add(gg.Function("main", phase="main"))
    with gg.Builder(function, module) as b:
        x = b.input("x", gg.dtype("f32"), (2, 3))
        n = b.input("n", gg.dtype("s32"), (3,))
        b.output("y", b.softmax(x @ b.input("w", gg.dtype("f32"), (3, 4))))
        b.output("p", n < 2)
        b.output("h", b.convert(x, gg.dtype("bf16")) * 2.0)
    random = np.random.default_rng(0)
    given = {"x": random.standard_normal((2, 3), np.float32), "n": np.array([1, 2, 3], np.int32)}
    given["w"] = random.standard_normal((3, 4), np.float32)
    wanted, found = (
        run_program(module, function, given, backend_called(name)) for name in ("numpy", "iree")
    )
    for one, other in zip(wanted, found, strict=True):
        assert one.array.dtype == other.array.dtype
        np.testing.assert_allclose(
            one.array.astype(np.float64), other.array.astype(np.float64), rtol=1e-5
        )


@needs_iree
def test_iree_says_why_it_refuses_a_program():
    text = "func.func @main(%x: tensor<2xcomplex<f64>>) -> tensor<2xcomplex<f64>> {\n"
    text += (
        "  %0 = stablehlo.cbrt %x : tensor<2xcomplex<f64>>\n  return %0 : tensor<2xcomplex<f64>>\n}"
    )
    module = read_stablehlo(text.replace("complex<f64>", "f8E4M3B11FNUZ"), "f.mlir")
    x = {"x": np.zeros(2)}
    with pytest.raises(GraphgenError, match="IREE") as caught:
        run_program(module, module.programs()[0], x, backend_called("iree"))
    assert caught.value.code == "GG0401"
    assert "no reason given" not in caught.value.what
