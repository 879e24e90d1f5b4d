"""Readers of programs that are fuzzed: IR, StableHLO, HLO, exported programs, Neuron's files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from graphgen.errors import GraphgenError
from tests.fuzz.target import ROOT, Target, command, json_seeds

_HLO: Final = """HloModule m, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  p = f32[2,3]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  e = f32[2,3]{1,0} exponential(p), metadata={op_name="a/b" source_file="a.py" source_line=3}
  z = f32[] constant(0)
  r = f32[2]{0} reduce(e, z), dimensions={1}, to_apply=add
  ROOT g = f32[2]{0} all-reduce(r), channel_id=1, replica_groups={{0,1}}, to_apply=add
}
"""
_STABLEHLO: Final = """module @m attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<2xf32> {jax.result_info = "y"}) {
    %c = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
    %z = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.add %arg0, %c : tensor<2x3xf32> loc("a.py":3:4)
    %1 = call @f(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    return %2 : tensor<2xf32>
  }
  func.func private @f(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %1 = stablehlo.reshape %0 : (tensor<3x2xf32>) -> tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
}
"""  # noqa: E501


def _module(path: Path) -> None:
    from graphgen.lowering.open import open_module

    open_module(path)


def _texts() -> list[bytes]:
    """IR of the tests, small modules first."""
    files = sorted(ROOT.glob("filecheck/**/*.gg"), key=lambda path: (path.stat().st_size, path))
    return [path.read_bytes() for path in files[:12]]


def _hlo_proto() -> list[bytes]:
    from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text

    return [parse_hlo_text(_HLO)]


def _bytecode() -> list[bytes]:
    from jax.extend.mlir import ir
    from jax.interpreters.mlir import make_ir_context

    with cast(Any, make_ir_context()):
        module = cast(Any, ir).Module.parse(_STABLEHLO)
        file = io.BytesIO()
        module.operation.write_bytecode(file)
    return [file.getvalue()]


@cache
def _exported() -> list[bytes]:
    import torch

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.inner(x))

    file = io.BytesIO()
    torch.export.save(torch.export.export(Small(), (torch.ones(2, 3),)), file)
    return [file.getvalue()]


def _xla_dump(path: Path) -> None:
    """A file of a dump folder, a module or one about its memory."""
    from graphgen.cli.inspect_dump import inspect_dump_file
    from graphgen.lowering.xla_dump.dump_folder import dumped_memory
    from graphgen.lowering.xla_dump.memory_use import to_fit
    from graphgen.lowering.xla_dump.pass_history import read_state

    found = inspect_dump_file(path)
    if found is not None:
        found.facts()
        return
    used = dumped_memory(path)
    to_fit(used, used.total // 2)
    read_state(path.read_bytes())


def _dumps() -> list[bytes]:
    from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
    from tests.oracles import xla_dump

    texts = (xla_dump.ALLOCATIONS, xla_dump.RANGES, xla_dump.REPORT, 'xla_dump_to: "d"\n')
    scheduled = _HLO.replace("HloModule m,", "HloModule m, is_scheduled=true,")
    modules = [parse_hlo_text(text) for text in (scheduled, xla_dump.AFTER)]
    return [*modules, *[text.encode() for text in texts]]


def _neff(path: Path) -> None:
    from graphgen.lowering.neuron.neff import read_neff

    read_neff(path)


def _neffs() -> list[bytes]:
    from tests.lowering.neuron.small_neff import small_neff

    return [small_neff()]


def _profile(path: Path) -> None:
    from graphgen.lowering.neuron.device_profile import is_profile, read_profile

    if is_profile(path, path.read_bytes()[:16]):
        read_profile(path)


_PROFILE: Final = {
    "summary": [{"total_time": 0.001, "model_name": "m"}],
    "instruction": [
        {"timestamp": 10, "duration": 5, "opcode": "MATMUL", "hlo_name": "r", "nc_idx": 0},
        {"timestamp": 16, "duration": 7, "opcode": "ACT", "hlo_name": "g", "nc_idx": 0},
    ],
}


def _recording(path: Path) -> None:
    """A recording of a profiler, its times and the bounds of its program."""
    from graphgen.lowering.open import Source, open_source
    from graphgen.lowering.profiles.measured_ops import measured_ops
    from graphgen.lowering.profiles.op_bounds import instruction_bounds
    from graphgen.lowering.profiles.open_profile import is_recording, read_recording
    from graphgen.lowering.profiles.program_times import program_times
    from graphgen.lowering.profiles.recording import DeviceRates

    if not is_recording(path):
        return
    found = read_recording(path)
    rates = found.rates or DeviceRates(1e9, 1e9, "a test")
    for times in program_times(found):
        hlo = found.modules.get(times.program)
        module = None if hlo is None else open_source(Source(times.program, hlo))
        measured_ops(times, instruction_bounds(module, hlo, rates))


def _recordings() -> list[bytes]:
    from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
    from tests.oracles import xla_dump
    from tests.oracles.xspace import Plane, xspace

    metadata, host, device = Plane("/host:metadata"), Plane("/host:CPU"), Plane("/device:TPU:0")
    metadata.kind("jit_step(3)", stats={"Hlo Proto": parse_hlo_text(xla_dump.AFTER)})
    stats = {"hlo_module": "jit_step", "program_id": 3, "run_id": 5, "_pt": 0}
    ops = [("d", 0, 40), ("f", 50, 7)]
    host.line("a", [(op, at, n, {"hlo_op": op, "_p": at, **stats}) for op, at, n in ops], start=9)
    host.line("b", [("end: d", 60, 1, {"_ct": 0, "_c": 0})])
    device.line("XLA Modules", [("jit_step(3)", 0, 90, {})])
    device.line("XLA Ops", [("%d = f32[2] dot(%a)", 0, 40, {}), ("f", 50, 7, {})])
    device.own = device.stats(6, {"memory_bandwidth": 7, "peak_teraflops_per_second": 2.0})
    return [xspace(metadata, host), xspace(device)]


_TRACE: Final = {
    "traceEvents": [
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "XLA Ops"}},
        {"ph": "X", "pid": 1, "tid": 2, "ts": 3.5, "dur": 2, "name": "add.1", "args": {}},
        {"ph": "X", "pid": 1, "tid": 3, "ts": 9, "dur": 2, "name": "d", "args": {"hlo_op": "d"}},
        {"ph": "X", "pid": 1, "tid": 3, "ts": 12, "dur": 0, "name": "end: d"},
    ]
}


def _arrays(path: Path) -> None:
    from graphgen.exec.inputs import read_arrays

    read_arrays(str(path))


def _npz() -> list[bytes]:
    import numpy as np

    file = io.BytesIO()
    np.savez(file, x=np.arange(6, dtype=np.float32).reshape(2, 3), n=np.int32(3))
    return [file.getvalue()]


def _expected(path: Path) -> None:
    from graphgen.runtime.accuracy.expected_outputs import read_expected

    read_expected(path)


def _lengths(path: Path) -> None:
    from graphgen.lowering.plan.request_lengths import read_request_lengths

    read_request_lengths(path)


def _work_folder(path: Path) -> None:
    from graphgen.lowering.neuron import describe

    (path.parent / "command.txt").write_bytes(path.read_bytes())
    (path.parent / "model.hlo_module.pb").write_bytes(b"x")
    describe(path.parent)


def _record(path: Path) -> None:
    from graphgen.lowering.compile_cache.cache_entry import read_flags, read_record

    folder = path.parent / "neuronxcc-2" / "MODULE_1"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("graphgen.json", "compile_flags.json"):
        (folder / name).write_bytes(path.read_bytes())
    read_record(folder)
    read_flags(folder)


def _layouts(path: Path) -> None:
    from graphgen.lowering.neuronx_cc.find_layouts import read_layouts

    read_layouts(path, ["w"])


def _kernels(path: Path) -> None:
    from graphgen.passes.kernels.kernel_artifacts import read_artifacts

    read_artifacts(str(path))


def _relation(path: Path) -> None:
    import numpy as np
    import numpy.typing as npt

    from graphgen.passes.equiv.relation_text import parse_relation

    def load(file: str, name: str) -> npt.NDArray[np.generic]:
        raise GraphgenError("GG0705", f"there is no {file}:{name}")

    parse_relation(path.read_bytes().decode("utf-8", "replace"), load)


def _pattern(path: Path) -> None:
    from graphgen.pattern.text import parse_pattern

    parse_pattern(path.read_bytes().decode("utf-8", "replace"))


def _lines(*rows: str) -> Sequence[bytes]:
    return ["\n".join(rows).encode() + b"\n"]


PROGRAMS: Final[dict[str, Target]] = {
    "ir": Target("module.gg", _module, _texts),
    "hlo text": Target("module.hlo", _module, lambda: [_HLO.encode()]),
    "hlo protobuf": Target("module.pb", _module, _hlo_proto),
    "stablehlo text": Target("module.mlir", _module, lambda: [_STABLEHLO.encode()]),
    "stablehlo bytecode": Target("module.mlirbc", _module, _bytecode, slow=True),
    "exported program": Target("module.pt2", _module, _exported, slow=True),
    "neff": Target("model.neff", _neff, _neffs),
    "XLA dump": Target("renamed", _xla_dump, _dumps),
    "profile": Target("profile.json", _profile, json_seeds(_PROFILE)),
    "xplane": Target("host.xplane.pb", _recording, _recordings),
    "trace events": Target("host.trace.json", _recording, json_seeds(_TRACE)),
    "arrays": Target("inputs.npz", _arrays, _npz),
    "expected outputs": Target(
        "expected.json",
        _expected,
        json_seeds({"format": "graphgen-expected-outputs-1", "prompts": [[1, 2]], "tokens": [[3]]}),
    ),
    "request lengths": Target(
        "lengths",
        _lengths,
        lambda: [*_lines("prompt,answer,count", "10,20,3"), *_lines('{"prompt": 3, "answer": 4}')],
    ),
    "work folder": Target("compile_flags.json", _work_folder, json_seeds(["--target", "trn2"])),
    "cache record": Target(
        "graphgen.json", _record, json_seeds({"format": 1, "files": {"model.neff": "0" * 64}})
    ),
    "layouts": Target("layout.hlo", _layouts, _hlo_proto),
    "kernel artifacts": Target(
        "kernels.json",
        _kernels,
        json_seeds(
            [
                {
                    "kernel": "k",
                    "config": {"kernel": "k", "func_name": "f"},
                    "arguments": {},
                    "operands": ["f32[2]"],
                    "results": ["f32[2]"],
                }
            ]
        ),
    ),
    "relation": Target(
        "relation.txt",
        _relation,
        lambda: [b"x=take{dim=1,map=[0,0,1]}|shard{-,tp}", b"y=quantized{scale=0.5}"],
    ),
    "pattern": Target("p.txt", _pattern, lambda: [b"dot_general(_, param){dtype=f32} -> reshape"]),
    "pipeline": Target(
        "pipeline.txt",
        command("pipeline", text=True),
        lambda: [b"canonicalize,default{tp=2,batch=[1,2]}"],
    ),
}
