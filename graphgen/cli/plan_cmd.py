"""``graphgen plan``: memory per core of a model, and the smallest instance that fits it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.console import emit, note
from graphgen.cli.files import write_bytes
from graphgen.cli.flags import (
    NO_OPTIONS,
    with_compile_flags,
    with_field_flags,
)
from graphgen.cli.model_flags import OF_EACH_NODE
from graphgen.cli.plan_report import emit_nodes
from graphgen.cli.shared_options import AcceleratorName, AsJson, Lnc, PlotFile, check_plot
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import integer, option, optional
from graphgen.config.rank_config import AUTO, CHOSEN_FIELDS
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.report.table import Table, render
from graphgen.targets import DEFAULT_ACCELERATOR, accelerator

if TYPE_CHECKING:
    from graphgen.lowering.plan.adapter_capacity import AdapterCapacity
    from graphgen.lowering.plan.capacity_plan import CapacityPlan, Degree
    from graphgen.lowering.plan.fitting_changes import FittingChange
    from graphgen.lowering.plan.ladder_advice import LadderAdvice
    from graphgen.lowering.plan.measure import CoreUse
    from graphgen.targets import Accelerator


@dataclass(frozen=True, slots=True)
class PlanSizes:
    """The values of the flags; ``None`` for one that is not given."""

    batch: int | None = option(
        optional(integer(1)), None, "Rows of a call; by default 1, advised with --lengths."
    )
    seq: int | None = option(
        optional(integer(1)), None, "Positions of a sequence; by default 2048."
    )
    context: int | None = option(
        optional(integer(0)), None, "Tokens of a prompt; by default --seq."
    )
    lengths: str | None = option(
        None,
        None,
        "Advise buckets and rows for these requests: prompt,answer[,count] in tokens.",
        metavar="FILE",
    )
    executable_bytes: int | None = option(
        optional(integer(1)),
        None,
        "With --lengths: device memory of a program; by default the device's figure of code.",
        metavar="N",
    )
    lora_rank: int | None = option(
        optional(integer(1)), None, "Count adapters (LoRA) of this rank: --max-loras, or 1."
    )
    lora_reserve: int | None = option(
        optional(integer(1)),
        None,
        "With --lora-rank: say how many adapters these bytes of a core hold.",
        metavar="BYTES",
    )
    search: bool = option(
        None, False, "Compare all meshes of --tp ranks: seconds of a request, and memory."
    )
    answer_tokens: int | None = option(
        optional(integer(1)),
        None,
        "With --search: tokens of an answer; by default what --context leaves of --seq.",
        metavar="N",
    )
    nodes: int = option(
        integer(1),
        1,
        "Compare layouts on 1, 2, 4, ... N nodes; --tp is then the ranks of each.",
        metavar="N",
    )
    instance: str = option(
        None,
        "",
        f"To serve on; with --nodes: {OF_EACH_NODE[0].lower()}{OF_EACH_NODE[1:]}",
        metavar="TYPE",
    )

    def adapters(self, demand: CompileConfig) -> CompileConfig:
        """The configuration with slots for adapters, if they are counted (GG0705)."""
        if self.lora_rank is None:
            given = "--lora-reserve" if self.lora_reserve is not None else "--max-loras"
            if demand.max_loras or self.lora_reserve is not None:
                what = f"{given} has no meaning without --lora-rank"
                raise GraphgenError("GG0705", what, help="give --lora-rank N too")
            return demand
        slots = demand.max_loras or 1
        return demand.updated({"max_loras": slots, "max_lora_rank": self.lora_rank})

    def demand(self, dtype: str) -> CompileConfig:
        """The configuration with the sizes given; those of ``lengths`` are still open."""
        if self.lengths is not None:
            return CompileConfig(dtype=dtype)
        seq, batch = self.seq or 2048, self.batch or 1
        context = self.context or seq
        return CompileConfig(
            dtype=dtype, batch=(batch,), context=(context,), tokens=(seq,), slots=seq
        )

    def checked(self, demand: CompileConfig, rules: str, tp: int, plot: object) -> CompileConfig:
        """The configuration with adapters, where no options exclude each other (GG0705).

        Args:
            demand: of :meth:`demand`, with the options of the compilation.
            rules, tp, plot: the values of the flags.
        """
        self.check(rules)
        demand = self.adapters(demand)
        self.check_search(demand, rules, tp, plot)
        self.check_nodes(demand, rules, plot)
        return demand

    def check(self, rules: str) -> None:
        """Refuse options that exclude each other (GG0705).

        Args:
            rules: the value of ``--rules``.
        """
        if self.lengths is None:
            if self.executable_bytes is not None:
                what = "--executable-bytes has no meaning without --lengths"
                raise GraphgenError("GG0705", what, help="give --lengths FILE too")
            return
        given = {"--seq": self.seq, "--context": self.context}
        names = [name for name, value in given.items() if value is not None]
        for name in [*names, *(["--rules aws"] if rules == "aws" else [])]:
            raise GraphgenError(
                "GG0705", f"{name} has no meaning with --lengths", help=f"leave out {name}"
            )

    def check_search(self, demand: CompileConfig, rules: str, tp: int, plot: object) -> None:
        """Refuse --search with what it chooses itself, or has no use for (GG0705)."""
        if demand.parallelism == AUTO:
            if tp < 2:
                what = "--parallelism auto needs ranks"
                raise GraphgenError("GG0705", what, help="give --tp N, at least 2")
            if self.lengths is not None:
                what = "--parallelism auto has no meaning with --lengths"
                raise GraphgenError("GG0705", what, help="leave out one of them")
        if not self.search:
            if self.answer_tokens is not None:
                what = "--answer-tokens has no meaning without --search"
                raise GraphgenError("GG0705", what, help="give --search too")
            return
        if tp < 2:
            raise GraphgenError("GG0705", "--search needs ranks", help="give --tp N, at least 2")
        given = {
            "--lengths": self.lengths is not None,
            "--rules aws": rules == "aws",
            "--plot": plot is not None,
            "--parallelism auto": demand.parallelism == AUTO,
        }
        usual = CompileConfig()
        for name in CHOSEN_FIELDS:
            given[f"--{name.replace('_', '-')}"] = getattr(demand, name) != getattr(usual, name)
        for name in [name for name, is_given in given.items() if is_given]:
            raise GraphgenError(
                "GG0705", f"{name} has no meaning with --search", help=f"leave out {name}"
            )

    def check_nodes(self, demand: CompileConfig, rules: str, plot: object) -> None:
        """Refuse --nodes with what it compares itself, or has no use for (GG0705)."""
        if self.instance and self.nodes == 1 and (self.search or self.lengths is not None):
            what = f"--instance has no meaning with {'--search' if self.search else '--lengths'}"
            raise GraphgenError("GG0705", what, help="leave out one of them")
        given = {
            "--search": self.search,
            "--lengths": self.lengths is not None,
            "--lora-rank": self.lora_rank is not None,
            "--rules aws": rules == "aws",
            "--plot": plot is not None,
            "--parallelism auto": demand.parallelism == AUTO,
        }
        for name in [name for name, is_given in given.items() if is_given and self.nodes > 1]:
            raise GraphgenError(
                "GG0705", f"{name} has no meaning with --nodes", help=f"leave out {name}"
            )


NO_SIZES = PlanSizes()


@with_field_flags("sizes", PlanSizes)
@with_compile_flags(
    without=[
        "tp",
        "pp_degree",
        "nodes",
        "heads",
        "dtype",
        "quantization",
        "page_cache",
        "steps_per_launch",
        "speculation_length",
        "max_lora_rank",
    ]
)
def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint, a config.json, or a known shape.")
    ],
    target: AcceleratorName = DEFAULT_ACCELERATOR,
    sizes: PlanSizes = NO_SIZES,
    dtype: Annotated[
        Literal["f32", "bf16", "f16"], typer.Option("--dtype", help="Element type.")
    ] = "bf16",
    tp: Annotated[
        int, typer.Option("--tp", min=0, help="This degree; 0 for the smallest that serves.")
    ] = 0,
    lnc: Lnc = 0,
    compile_options: CompileConfig = NO_OPTIONS,
    rules: Annotated[
        Literal["graphgen", "aws"],
        typer.Option("--rules", help="Rules of this compiler, or of AWS's guides."),
    ] = "graphgen",
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Compute how much memory a model takes on each core, and the smallest instance that serves it.

    Everything is read off the compiled programs, so no weights are needed; 1 GB is 1e9 bytes.
    --plot draws it by degree, by program (bucket) and by tensor. With --lengths the buckets and
    rows are those that answer a file of real requests in the least time; the file is CSV with the
    header prompt,answer or prompt,answer,count, or one JSON object a line. --search compares all
    meshes of --tp ranks, and marks the one with which a request takes the least time; with
    --parallelism auto the memory is that of this one. --nodes compares layouts on several nodes:
    one mesh over all, stages of a pipeline, and whole models, with the links between nodes.

    \b
    Examples:
      graphgen plan llama-3.1-70b --target trn1 --batch 1 --seq 2048
      graphgen plan llama-3.1-405b --target trn2 --seq 12288 --tp 64
      graphgen plan llama-3.1-8b --target inf2 --rules aws --json
      graphgen plan gemma-3-1b --target trn1 --seq 8192 --roll-window-cache
      graphgen plan llama-3.1-8b --target trn1 --tp 32 --lora-rank 16 --lora-reserve 2000000000
      graphgen plan llama-3.1-8b --target trn2 --tp 4 --lengths requests.csv
      graphgen plan llama-3.1-8b --target trn2 --tp 32 --seq 131072 --parallelism auto
      graphgen plan deepseek-v3 --target trn2 --nodes 16
    """
    check_plot(plot)
    where = accelerator(target, lnc)
    demand = sizes.checked(compile_options.over(sizes.demand(dtype)), rules, tp, plot)
    if sizes.nodes > 1:
        emit_nodes(as_json, model, where, replace(demand, tp=tp or 1), sizes.nodes, sizes.instance)
    elif sizes.search:
        _emit_search(as_json, model, where, replace(demand, tp=tp), sizes.answer_tokens or 0)
    elif sizes.lengths is None:
        demand = _with_mesh(model, where, replace(demand, tp=tp or demand.tp))
        made = _plan(model, where, demand, rules, tp, sizes.instance)
        _emit_plan(as_json, model, made, sizes)
    else:
        advice = _advice(model, where, demand, sizes, tp)
        _emit_advice(as_json, model, advice)
        demand, tp = advice.demand, advice.demand.tp
    if plot is not None:
        _draw(plot, model, _plan(model, where, demand, rules, tp, sizes.instance))


