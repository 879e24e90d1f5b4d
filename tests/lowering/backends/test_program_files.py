"""Files of users compiled as they stand, and what is written again instead, with its reason."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphgen.exec import run_program
from graphgen.ir import Function, Module
from graphgen.lowering.backends import named
from graphgen.lowering.backends.named import XlaBackend
from graphgen.lowering.backends.program_files import (
    THE_FILE,
    WRITTEN_AGAIN,
    ProgramFiles,
    describe_source,
)
from graphgen.lowering.cpu import isolated_run
from graphgen.lowering.cpu.compile_file import compiled_file
from graphgen.lowering.cpu.given_file import STABLEHLO, UnfitFileError
from graphgen.lowering.cpu.isolated_run import CompilerCrashError, IsolatedRuns
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.open import Source, open_source
from graphgen.lowering.runnable import runnable
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.worker_process import WorkerProcess
from tests.graphgen.cli.conftest import done, error, facts, graphgen

# An attribute that graphgen has no use for, and that it does not write again.
KEPT = """\
module @kept {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.tanh %x {mine.note = "as_it_stands"} : tensor<8xf32>
    %1 = stablehlo.add %0, %x : tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}
"""
SPLIT = """\
module @split attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(
      %x: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {"a"}]>})
      -> (tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a", "b"}, {}]>}) {
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {}]>]
        out_shardings=[<@mesh, [{"a"}, {}]>] manual_axes={"a"} (%y: tensor<4x6xf32>) {
      %1 = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 1,
          type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>,
          use_global_device_ids}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %2 = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %2 : tensor<f32>
      }) : (tensor<4x6xf32>) -> tensor<4x6xf32>
      %3 = stablehlo.add %1, %y : tensor<4x6xf32>
      sdy.return %3 : tensor<4x6xf32>
    } : (tensor<8x6xf32>) -> tensor<8x6xf32>
    return %0 : tensor<8x6xf32>
  }
}
"""
OPTIMIZED = """\
HloModule optimized, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %t = f32[4]{0} tanh(%p)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %f = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused
}
"""
TUPLE = """\
HloModule tuple

