"""``graphgen plan``: memory per core of a model, and the smallest instance that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.capacity_report import (
    capacity_json,
    capacity_text,
    emit_models,
    hour_prices,
    target_of,
)
from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.files import write_bytes
from graphgen.cli.flags import (
    NO_OPTIONS,
    with_compile_flags,
    with_field_flags,
)
from graphgen.cli.model_flags import OF_EACH_NODE
from graphgen.cli.shared_options import AsJson, Lnc, PlotFile, check_plot
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import integer, option, optional
from graphgen.config.rank_config import AUTO, CHOSEN_FIELDS
from graphgen.errors import GraphgenError
from graphgen.targets import accelerator

if TYPE_CHECKING:
    from graphgen.lowering.plan.adapter_capacity import AdapterCapacity
    from graphgen.lowering.plan.capacity_plan import CapacityPlan
    from graphgen.lowering.plan.fitting_changes import FittingChange
    from graphgen.lowering.plan.ladder_advice import LadderAdvice
    from graphgen.targets import Accelerator

COMMAND: Final = Command("neuron", "Plan memory, ranks and instances for a model.")


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
    price: str = option(
        None,
        "",
        "USD of an hour: of the advised instance, or TYPE=USD,...; by default published ones.",
        metavar="PRICE",
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
        given = {"--seq": self.seq, "--context": self.context, "--price": self.price or None}
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
            "--price": bool(self.price),
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

    def check_no_model(self, rules: str, tp: int, plot: object) -> None:
        """Refuse what has no meaning for all models together (GG0705)."""
        if not self.instance:
            what = "no MODEL is given"
            raise GraphgenError("GG0705", what, help="give a model, or --instance TYPE for all")
        given = {
            "--nodes": self.nodes > 1,
            "--search": self.search,
            "--lengths": self.lengths is not None,
            "--lora-rank": self.lora_rank is not None,
            "--price": bool(self.price),
            "--rules aws": rules == "aws",
            "--tp": bool(tp),
            "--plot": plot is not None,
        }
        for name in [name for name, is_given in given.items() if is_given]:
            what = f"{name} has no meaning without MODEL"
            raise GraphgenError("GG0705", what, help=f"give a model, or leave out {name}")

    def check_nodes(self, demand: CompileConfig, rules: str, plot: object) -> None:
        """Refuse --nodes with what it compares itself, or has no use for (GG0705)."""
        if self.instance and self.nodes == 1 and (self.search or self.lengths is not None):
            what = f"--instance has no meaning with {'--search' if self.search else '--lengths'}"
            raise GraphgenError("GG0705", what, help="leave out one of them")
        given = {
            "--search": self.search,
            "--lengths": self.lengths is not None,
            "--lora-rank": self.lora_rank is not None,
            "--price": bool(self.price),
            "--rules aws": rules == "aws",
            "--plot": plot is not None,
            "--parallelism auto": demand.parallelism == AUTO,
        }
        for name in [name for name, is_given in given.items() if is_given and self.nodes > 1]:
            raise GraphgenError(
                "GG0705", f"{name} has no meaning with --nodes", help=f"leave out {name}"
            )


NO_SIZES = PlanSizes()


PlannedTarget = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="inf2, trn1, trn2 or trn3; by default that of --instance, or trn2.",
    ),
]


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
        str,
        typer.Argument(
            metavar="MODEL",
            help="A checkpoint, a config.json, or a name of graphgen models; "
            "with --instance alone all of these.",
        ),
    ] = "",
    target: PlannedTarget = "",
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
    --instance without MODEL says which known models fit it.

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
      graphgen plan llama-3.1-8b --instance inf2.8xlarge
      graphgen plan --instance trn1.2xlarge
    """
    check_plot(plot)
    where = accelerator(target_of(target, sizes.instance), lnc)
    demand = sizes.checked(compile_options.over(sizes.demand(dtype)), rules, tp, plot)
    if not model:
        sizes.check_no_model(rules, tp, plot)
        emit_models(as_json, where, demand, sizes.instance)
        return
    note(f"planning {model} for {where.name} ...")
    _emit(as_json, model, where, demand, sizes, _Chosen(rules, tp, plot))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The values of further flags."""

    rules: str
    tp: int
    plot: str | None


def _emit(
    as_json: bool,
    model: str,
    where: Accelerator,
    demand: CompileConfig,
    sizes: PlanSizes,
    flags: _Chosen,
) -> None:
    """Print the answer for one model."""
    rules, tp = flags.rules, flags.tp
    if sizes.nodes > 1:
        from graphgen.cli.plan_report import emit_nodes

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
    if flags.plot is not None:
        _draw(flags.plot, model, _plan(model, where, demand, rules, tp, sizes.instance))


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
    prices = hour_prices(sizes.price, made)
    emit(
        as_json,
        lambda: capacity_json(model, made, held, changes, prices),
        lambda: capacity_text(model, made, held, changes, prices),
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
    from graphgen.cli.plan_report import ladder_report

    emit(as_json, lambda: advice.to_json(model), lambda: ladder_report(model, advice))


def _emit_search(
    as_json: bool, model: str, where: Accelerator, demand: CompileConfig, generated: int
) -> None:
    from graphgen.cli.plan_report import mesh_report, searched

    made = searched(model, where, demand, generated)
    emit(as_json, lambda: made.to_json(model, where), lambda: mesh_report(model, where, made))


def _capacity(made: CapacityPlan, sizes: PlanSizes) -> AdapterCapacity | None:
    """The adapters of the chosen degree, if they are counted."""
    if sizes.lora_rank is None or made.chosen is None or made.chosen.use is None:
        return None
    from graphgen.lowering.plan.adapter_capacity import adapter_capacity

    use, tp, slots = made.chosen.use, made.chosen.tp, made.demand.max_loras
    return adapter_capacity(use, sizes.lora_rank, slots, sizes.lora_reserve or 0, tp)
