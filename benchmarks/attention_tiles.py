"""How long attention over a prompt takes as a whole, in tiles and by the CPU's kernel.

One attention of SmolLM2's heads with its caches, compiled for this CPU in each form in one process.
The forms take turns, the best of several runs each; ``auto`` says which of them the pass chooses.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphgen.atomic_write import write_whole
from graphgen.build import Builder
from graphgen.config.option_words import TILES_AUTO, TILES_OFF
from graphgen.eval import numpy_dtype
from graphgen.ir import DType, Function, Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import s32
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.program import CpuProgram, compile_program
from graphgen.passes.core import parse_pipeline, run_pipeline

_TOKENS = (256, 512, 1024)
_HEADS, _KV_HEADS, _SIZE = 9, 3, 64
_KERNEL = "kernel"
_FORMS = (TILES_OFF, "128", "256", "512", _KERNEL)


def attention(tokens: int, element: DType) -> Module:
    """A prompt of ``tokens`` that fills a row of the caches."""
    module = Module("attention", "canonical")
    function = module.add(Function("prefill", phase="prefill"))
    with Builder(function, module=module) as b:
        query = b.input("q", element, (1, tokens, _HEADS, _SIZE))
        positions = b.input("positions", s32, (1, tokens))
        lengths, rows = b.input("lengths", s32, (1,)), b.input("seq_ids", s32, (1,))
        mask = b.attention_mask(positions, b.key_positions(lengths, tokens))
        read = {}
        for name in ("keys", "values"):
            cache = b.state(name, element, (1, tokens, _KV_HEADS, _SIZE))
            new = b.input(f"new_{name}", element, (1, tokens, _KV_HEADS, _SIZE))
            updated = b.kv_update(cache, new, rows, positions)
            b.set_state(cache, updated)
            attrs = {"attended": tokens, "rows": "in_place"}
            read[name] = b.emit("cache_read", (updated, rows), {**attrs}).result
        b.output("y", b.attention(query, read["keys"], read["values"], mask, _SIZE**-0.5))
    return module


def compiled(module: Module, form: str) -> tuple[CpuProgram, str]:
    """The program in a form, and what the pass says of its choice."""
    copy, kernel = clone_module(module), form in (_KERNEL, TILES_AUTO)
    block = TILES_OFF if form == _KERNEL else form
    tiles = f"tile-attention{{block={block},kernels={str(kernel).lower()}}}"
    text = f"{tiles},{'select-kernels,' * kernel}legalize,cse,dce"
    reports = run_pipeline(copy, parse_pipeline(text))
    (function,) = copy.programs()
    return compile_program(copy, function), next(iter(reports[0].remarks), "whole")


def measured(programs: Mapping[str, CpuProgram], tokens: int, runs: int) -> dict[str, float]:
    """The least seconds of each, in turns."""
    best = dict.fromkeys(programs, float("inf"))
    random = np.random.default_rng(0)
    for _ in range(runs):
        for name, program in programs.items():
            given = {
                "positions": np.arange(tokens, dtype=np.int32)[None],
                "lengths": np.array([tokens], np.int32),
                "seq_ids": np.zeros(1, np.int32),
            }
            for key, kind in program.arguments:
                if key not in given:
                    array = random.standard_normal(kind.dims).astype(numpy_dtype(kind.dtype))
                    given[key] = array
            placed = {key: pjrt.put([array]) for key, array in given.items()}
            start = time.perf_counter()
            program.launch(placed)["y"][0].block_until_ready()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    """Print a line a case, and write rows of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=_TOKENS)
    parser.add_argument("--dtype", nargs="*", default=("f32", "bf16"))
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    for element in args.dtype:
        for tokens in args.tokens:
            module = attention(tokens, dtype(element))
            forms = [form for form in _FORMS if not form.isdigit() or int(form) < tokens]
            programs = {form: compiled(module, form)[0] for form in forms}
            best = measured(programs, tokens, args.runs)
            ratio = best[TILES_OFF] / min(best[form] for form in forms if form.isdigit())
            _, said = compiled(module, TILES_AUTO)
            rows.append({"case": f"{element}.{tokens}", **best, "ratio": ratio, "auto": said})
            shown = [f"{form} {1e3 * seconds:.1f}" for form, seconds in best.items()]
            print(f"{element} {tokens:5} ", *shown, f"ms: tiles {ratio:.2f} times as fast;", said)
    if args.json:
        write_whole(args.json, (json.dumps(rows, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