def _with_mesh(model: str, where: Accelerator, demand: CompileConfig) -> CompileConfig:
    """The configuration with the mesh that --parallelism auto stands for."""
    if demand.parallelism != AUTO:
        return demand
    from graphgen.lowering.plan.mesh_search import chosen_mesh
    from graphgen.runtime.checkpoint.model_config import model_config

    config = model_config(model, keep_quantized=demand.keep_quantized)
    made = chosen_mesh(config, replace(demand, target=where.name), where)
    note(made.remark)
    return made.config


def _draw(plot: str, model: str, made: CapacityPlan) -> None:
    from graphgen.lowering.plan.plan_picture import plan_picture

    write_bytes(plot, [plan_picture(plot, model, made)])
    note(f"wrote {plot}")


def _plan(
    model: str,
    where: Accelerator,
    demand: CompileConfig,
    rules: str,
    tp: int,
    instance: str = "",
) -> CapacityPlan:
    from graphgen.lowering.plan.capacity_plan import make_plan
    from graphgen.runtime.checkpoint.model_config import model_config

    config = model_config(model, keep_quantized=demand.keep_quantized)
    return make_plan(config, where, demand, rules, tp, instance)


def _emit_plan(as_json: bool, model: str, made: CapacityPlan, sizes: PlanSizes) -> None:
    held, changes = _capacity(made, sizes), _changes(model, made)
    emit(
        as_json,
        lambda: _json(model, made, held, changes),
        lambda: _text(model, made, held, changes),
    )


