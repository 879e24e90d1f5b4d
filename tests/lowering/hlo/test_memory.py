"""What a read module takes in memory: at most three times its file, and nothing for constants."""

from __future__ import annotations

import gc
import mmap
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.hlo import decode_step
from graphgen.build import Builder
from graphgen.ir import Function, Literal, Module, tensor
from graphgen.ir.dtype import bf16
from graphgen.lowering.hlo import emit_hlo, hlo_chunks, read_hlo
from tests.lowering.hlo.test_read import of_jaxlib

MIB = 1 << 20


def held_by(file: Path) -> float:
    """Bytes of memory a read module holds, a byte of its file; the file itself is mapped."""
    with file.open("rb") as opened:
        data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        module = read_hlo(data)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert module.op_count()
    return (after - before) / len(data)


@pytest.mark.slow
def test_a_module_takes_three_times_its_file_at_most(tmp_path: Path):
    module = decode_step(12)
    (program,) = module.programs()
    # What is made once for all modules, such as shapes and attributes that are interned.
    small = decode_step(1)
    read_hlo(emit_hlo(small, small.programs()[0]))
    for name, data in (
        ("ours", emit_hlo(module, program)),
        ("jaxlib's", of_jaxlib(module, program)),
    ):
        file = tmp_path / name
        file.write_bytes(data)
        assert held_by(file) <= 3, name


def test_constants_stay_in_the_file(tmp_path: Path):
    module = Module("m", "target")
    function = module.add(Function("f"))
    big = Literal(bf16, (4096, 2048), bytes(16 * MIB))
    x = function.block.add_arg(tensor(bf16, (4096, 2048)), "x")
    with Builder(function) as b:
        function.outputs = [("y", b.add(x, b.emit("constant", (), {"value": big}).result))]
    file = tmp_path / "big.pb"
    file.write_bytes(b"".join(hlo_chunks(module, function)))
    assert file.stat().st_size > 16 * MIB
    assert held_by(file) < 0.01
