"""``graphgen validate``: check passes numerically; name the first wrong rewrite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.console import emit
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import (
    AsJson,
    ModuleFile,
    PipelineOption,
    Plugins,
    Seed,
    load_pipeline,
)
from graphgen.report.table import Table

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.exec.backend import Backend
    from graphgen.exec.session import Workload
    from graphgen.ir import Module
    from graphgen.passes.core import Pass
    from graphgen.passes.verify import Verdict

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


def validate(
    file: ModuleFile,
    pipeline: PipelineOption = "default",
    plugin: Plugins = None,
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
    from graphgen.passes.inspect.result_json import verdict_json
    from graphgen.passes.verify import validate as run

    passes = load_pipeline(pipeline, plugin, small=True)
    module = read_module(file)
    workload = _workload(module, passes, seed, inputs, weights)
    verdicts = run(module, passes, workload, evaluator=_evaluator(on))
    emit(
        as_json,
        lambda: {"passes": [verdict_json(verdict) for verdict in verdicts]},
        lambda: [_table(verdicts), *_faults(verdicts)],
    )
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(1)


def _workload(
    module: Module, passes: Sequence[Pass], seed: int, inputs: str | None, weights: str | None
) -> Workload:
    """The workload: random arrays, or those of the user."""
    from graphgen.exec.inputs import with_arrays
    from graphgen.passes.verify import make_workload
    from graphgen.passes.verify.workload import may_shuffle

    # In-place programs take row b of a call for row b of the cache: rows stay in order.
    shuffled = may_shuffle(module) and not any(getattr(i, "in_place", False) for i in passes)
    workload = make_workload(module, seed, shuffled=shuffled)
    if weights is not None:
        workload = replace(workload, weights=_read_weights(module, weights))
    if inputs is not None:
        from graphgen.exec.inputs import read_arrays

        workload = with_arrays(workload, module, read_arrays(inputs))
    return workload


def _read_weights(module: Module, path: str) -> dict[str, Array]:
    """Read the tensors of a checkpoint that the module needs (GG0602 if one does not fit)."""
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


def _table(verdicts: Sequence[Verdict]) -> Table:
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
    return Table(headers, rows, 6)


def _faults(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The guilty rewrite of each pass that failed."""
    for verdict in verdicts:
        if not verdict.ok:
            kept = verdict.means_the_same
            seen = verdict.rounding if kept else verdict.meaning
            what = "rewrite that goes over the budget" if kept else "first wrong rewrite"
            fault = verdict.guilty or f"{verdict.pass_text}, as a whole"
            yield f"{what}: {fault}\n  seen at: {seen.name} of call {seen.call}\n"