def _changes(model: str, made: CapacityPlan) -> Sequence[FittingChange]:
    """Changes with which the model fits, where it does not."""
    if made.chosen is not None and made.chosen.serves:
        return ()
    from graphgen.lowering.plan.fitting_changes import fitting_changes
    from graphgen.runtime.checkpoint.model_config import model_config

    config = model_config(model, keep_quantized=made.demand.keep_quantized)
    return fitting_changes(config, made)


def _advice(
    model: str,
    where: Accelerator,
    demand: CompileConfig,
    sizes: PlanSizes,
    tp: int,
) -> LadderAdvice:
    from graphgen.lowering.plan.ladder_advice import advise_ladders
    from graphgen.lowering.plan.request_lengths import read_request_lengths
    from graphgen.runtime.checkpoint.model_config import model_config
    from graphgen.runtime.progress import TerminalProgress

    assert sizes.lengths is not None
    lengths = read_request_lengths(Path(sizes.lengths))
    config = model_config(model, keep_quantized=demand.keep_quantized)
    with TerminalProgress().task("compiling programs of few layers"):
        rows, executable = sizes.batch or 0, sizes.executable_bytes or 0
        return advise_ladders(config, where, demand, lengths, tp, rows, executable)


def _emit_advice(as_json: bool, model: str, advice: LadderAdvice) -> None:
    from graphgen.cli.plan_report import ladder_json, ladder_report

    emit(as_json, lambda: ladder_json(model, advice), lambda: ladder_report(model, advice))


