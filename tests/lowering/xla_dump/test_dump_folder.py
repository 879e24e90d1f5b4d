"""Dump folders: what each file is, programs and their passes, what XLA says about memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.xla_dump.compile_options import read_compile_options, read_debug_options
from graphgen.lowering.xla_dump.dump_files import dump_file
from graphgen.lowering.xla_dump.dump_folder import (
    dumped_memory,
    is_dump_folder,
    read_folder,
    siblings,
)
from graphgen.lowering.xla_dump.memory_texts import (
    proto_allocations,
    read_allocations,
    read_live_ranges,
    report_bytes,
    total_bytes,
)
from graphgen.lowering.xla_dump.pass_history import follow_op, pass_changes
from graphgen.lowering.xla_dump.thunk_text import read_thunks
from tests.oracles import xla_dump, xla_programs

NAMES = {
    "module_0000.jit_f.before_optimizations.txt": "before optimizations",
    "module_0000.jit_f.before_optimizations.hlo.pb": "before optimizations",
    "module_12345.a.b.c.cpu_after_optimizations.txt": "after optimizations",
    "module_0000.jit_f.sm_8.0_gpu_after_optimizations.hlo.pb": "after optimizations",
    "module_0000.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt": "buffer assignment",
    "module_0000.jit_f.cpu_after_optimizations-buffer-assignment-values.txt": "used values",
    "module_0000.jit_f.cpu_after_optimizations-live-range.txt": "live ranges",
    "module_0000.jit_f.cpu_after_optimizations-memory-usage-report.pb": "memory usage report",
    "module_0000.jit_f.sm_8.0_gpu_after_optimizations_before_buffer_assignment.txt":
        "after optimizations",
    "module_0000.jit_f.gpu.0012.simplification.after_algsimp.before_dce.txt": "pass",
    "module_0000.jit_f.0012.simplification.after_algsimp.hlo.pb": "pass",
    "module_0000.jit_f.thunk_sequence.txt": "thunk sequence",
    "module_0000.jit_f.debug_options": "debug options",
    "module_0000.jit_f.hlo_unoptimized_snapshot.0.pb": "snapshot with arguments",
    "module_0000.jit_f.fusion.1_kernel_module.ir-no-opt.ll": "LLVM IR",
    "module_0000.jit_f.obj-file.k.o": "object file",
    "module_0000.jit_f.ptx.ptx": "PTX",
    "module_0000.jit_f.neuron_optimized.txt": "after optimizations",
    "module_0000.jit_f/compile_options.pb": "compile options",
    "module_0000.jit_f/topology.pb": "topology",
    "module_0000.jit_f/module.mlir": "traced program",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_known_by_its_name(name: str, tmp_path: Path):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    found = dump_file(path, tmp_path)
    assert found.kind == NAMES[name]
    wanted = "module_12345.a.b.c" if "12345" in name else "module_0000.jit_f"
    assert found.program == wanted
    assert found.step == (12 if ".0012." in name else -1)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (xla_dump.ALLOCATIONS.encode(), "buffer assignment"),
        (xla_dump.RANGES.encode(), "live ranges"),
        (xla_dump.REPORT.encode(), "memory usage report"),
        (b'xla_dump_to: "d"\n', "debug options"),
        (b"\nTotal bytes used: 3\n", "used values"),
        (b"\x7fELF\x02", "object file"),
        (b"; ModuleID = 'k'\n", "LLVM IR"),
        (b"hello\n", "unknown"),
        (b"\x0a\x03abc", "unknown"),
    ],
)
def test_a_file_of_another_name_is_known_by_its_content(data: bytes, kind: str, tmp_path: Path):
    path = tmp_path / "renamed"
    path.write_bytes(data)
    assert dump_file(path).kind == kind


def test_a_folder_lists_programs(tmp_path: Path):
    folder = read_folder(xla_dump.write_dump(tmp_path / "d"))
    assert is_dump_folder(folder.path)
    assert not is_dump_folder(tmp_path)
    rows = [program.to_json(folder.path) for program in folder.programs]
    assert [row["program"] for row in rows if not row["small"]] == [xla_dump.NAME]
    (row,) = [row for row in rows if not row["small"]]
    facts = ("ops_before", "ops_after", "parameters", "taken_over", "outputs", "bytes", "passes")
    assert [row[key] for key in facts] == [7, 8, 2, 1, 1, 3072, 3]
    assert [file.path.name for file in folder.others] == ["notes.txt"]
    assert folder.program(None).name == xla_dump.NAME
    assert folder.program("jit_step").name == xla_dump.NAME
    with pytest.raises(GraphgenError, match="no program nothing"):
        folder.program("nothing")
    with pytest.raises(GraphgenError, match="the folder has 2 programs"):
        folder.program("convert")


def test_passes_are_followed(tmp_path: Path):
    states = read_folder(xla_dump.write_dump(tmp_path / "d")).program(None).states
    changes = pass_changes(states)
    assert [(change.name, change.pipeline) for change in changes] == [
        ("algsimp", "simplification"),
        ("fusion", "late.passes"),
    ]
    simplified, fused = changes
    assert (simplified.removed, simplified.rewritten) == (["n", "m"], [("t", "operands")])
    assert fused.fused == [("t", "f"), ("s", "f")]
    assert fused.added == ["p", "q", "f"]
    assert [what for _, what in follow_op(changes, "m")] == ["removes m"]
    told = [(change.name, what) for change, what in follow_op(changes, "t")]
    assert told == [("algsimp", "changes t: operands"), ("fusion", "fuses t into f")]
    assert follow_op(changes, "w") == []


ENDINGS = ("", "-buffer-assignment", "-live-range", "-memory-usage-report")


@pytest.mark.parametrize("ending", ENDINGS)
def test_memory_has_xlas_numbers_where_they_are_beside(ending: str, tmp_path: Path):
    folder = xla_dump.write_dump(tmp_path / "d")
    path = folder / f"{xla_dump.NAME}.cpu_after_optimizations{ending}.txt"
    found = dumped_memory(path)
    assert (found.stated, found.reserved, found.total) == (3072, 3072, 3072)
    assert found.xla_peak is not None
    assert (found.xla_peak.nbytes, found.xla_peak.instruction) == (4096, "f")
    assert [item.kind for item in found.assigned] == ["parameter", "parameter", "temp"]
    for name in ("buffer-assignment", "live-range", "memory-usage-report"):
        (folder / f"{xla_dump.NAME}.cpu_after_optimizations-{name}.txt").unlink()
    if not ending:
        assert dumped_memory(path).stated is None
        assert dumped_memory(path).total == 3072


def test_a_report_without_its_module_is_refused(tmp_path: Path):
    path = tmp_path / "x-buffer-assignment.txt"
    path.write_text(xla_dump.ALLOCATIONS)
    with pytest.raises(GraphgenError, match="the module that this file is about is not beside"):
        dumped_memory(path)


def test_the_assignment_inside_of_a_protobuf_is_read(tmp_path: Path):
    module, both = xla_programs.compiled("while")
    kinds = {item.kind for item in proto_allocations(both)}
    assert kinds >= {"parameter", "output", "temp", "constant"}
    names = {value.name for item in proto_allocations(both) for value in item.values}
    assert "?" not in names
    path = tmp_path / "module_0000.jit_f.cpu_after_optimizations.hlo.pb"
    path.write_bytes(both)
    found = dumped_memory(path)
    assert found.stated == sum([item.nbytes for item in proto_allocations(both)])
    assert proto_allocations(module) == []
    assert [file.path for file in siblings(path)] == [path]


def test_texts_of_memory_are_read():
    found = read_allocations(xla_dump.ALLOCATIONS)
    assert [(item.nbytes, item.kind, item.parameter, item.lives_out) for item in found] == [
        (1024, "parameter", 0, True),
        (1024, "parameter", 1, False),
        (1024, "temp", -1, False),
    ]
    assert [value.name for value in found[0].values] == ["w", "f"]
    peak = read_live_ranges(xla_dump.RANGES)
    assert [name for name, _ in peak.buffers] == ["d", "f", "w", "x"]
    assert peak.ranges[0] == ("w", 0, 3)
    assert total_bytes(xla_dump.REPORT) == 3072
    assert total_bytes("nothing") is None
    spaces = [wire.delimited(1, wire.integer(1, size)) for size in (36920, 80)]
    assert report_bytes(b"".join(spaces)) == 37000


@pytest.mark.parametrize("kind", ["constant", "thread-local"])
def test_kinds_of_allocations(kind: str):
    (item,) = read_allocations(f"BufferAssignment:\nallocation 4: size 4, {kind}:\n")
    assert item.kind == kind


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("BufferAssignment:\nallocation x\n", "this is not an allocation: allocation x"),
        (f"BufferAssignment:\nallocation 0: size {'9' * 30}, temp:\n", "too large"),
    ],
)
def test_a_damaged_assignment_names_its_line(text: str, reason: str):
    with pytest.raises(GraphgenError, match=reason):
        read_allocations(text, "f")


def test_live_ranges_without_a_peak_are_refused():
    with pytest.raises(GraphgenError, match="state no peak"):
        read_live_ranges("HloLiveRange (max 4):\n")


def test_options_are_read():
    text = 'xla_dump_to: "d"\nxla_disable_hlo_passes: "a"\nxla_disable_hlo_passes: "b"\nother: 3\n'
    assert read_debug_options(text) == {"xla_dump_to": "d", "xla_disable_hlo_passes": "a, b"}


def test_compile_options_are_those_of_jaxlib():
    from jaxlib import xla_client

    options = xla_client.CompileOptions()
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 2, 4
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    found = read_compile_options(options.SerializeAsString())
    assert (found["num_replicas"], found["num_partitions"]) == (2, 4)
    assert found["use_spmd_partitioning"] is True
    assert found["use_shardy_partitioner"] is True


def test_thunks_are_read():
    found = read_thunks("000: kGemm\tdot.1, x\n  kKernel op: fusion.2\nother\n")
    assert [(thunk.kind, thunk.name) for thunk in found] == [
        ("kGemm", "dot.1"),
        ("kKernel", "fusion.2"),
    ]
