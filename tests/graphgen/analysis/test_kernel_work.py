"""A call of a kernel costs the arithmetic of its meaning and the bytes that it is given."""

from __future__ import annotations

import pytest

from graphgen.analysis import inlined
from graphgen.analysis.overview import overview
from graphgen.analysis.work import kernel_work, run_work
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Dim, Module, Op
from graphgen.ir.dtype import bf16
from graphgen.ir.loc import UNKNOWN
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module

SLOTS, ATTENDED = 128, 64


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    """One decode program, with and without kernels."""
    made: dict[str, Module] = {}
    for kernels in ("on", "off"):
        module = build(known_shape("llama-3.1-8b"), bf16, phases=("decode",), mini=True)
        run_pipeline(module, default(CompileConfig(kernels=kernels, tokens=(ATTENDED,))))
        made[kernels] = module
    return made


def calls(module: Module, kernel: str) -> list[Op]:
    (program,) = module.programs()
    return [op for op in program.block if op.name == "call" and op.attrs.text("kernel") == kernel]


def number(count: Dim) -> int:
    assert isinstance(count, int)
    return count


def moved(module: Module, op: Op) -> int:
    return number(kernel_work(module, op).bytes)


def test_a_product_reads_its_packed_weight_once(modules: dict[str, Module]):
    module = modules["on"]
    head = calls(module, "graphgen.linear")[-1]
    x, weight = (value.type for value in head.operands)
    assert (weight.dims, head.result.type.dims[-1]) == ((17, 32, 16, 2), 257)
    work = kernel_work(module, head)
    assert work.bytes == x.nbytes + weight.nbytes + head.result.type.nbytes
    # The meaning is what XLA runs without the kernel, with rows padded to eight.
    assert work.flops == 8 * 2 * 64 * 257


def test_a_cache_counts_by_what_is_read_and_written_of_it(modules: dict[str, Module]):
    module = modules["on"]
    write = calls(module, "graphgen.cache_write")[0]
    cache = write.operands[0].type
    assert moved(module, write) < cache.nbytes / 4
    attention = calls(module, "graphgen.attention")[0]
    assert attention.operands[1].type == cache
    # Keys and values of half of the slots are read, each once; the copies are not in memory.
    caches = 2 * cache.nbytes * ATTENDED // SLOTS
    assert caches < moved(module, attention) < 3 * caches


def test_a_program_moves_little_more_than_its_weights_and_no_more_than_without(
    modules: dict[str, Module],
):
    found = {}
    for kernels, module in modules.items():
        (program,) = module.programs()
        found[kernels] = overview(module, program)
        block = inlined(module, program, kernels=False).block
        assert run_work(module, block) == found[kernels].work
    assert number(found["on"].work.bytes) < number(found["off"].work.bytes)
    assert found["on"].peak.bytes < found["off"].peak.bytes
    assert {call.target for call in found["on"].calls} == {
        "graphgen.linear",
        "graphgen.attention",
        "graphgen.cache_write",
        "graphgen.norm",
        "graphgen.rope",
    }
    assert found["off"].calls == []


def test_ops_of_a_meaning_are_where_the_call_is(modules: dict[str, Module]):
    module = modules["on"]
    (program,) = module.programs()
    plain = inlined(module, program)
    assert not [op for op in plain.block if op.name == "call"]
    unknown = [op for op in plain.block if op.loc.file == UNKNOWN.file]
    assert unknown == []
    scopes = {op.loc.scope for op in plain.block if op.name == "dot_general"}
    assert {"lm_head", "model.layers.1.mlp"} <= scopes


def test_calls_of_kernels_are_read_as_they_are_printed(modules: dict[str, Module]):
    text = print_module(modules["on"])
    assert 'kernel="graphgen.linear"' in text
    assert print_module(parse(text)) == text