ENTRY %main (x: (f32[4], f32[4])) -> f32[4] {
  %x = (f32[4], f32[4]) parameter(0)
  %a = f32[4] get-tuple-element(%x), index=0
  %b = f32[4] get-tuple-element(%x), index=1
  ROOT %s = f32[4] subtract(%a, %b)
}
"""
PERMUTED = """\
HloModule permuted

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %y = f32[4] collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,0}}
}
"""
UNCALLED = """
func.func private @never(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @of_another_process(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.tanh %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""
# A plugin that keeps what it compiles in a file, and refuses one attribute.
PLUGIN = """
import os

from jax._src import xla_bridge
from jaxlib import xla_client


class Keeping:
    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    def compile_and_load(self, text, devices, options):
        data = text if isinstance(text, bytes) else text.encode()
        with open(os.environ["KEPT_PROGRAM"], "wb") as file:
            file.write(data)
        if b"refuse_this" in data:
            raise xla_client.XlaRuntimeError("INTERNAL: of the stand-in")
        return self._client.compile_and_load(text, devices, options)


def initialize():
    def factory():
        return Keeping(xla_client.make_cpu_client())

    xla_bridge.register_backend_factory("keeping", factory, priority=0, fail_quietly=False)
"""


def opened(data: bytes) -> tuple[Module, Function, ProgramFiles]:
    """A file as the commands open it."""
    source, files = Source("given", data), ProgramFiles()
    module = open_source(source)
    origin = describe_source(source, module)
    module = runnable(module)
    (function, *_) = module.programs()
    files.add(origin, module, function, changed=False)
    return module, function, files


def ran(data: bytes, *arrays: np.ndarray) -> tuple[list[np.ndarray], tuple[str, str]]:
    """The results of a file on XLA, and what was compiled."""
    module, function, files = opened(data)
    given = {value.name or "": array for value, array in zip(function.args, arrays, strict=True)}
    backend = XlaBackend(files=files)
    made = run_program(module, function, given, backend)
    return [np.asarray(output.array) for output in made], backend.compiled


def forms() -> dict[str, bytes]:
    """One program in every form that XLA takes."""
    import io

    from jax._src.interpreters import mlir
    from jax.extend.mlir import ir, serialize_portable_artifact

    text = KEPT.encode()
    bytecode = io.BytesIO()
    with mlir.make_ir_context():
        module = ir.Module.parse(KEPT.replace('{mine.note = "as_it_stands"} ', ""))
        module.operation.write_bytecode(bytecode)
        artifact = serialize_portable_artifact(module, "1.0.0")
    read = open_source(Source("kept", text))
    proto = emit_hlo(read, read.programs()[0])
    inside = b"\x0a" + _varint(len(proto)) + proto
    hlo = print_hlo_text(proto).encode()
    made = {"text": text, "bytecode": bytecode.getvalue(), "artifact": artifact}
    return {**made, "protobuf": proto, "HloProto": inside, "HLO text": hlo}


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


@pytest.mark.parametrize(
    "form", ["text", "bytecode", "artifact", "protobuf", "HloProto", "HLO text"]
)
def test_each_form_that_xla_takes_is_compiled_as_it_stands(form: str):
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    (y,), compiled = ran(forms()[form], x)
    assert compiled == (THE_FILE, "")
    np.testing.assert_allclose(y, np.tanh(x) + x, rtol=1e-5)


def test_a_file_of_partitions_is_split_by_xla():
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    (y,), compiled = ran(SPLIT.encode(), x)
    assert compiled == (THE_FILE, "")
    np.testing.assert_array_equal(y, x + np.tile(x[:4] + x[4:], (2, 1)))


def test_what_xla_optimized_is_written_again():
    x = np.linspace(-2, 2, 4, dtype=np.float32)
    (y,), compiled = ran(OPTIMIZED.encode(), x)
    assert compiled == (WRITTEN_AGAIN, "XLA has optimized it")
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-5)


def test_a_collective_among_partitions_that_the_file_does_not_state_is_written_again():
    (y,), compiled = ran(PERMUTED.encode(), np.arange(4, dtype=np.float32))
    assert compiled == (WRITTEN_AGAIN, "XLA has split it over partitions")
    assert y.tolist() == [0, 1, 2, 3]


def test_members_of_a_tuple_are_arguments_of_the_file():
    (y,), compiled = ran(TUPLE.encode(), np.full(4, 3, np.float32), np.ones(4, np.float32))
    assert compiled == (THE_FILE, "")
    assert y.tolist() == [2, 2, 2, 2]


def test_arguments_other_than_those_read_keep_the_file_from_xla():
    head = {"form": STABLEHLO, "ranks": 1, "partitions": 1, "results": [[8]]}
    for argument, result in (((4,), [8]), ((8,), [8, 1])):
        with pytest.raises(UnfitFileError, match="are not single arrays"):
            compiled_file({**head, "results": [result]}, KEPT.encode(), [argument])


def test_a_call_that_is_not_admitted_keeps_the_file_from_xla():
    """Nothing calls the function: what graphgen writes does not have it."""
    x = np.zeros(8, np.float32)
    (y,), (said, why) = ran(UNCALLED.encode(), x)
    assert (said, why) == (
        WRITTEN_AGAIN,
        "it calls of_another_process, which graphgen does not let XLA call",
    )
    assert y.tolist() == x.tolist()


def test_a_program_that_was_changed_is_written_again():
    module, function, files = opened(KEPT.encode())
    function.outputs = [
        (name, value.op.operands[0]) for name, value in function.outputs if value.op
    ]
    backend = XlaBackend(files=files)
    x = np.ones(8, np.float32)
    (found,) = run_program(module, function, {function.args[0].name or "": x}, backend)
    assert backend.compiled == (WRITTEN_AGAIN, "")
    np.testing.assert_allclose(found.array, np.tanh(x), rtol=1e-5)


@pytest.mark.parametrize("changed", [False, True])
def test_reasons_are_in_words(changed: bool):
    source, files = Source("given", KEPT.encode()), ProgramFiles()
    module = open_source(source)
    (function,) = module.programs()
    files.add(describe_source(source, module), module, function, changed=changed)
    assert (files.find(module, function) is None) == changed
    assert files.reason(module, function).startswith("its sizes are bound" if changed else "")


def test_a_file_that_ends_the_process_is_an_error(monkeypatch: pytest.MonkeyPatch):
    ending = (
        f"import os, sys; sys.stdin.buffer.read(8); os.kill(os.getpid(), {int(signal.SIGSEGV)})"
    )
    dying = WorkerProcess(lambda: (sys.executable, "-c", ending))
    monkeypatch.setattr(named, "ISOLATED", IsolatedRuns(dying))
    with pytest.raises(CompilerCrashError, match="SIGSEGV"):
        ran(KEPT.encode(), np.zeros(8, np.float32))


@pytest.fixture
def keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file in which a plugin keeps the program that it compiled last."""
    folder = tmp_path / "jax_plugins"
    folder.mkdir()
    (folder / "keeping.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("KEPT_PROGRAM", str(tmp_path / "kept.bin"))
    monkeypatch.setattr(isolated_run, "_platforms", {})
    yield tmp_path / "kept.bin"
    for runs in isolated_run._platforms.values():  # pyright: ignore[reportPrivateUsage]
        runs.worker.close()


def test_what_graphgen_would_not_write_reaches_the_compiler(keeping: Path, tmp_path: Path):
    module = open_source(Source("kept", KEPT.encode()))
    assert "as_it_stands" not in emit_stablehlo(module, module.programs()[0], preserved=False)
    file = tmp_path / "kept.mlir"
    file.write_text(KEPT, encoding="utf-8")
    made = facts("run", file, "--on", "pjrt:keeping")
    assert made["compiled"] == THE_FILE
    assert b"as_it_stands" in keeping.read_bytes()


@pytest.mark.usefixtures("keeping")
def test_a_fault_of_the_file_alone_has_the_file_as_its_reproducer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    text = KEPT.replace("as_it_stands", "refuse_this")
    Path("kept.mlir").write_text(text, encoding="utf-8")
    found = graphgen("triage", "kept.mlir", "--on", "pjrt:keeping", "--json")
    assert found.exit_code == 1, found.output
    assert "pjrt:keeping compiled: the file" in found.stderr
    (verdict,) = json.loads(found.stdout)["verdicts"]
    assert (verdict["verdict"], verdict["compiled"]) == ("refuses", THE_FILE)
    assert verdict["reproducer"]["fails_again"] is True
    assert Path("kept.triage/pjrt-keeping/program.mlir").read_text(encoding="utf-8") == text


def test_run_and_equiv_say_what_was_compiled(tmp_path: Path):
    first, second = tmp_path / "a.mlir", tmp_path / "b.hlo"
    first.write_text(KEPT.replace("8xf32", "4xf32"), encoding="utf-8")
    optimized = OPTIMIZED.replace("ROOT %f =", "%f =").replace(
        "calls=%fused\n", "calls=%fused\n  ROOT %r = f32[4]{0} add(%f, %x)\n"
    )
    second.write_text(optimized, encoding="utf-8")
    assert "note: compiled: the file\n" in done("run", first, "--on", "xla").stderr
    reason = "compiled: written again by graphgen (XLA has optimized it)"
    assert f"note: {reason}\n" in done("run", second, "--on", "xla").stderr
    assert "compiled" not in done("run", first, "--on", "numpy").stderr
    assert facts("run", first)["compiled"] is None
    made = graphgen("equiv", first, second, "--on", "xla", "--json")
    assert json.loads(made.stdout)["compiled"] == {
        str(first): THE_FILE,
        str(second): WRITTEN_AGAIN,
    }
    assert f"note: {second} {reason}\n" in made.stderr


@pytest.mark.usefixtures("keeping")
@pytest.mark.parametrize("command", [["validate"], ["bisect"], ["bisect", "--rounding"]])
def test_before_passes_the_file_is_compiled(tmp_path: Path, command: list[str]):
    file = tmp_path / "kept.mlir"
    file.write_text(KEPT, encoding="utf-8")
    words = [command[0], file, *command[1:], "-p", "cse", "--on", "pjrt:keeping"]
    said = "compiled: the file before passes, written again by graphgen after them"
    assert f"note: pjrt:keeping {said}\n" in done(*words).stderr
    # The compiler refuses the file, and would take what graphgen writes.
    file.write_text(KEPT.replace("as_it_stands", "refuse_this"), encoding="utf-8")
    assert "keeping refuses the program: INTERNAL" in graphgen(*words).output
    module = tmp_path / "kept.gg"
    done("import", file, "-o", module)
    words[1] = module
    assert f"note: pjrt:keeping compiled: {WRITTEN_AGAIN}\n" in done(*words).stderr
    reason = f"{WRITTEN_AGAIN} (only graphgen reads its form)"
    assert f"note: compiled: {reason}\n" in done("run", module, "--on", "xla").stderr


def test_host_code_is_refused_by_name(tmp_path: Path):
    file = tmp_path / "host.mlir"
    call = 'stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {mine.note = "n"}'
    text = KEPT.replace('stablehlo.tanh %x {mine.note = "as_it_stands"} : tensor<8xf32>', call)
    text = text.replace('"n"}', '"n"} : (tensor<8xf32>) -> tensor<8xf32>')
    file.write_text(text, encoding="utf-8")
    assert "custom_call xla_ffi_python_cpu_callback" in error("run", file, "--on", "xla")
