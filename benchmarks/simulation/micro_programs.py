"""Programs of a few ops: what products, small kernels, launches and collectives take here.

None of them is a model's. Each process times its own, while the others run the same beside it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphgen.eval.arithmetic import numpy_dtype
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.processes import join_processes
from graphgen.lowering.cpu.program import CpuProgram, compile_program
from graphgen.text import parse

# Seconds of work before and while something is timed.
_WARM, _TIMED = 0.1, 0.4
# Products with matrices of this width: 48 of 1.3 MB are more than a cache holds.
_CHAIN, _WIDTH = 48, 576


def kernels(given: dict[str, Any]) -> float:
    """Seconds of one small kernel: half of a normalization, whose values stay in the cache."""
    size = given["size"]
    short = _kernel_chain(size, 8)
    return (_kernel_chain(size, 136) - short) / 256


def _kernel_chain(size: int, count: int) -> float:
    lines = [f"arg %x : f32[1,{size}]", "%zero = constant() value=f32[](0.0) : f32[]"]
    before = "x"
    for i in range(count):
        lines += [
            f"%q{i} = multiply(%{before}, %{before}) : f32[1,{size}]",
            f"%s{i} = reduce(%q{i}) kind=add dimensions=[1] : f32[1]",
            f"%r{i} = rsqrt(%s{i}) : f32[1]",
            f"%b{i} = broadcast_in_dim(%r{i}) dimensions=[0] shape=[1,{size}] : f32[1,{size}]",
            f"%y{i} = multiply(%{before}, %b{i}) : f32[1,{size}]",
        ]
        before = f"y{i}"
    return _seconds(_program(lines, f"%{before}", 1), 1)[0]


def launches(given: dict[str, Any]) -> float:
    """Seconds of a launch with some arguments, with its result as an array of the host."""
    count = given["arguments"]
    lines = [f"arg %x{i} : f32[8]" for i in range(count)]
    lines += [f"%y{i} = add(%{f'y{i - 1}' if i else 'x0'}, %x{i}) : f32[8]" for i in range(count)]
    return _seconds(_program(lines, f"%y{count - 1}", 1), 1)[0]


def collectives(given: dict[str, Any]) -> tuple[float, float]:
    """Seconds, and seconds of this process's core, of one collective of all processes.

    Before each stands a product with a matrix that comes from memory, as in a model: what the last
    collective left in the caches is gone. The same products without collectives are taken off.
    """
    join_processes(given["address"], given["count"], given["index"], 300)
    alone, joined = _chain(given, False), _chain(given, True)
    return (joined[0] - alone[0]) / _CHAIN, (joined[1] - alone[1]) / _CHAIN


def _chain(given: dict[str, Any], exchanging: bool) -> tuple[float, float]:
    ranks, size = given["count"], given["elements"]
    groups = f"replica_groups=[[{','.join(map(str, range(ranks)))}]]"
    lines = [f"arg %x : f32[1,{_WIDTH}]", f"arg %e : f32[{size}]"]
    lines += [f"arg %w{i} : f32[{_WIDTH},{_WIDTH}]" for i in range(_CHAIN)]
    before, sums = "x", "e"
    for i in range(_CHAIN):
        lines += [
            f"%p{i} = dot_general(%{before}, %w{i}) lhs_contracting_dims=[1] "
            f"rhs_contracting_dims=[1] dtype=f32 : f32[1,{_WIDTH}]",
            f"%o{i} = slice(%p{i}) start_indices=[0,0] limit_indices=[1,1] strides=[1,1] : "
            "f32[1,1]",
            f"%b{i} = broadcast_in_dim(%o{i}) dimensions=[0,1] shape=[1,{size}] : f32[1,{size}]",
            f"%v{i} = reshape(%b{i}) shape=[{size}] : f32[{size}]",
            f"%s{i} = add(%{sums}, %v{i}) : f32[{size}]",
        ]
        sums = f"s{i}"
        if exchanging and given["op"] == "all_reduce":
            lines.append(f"%g{i} = all_reduce(%{sums}) kind=add {groups} : f32[{size}]")
            sums = f"g{i}"
        elif exchanging:
            lines += [
                f"%a{i} = all_gather(%{sums}) dimension=0 {groups} : f32[{ranks * size}]",
                f"%g{i} = slice(%a{i}) start_indices=[{size}] limit_indices=[{2 * size}] "
                f"strides=[1] : f32[{size}]",
            ]
            sums = f"g{i}"
        # The next product waits for it.
        lines += [
            f"%c{i} = slice(%{sums}) start_indices=[0] limit_indices=[1] strides=[1] : f32[1]",
            f"%d{i} = broadcast_in_dim(%c{i}) dimensions=[0] shape=[1,{_WIDTH}] : f32[1,{_WIDTH}]",
            f"%x{i} = add(%p{i}, %d{i}) : f32[1,{_WIDTH}]",
        ]
        before = f"x{i}"
    return _seconds(_program(lines, f"%{before}", ranks), ranks)


def _program(lines: Sequence[str], result: str, ranks: int) -> CpuProgram:
    mesh = f" mesh=tp:{ranks}" if ranks > 1 else ""
    body = "".join(f"  {line}\n" for line in [*lines, f"return y = {result}"])
    module = parse(f"module @m level=target{mesh} {{\n}}\n\nfunc @f {{\n{body}}}\n")
    return compile_program(module, module.function("f"))


def median_seconds(program: CpuProgram) -> float:
    """Seconds of a launch of a program of one rank."""
    return _seconds(program, 1)[0]


def _seconds(program: CpuProgram, ranks: int) -> tuple[float, float]:
    """The median of launches, and the mean seconds of the core."""
    values: dict[str, Any] = {}
    for name, type_ in program.arguments:
        array = np.full(type_.dims, 1e-3, numpy_dtype(type_.dtype))
        values[name] = pjrt.put([array] * ranks)
    # A collective of all processes has to be launched as often by each.
    once = _timed(program, values)
    once = min(once, _timed(program, values))
    warm, timed = (max(2, int(spent / once)) for spent in (_WARM, _TIMED))
    if ranks > 1:
        warm, timed = 8, 40
    for _ in range(warm):
        _timed(program, values)
    used = _core_seconds()
    seconds = [_timed(program, values) for _ in range(timed)]
    count = len(seconds)
    return float(np.median(seconds)), (_core_seconds() - used) / count


def _timed(program: CpuProgram, values: dict[str, Any]) -> float:
    start = time.perf_counter()
    (result,) = program.launch(values).values()
    np.asarray(result[0])
    return time.perf_counter() - start


def _core_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