def _emit_search(
    as_json: bool, model: str, where: Accelerator, demand: CompileConfig, generated: int
) -> None:
    from graphgen.cli.plan_report import mesh_json, mesh_report, searched

    made = searched(model, where, demand, generated)
    emit(as_json, lambda: mesh_json(model, where, made), lambda: mesh_report(model, where, made))


def _capacity(made: CapacityPlan, sizes: PlanSizes) -> AdapterCapacity | None:
    """The adapters of the chosen degree, if they are counted."""
    if sizes.lora_rank is None or made.chosen is None or made.chosen.use is None:
        return None
    from graphgen.lowering.plan.adapter_capacity import adapter_capacity

    use, tp, slots = made.chosen.use, made.chosen.tp, made.demand.max_loras
    return adapter_capacity(use, sizes.lora_rank, slots, sizes.lora_reserve or 0, tp)


def _text(
    model: str,
    made: CapacityPlan,
    held: AdapterCapacity | None,
    changes: Sequence[FittingChange],
) -> str:
    where, demand = made.target, made.demand
    lines = [
        f"{model}, {demand.dtype}, batch {demand.cache_rows}, {demand.max_len} positions "
        f"on {where.name} ({where.core}, {_gb(where.hbm_bytes)} a core), rules {made.rules}",
        *_experts(made),
        "",
        render(_degrees(made), sys.stdout),
    ]
    if made.chosen is None:
        lines.append(f"no degree of {where.name} serves it")
    else:
        lines.append(_chosen(made, made.chosen))
    if changes:
        rows = [
            [item.flags, str(item.tp), _gb(item.core_bytes), "yes" if item.fits else "no"]
            for item in changes
        ]
        table = Table(["to fit, one of", "tp", "a core", "fits"], rows, 2)
        lines += ["", render(table, sys.stdout)]
    if held is not None:
        lines.append(held.text)
    return "\n".join(lines).rstrip() + "\n"


