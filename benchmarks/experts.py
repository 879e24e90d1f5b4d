"""How long a mixture of experts takes in each form, and in the one that ``auto`` takes.

A mini of 64 experts, of which each token has two: a router and its experts, compiled for this CPU
in every form in one process. The forms are measured in turns, the best of several runs each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from graphgen.atomic_write import write_whole
from graphgen.build import Builder
from graphgen.config.option_words import DISPATCH_AUTO, EXPERT_DISPATCH
from graphgen.ir import DType, Function, Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.program import CpuProgram, compile_program
from graphgen.passes.core import parse_pipeline, run_pipeline

_EXPERTS, _CHOSEN, _WIDTH, _INNER = 64, 2, 256, 128
_TOKENS = (1, 8, 512)
_FORMS = EXPERT_DISPATCH[1:]
# The chosen form may take this many times what the best one takes.
_GOAL = 1.2


def mixture(tokens: int, element: DType, width: int, inner: int) -> Module:
    """A router and its experts, for tokens [T,H]."""
    module = Module("mixture", "canonical")
    function = module.add(Function("decode", phase="decode"))
    with Builder(function, module=module) as b:
        x = b.input("x", element, (tokens, width))
        router = b.weight("router", element, (_EXPERTS, width))
        gate, up = (b.weight(n, element, (_EXPERTS, inner, width)) for n in ("gate", "up"))
        down = b.weight("down", element, (_EXPERTS, width, inner))
        weights, indices = b.top_k(b.dot(x, router, f32), _CHOSEN)
        op = b.emit("experts", (x, indices, weights, gate, up, down), {"dtype": element})
        b.output("y", op.result)
    return module


def compiled(module: Module, form: str) -> tuple[CpuProgram, str]:
    """The program in a form, and what the pass says of its choice."""
    passes = parse_pipeline(
        f"dispatch-experts{{form={form}}},cse,fuse-projections,legalize,cse,dce"
    )
    reports = run_pipeline(module, passes)
    (function,) = module.programs()
    return compile_program(module, function), reports[0].remarks[0]


def measured(programs: Mapping[str, CpuProgram], runs: int) -> dict[str, float]:
    """The least seconds of each, in turns."""
    random, best = np.random.default_rng(0), dict.fromkeys(programs, float("inf"))
    first = next(iter(programs.values()))
    given = {
        name: pjrt.put([(random.standard_normal(type_.dims) / 8).astype(np.float32)])
        if type_.dtype is f32
        else pjrt.put([_narrow(random, type_.dims)])
        for name, type_ in first.arguments
    }
    for _ in range(runs):
        for name, program in programs.items():
            # What ran before has filled the caches with its own weights.
            program.launch(given)["y"][0].block_until_ready()
            start = time.perf_counter()
            program.launch(given)["y"][0].block_until_ready()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _narrow(random: np.random.Generator, dims: Sequence[int]) -> np.ndarray:
    import ml_dtypes

    return (random.standard_normal(dims) / 8).astype(ml_dtypes.bfloat16)


def row_of(tokens: int, element: str, width: int, inner: int, runs: int) -> dict[str, object]:
    """Seconds of each form, and which one is chosen."""
    module = mixture(tokens, dtype(element), width, inner)
    made = {form: compiled(clone_module(module), form)[0] for form in _FORMS}
    _, remark = compiled(clone_module(module), DISPATCH_AUTO)
    chosen = remark.partition("experts: ")[2].partition(";")[0]
    best = measured(made, runs)
    return {
        "case": f"{element}.t{tokens}",
        **{f"{form}_s": seconds for form, seconds in best.items()},
        "chosen": chosen,
        "ratio": best[chosen] / min(best.values()),
        "remark": remark,
    }


def main() -> None:
    """Print a line a case, and write rows of JSON; exit with 1 where a choice is too slow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=_TOKENS)
    parser.add_argument("--dtype", nargs="*", default=("f32", "bf16"))
    parser.add_argument("--width", type=int, default=_WIDTH)
    parser.add_argument("--inner", type=int, default=_INNER)
    parser.add_argument("--runs", type=int, default=31)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    for element in args.dtype:
        for tokens in args.tokens:
            row = row_of(tokens, element, args.width, args.inner, args.runs)
            rows.append(row)
            shown = [f"{form} {1e3 * cast(float, row[f'{form}_s']):.3f}" for form in _FORMS]
            print(row["case"], *shown, f"ms: {row['chosen']}, {row['ratio']:.2f} of the best")
    if args.json:
        write_whole(args.json, (json.dumps(rows, indent=2) + "\n").encode())
    worst = max(cast(float, row["ratio"]) for row in rows)
    if worst > _GOAL:
        raise SystemExit(f"a chosen form takes {worst:.2f} times the best, more than {_GOAL}")


if __name__ == "__main__":
    main()
