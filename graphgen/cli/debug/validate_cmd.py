"""``graphgen validate``: are the passes right by numbers, and if not, which rewrite is not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.console import Json, number, table, write_json, write_stdout
from graphgen.cli.module_file import read_module
from graphgen.cli.pass_list import load_passes
from graphgen.compile_config import CompileConfig

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.exec.backend import Backend
    from graphgen.exec.session import Workload
    from graphgen.ir import Module
    from graphgen.passes.core import Pass
    from graphgen.passes.debug import Verdict

File = Annotated[
    str, typer.Argument(metavar="FILE", help="IR text, StableHLO or HLO; - is standard input.")
]
Pipeline = Annotated[
    str,
    typer.Option("-p", "--pipeline", metavar="PIPELINE", help="Passes; 'default' is allowed."),
]
Plugin = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of the random weights and inputs.")]
On = Annotated[
    Literal["numpy", "cpu"],
    typer.Option("--on", help="What computes the rounding check: NumPy op by op, or XLA."),
]
Inputs = Annotated[
    str | None,
    typer.Option("--inputs", metavar="FILE.npz", help="Inputs, weights, states instead of random."),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="CHECKPOINT", help="Real weights instead of random ones."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The verdicts as JSON.")]


def validate(
    file: File,
    pipeline: Pipeline = "default",
    plugin: Plugin = None,
    seed: Seed = 0,
    on: On = "numpy",
    inputs: Inputs = None,
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Run passes over a module and compare the numbers before and after each.

    A language model is taken through a ragged prefill with both paddings, three decode steps of
    which one leaves a row idle, and a change of bucket; any other module, such as StableHLO of
    another compiler, is called once with random inputs of its types. 'meaning' is computed in
    float64 without rounding, 'rounding' in the module's own types. Exit status 1 when a pass fails;
    the rewrite at fault is named.

    \b
    Examples:
      graphgen build llama-3.1-8b --mini -o mini.gg && graphgen validate mini.gg
      graphgen validate mini.gg -p 'canonicalize,my-pass' --plugin my_pass.py
      graphgen validate jitted.mlir -p canonicalize,simplify-shape,cse,dce --on cpu
      graphgen validate jitted.mlir -p canonicalize,cse --inputs case.npz
      graphgen build CHECKPOINT -o m.gg && graphgen validate m.gg --weights CHECKPOINT
    """
    from graphgen.passes.core.plugins import load_file
    from graphgen.passes.debug import validate as run
    from graphgen.passes.pipelines import parse

    load_passes()
    for path in plugin or []:
        load_file(path)
    passes = parse(pipeline, CompileConfig(batch=(3,), context=(8,), tokens=(8, 16)))
    module = read_module(file)
    script = _script(module, passes, seed, inputs, weights)
    verdicts = run(module, passes, script, evaluator=_evaluator(on))
    if as_json:
        write_json({"passes": [_facts(verdict) for verdict in verdicts]})
    else:
        write_stdout(_table(verdicts))
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(1)


def _script(
    module: Module, passes: Sequence[Pass], seed: int, inputs: str | None, weights: str | None
) -> Workload:
    """What is run: random, or what the user gives."""
    from graphgen.exec.inputs import with_arrays
    from graphgen.passes.debug import make_workload
    from graphgen.passes.debug.workload import may_shuffle

    # Only programs that were promised it may take row b of a call for row b of the cache.
    shuffled = may_shuffle(module) and not any(getattr(i, "in_place", False) for i in passes)
    script = make_workload(module, seed, shuffled=shuffled)
    if weights is not None:
        script = replace(script, weights=_read_weights(module, weights))
    if inputs is not None:
        from graphgen.exec.inputs import read_arrays

        script = with_arrays(script, module, read_arrays(inputs))
    return script


def _read_weights(module: Module, path: str) -> dict[str, Array]:
    """Every tensor of the checkpoint that the module reads (GG0602 where one does not fit)."""
    from graphgen.ir import Role
    from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
    from graphgen.runtime.weights.rank_weights import read_weight

    checkpoint = open_checkpoint(path)
    check_checkpoint(checkpoint, module)
    return {row.name: read_weight(checkpoint, row) for row in module.entries(Role.WEIGHT)}


def _evaluator(on: str) -> Backend | None:
    if on == "numpy":
        return None
    from graphgen.lowering.cpu.backend import CpuBackend

    return CpuBackend()


def _facts(verdict: Verdict) -> dict[str, Json]:
    return {
        "pass": verdict.pass_text,
        "ok": verdict.ok,
        "meaning": number(verdict.meaning.relative),
        "max_abs": number(verdict.rounding.max_abs),
        "ulp": number(verdict.rounding.ulp),
        "cosine": number(verdict.rounding.cosine),
        "rounding": number(verdict.rounding.relative),
        "budget": verdict.budget,
        "where": verdict.meaning.name,
        "guilty": str(verdict.guilty) if verdict.guilty else None,
    }


def _table(verdicts: list[Verdict]) -> str:
    import sys

    headers = ("pass", "meaning", "max abs", "ulp", "cosine", "rounding", "budget", "verdict")
    rows = [
        (
            verdict.pass_text,
            f"{verdict.meaning.relative:.1e}",
            f"{verdict.rounding.max_abs:.1e}",
            f"{verdict.rounding.ulp:.3g}",
            f"{verdict.rounding.cosine:.6f}",
            f"{verdict.rounding.relative:.1e}",
            f"{verdict.budget:.0e}",
            "ok" if verdict.ok else "WRONG" if not verdict.means_the_same else "over budget",
        )
        for verdict in verdicts
    ]
    text = table(headers, rows, sys.stdout, numeric=6)
    for verdict in verdicts:
        if not verdict.ok:
            kept = verdict.means_the_same
            seen = verdict.rounding if kept else verdict.meaning
            what = "rewrite that goes over the budget" if kept else "first wrong rewrite"
            fault = verdict.guilty or f"{verdict.pass_text}, as a whole"
            text += f"\n{what}: {fault}\n  seen at: {seen.name} of call {seen.call}\n"
    return text