def _experts(made: CapacityPlan) -> list[str]:
    """The parameters of a mixture of experts, of which a token needs some."""
    for use in (item.use for item in made.degrees if item.use is not None):
        if use.active < use.parameters:
            shown = [f"{count / 1e9:.2f} billion" for count in (use.parameters, use.active)]
            stored = [_gb(size) for size in (use.weights_once, use.active_once)]
            return [
                f"{shown[0]} parameters, of which {shown[1]} compute a token; "
                f"{stored[0]} as they are stored, of which a token reads {stored[1]}"
            ]
    return []


def _degrees(made: CapacityPlan) -> Table:
    headers = ["tp", "weights", "kv", "activations", "a core", "copies", "serves", ""]
    rows = [
        [str(item.tp), *_cells(item, made.rules), "yes" if item.serves else "no", item.why_not]
        for item in made.degrees
    ]
    return Table(headers, rows, 5)


def _cells(item: Degree, rules: str) -> list[str]:
    use = item.use
    if use is None:
        return ["-", "-", "-", _gb(item.needs) if item.needs else "-", "-"]
    sizes = (use.weights, use.kv, use.activations)
    if rules == "aws":
        # The guide counts weights and caches, each once, and divides them.
        sizes = (use.weights_once // item.tp, use.kv_once // item.tp, 0)
    parts = [*map(_gb, sizes), _gb(item.needs)]
    return [*parts, f"{100 * use.replicated(item.tp):+.1f} %"]


def _chosen(made: CapacityPlan, chosen: Degree) -> str:
    cores = made.target.cores(made.instance) if made.instance else 0
    where = f"{made.instance} ({cores} cores)" if made.instance else "no single instance"
    text = f"tp {chosen.tp}: {where}\n"
    if chosen.use is None:
        return text
    if chosen.use.heads:
        text += f"heads: {chosen.use.heads}\n"
    if chosen.use.copies:
        text += f"{_gb(chosen.use.copies)} of a core's weights are second copies for prompts\n"
    rows = [[item.kind, str(item.count), str(item.bytes)] for item in chosen.use.collectives]
    if not rows:
        return text
    shown = Table(["collective of a decode step", "count", "bytes each"], rows, 2)
    return f"{text}\n{render(shown, sys.stdout)}"


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def _json(
    model: str,
    made: CapacityPlan,
    held: AdapterCapacity | None,
    changes: Sequence[FittingChange],
) -> Json:
    return {
        "model": model,
        "target": made.target.name,
        "lnc": made.target.lnc,
        "core_bytes": made.target.hbm_bytes,
        "batch": made.demand.cache_rows,
        "seq": made.demand.max_len,
        "context": max(made.demand.context),
        "dtype": made.demand.dtype,
        "roll_window_cache": made.demand.roll_window_cache,
        "rules": made.rules,
        "degrees": [_degree_json(item) for item in made.degrees],
        "chosen": _degree_json(made.chosen) if made.chosen else None,
        "instance": made.instance or None,
        "to_fit": [asdict(item) for item in changes],
        "sources": dict(made.target.sources),
        **({} if held is None else {"adapters": dict(held.to_json())}),
    }


def _degree_json(item: Degree) -> dict[str, Json]:
    return {
        "tp": item.tp,
        "serves": item.serves,
        "why_not": item.why_not or None,
        "core_bytes": item.needs,
        "use": _use_json(item.use, item.tp) if item.use else None,
    }


def _use_json(use: CoreUse, tp: int) -> dict[str, Json]:
    return {
        "weights": use.weights,
        "kv": use.kv,
        "adapters": use.adapters,
        "activations": use.activations,
        "parameters": use.parameters,
        "active_parameters": use.active,
        "active_once": use.active_once,
        "weights_once": use.weights_once,
        "kv_once": use.kv_once,
        "replicated": use.replicated(tp),
        "second_copies": use.copies,
        "heads": use.heads or None,
        "collectives": [asdict(item) for item in use.collectives],
        "programs": [asdict(item) for item in use.programs],
        "items": [asdict(item) for item in use.items],
    }
