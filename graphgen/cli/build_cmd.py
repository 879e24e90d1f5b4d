"""``graphgen build``: a model's graph as IR text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import note, note_remarks
from graphgen.cli.files import STANDARD
from graphgen.cli.flags import (
    CACHE_FIELDS,
    NO_OPTIONS,
    with_compile_flags,
)
from graphgen.cli.module_file import write_module
from graphgen.cli.shared_options import FirstLayers, check_outputs
from graphgen.config.compile_config import CompileConfig
from graphgen.config.rank_config import check_one_rank
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.targets import Target, find_target

if TYPE_CHECKING:
    from graphgen.models.twins import TwinName
    from graphgen.passes.core import Pass

COMMAND: Final = Command("model", "Write a model's graph as IR text.")

Mini = Annotated[bool, typer.Option("--mini", help="The same as --twin mini.")]
Twin = Annotated[
    Literal["mini", "wide"] | None,
    typer.Option(
        "--twin",
        help="A small model that takes the same decisions: mini, of which everything is small, "
        "or wide, whose token ids and positions need more than 16 bits.",
    ),
]
StoredFor = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Target of the graph, if the checkpoint stores numbers that not every target "
        "has: cpu, inf2, trn1, trn2 or trn3.",
    ),
]


@with_compile_flags("heads", "keep_quantized", *CACHE_FIELDS)
def build(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A checkpoint folder, a config.json, a .gguf file, a known shape such as "
            "llama-3.1-8b, or smollm2.",
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE.gg", help="File to write; - is stdout.")
    ] = STANDARD,
    phase: Annotated[
        Literal["prefill", "decode", "verify", "verify_tree"] | None,
        typer.Option("--phase", help="Build this program only; by default prefill and decode."),
    ] = None,
    mini: Mini = False,
    twin: Twin = None,
    layers: FirstLayers = None,
    tp: Annotated[
        int, typer.Option("--tp", metavar="N", min=1, help="Split the model over N ranks.")
    ] = 1,
    compile_options: CompileConfig = NO_OPTIONS,
    target: StoredFor = "cpu",
    dtype: Annotated[
        Literal["f32", "bf16", "f16", "as-declared"],
        typer.Option(
            "--dtype",
            help="Element type of weights, activations and caches; as-declared is config.json's.",
        ),
    ] = "bf16",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON; needs -o FILE.gg.")
    ] = False,
) -> None:
    """Write a model's graph as IR text.

    The graph is logical: batch, tokens and cache sizes are the symbols B, S, C, R and M. With
    --tp it is partitioned: the program of one rank, with explicit collectives, and the functions
    that prepare each rank's weights. With --kv-cache-quant caches hold 8-bit numbers.

    \b
    Examples:
      graphgen build llama-3.1-8b -o llama.gg
      graphgen build llama-3.1-405b --layers 1 -o one.gg
      graphgen build llama-3.1-8b --twin wide -o wide.gg
      graphgen build ./checkpoint --tp 2 --dtype f32 -o two.gg
      graphgen build smollm2 --tp 2 --group-query-attention CONVERT_TO_MHA -o two.gg
      graphgen build m.gguf --keep-quantized -o blocks.gg
      graphgen build gpt-oss-20b --target trn2 --tp 8 -o gpt_oss.gg
    """
    check_outputs(output, as_json, "-o FILE.gg")
    check_one_rank(compile_options.asked, tp)
    if mini and twin == "wide":
        raise typer.BadParameter("--mini is --twin mini: give one of them", param_hint="'--twin'")
    config = _config(model, small := "mini" if mini else twin, compile_options)
    types = () if small else _weight_types(model, dtype, config)
    module = _module(config, dtype, phase, small, layers, find_target(target), types)
    _change(module, tp, compile_options)
    write_module(module, output, as_json=as_json)


def _config(model: str, twin: str | None, options: CompileConfig) -> Mapping[str, object]:
    """The model's configuration; of a GGUF file with its weights in blocks, if they are kept."""
    from graphgen.runtime.checkpoint.model_config import model_config

    keep = options.keep_quantized
    if keep and twin:
        raise GraphgenError(
            "GG0705",
            "--keep-quantized has no effect on a twin, whose weights are not stored",
            help="leave one of them out",
        )
    return model_config(model, keep_quantized=keep)


def _module(
    config: Mapping[str, object],
    dtype: str,
    phase: str | None,
    twin: TwinName | None,
    layers: int | None,
    target: Target,
    types: tuple[str, ...],
) -> Module:
    from graphgen.ir import dtype as element
    from graphgen.models import PHASES
    from graphgen.models import build as build_model
    from graphgen.passes.quantization.stored_readings import read_quantized

    phases = (phase,) if phase else PHASES
    kind = element(_declared(config) if dtype == "as-declared" else dtype)
    module = build_model(config, kind, phases=phases, twin=twin, layers=layers)
    if types:
        from graphgen.passes.core import run_pipeline
        from graphgen.passes.precision.declared_weights import DeclaredWeights

        note_remarks(run_pipeline(module, [DeclaredWeights(types)]))
    if twin is None and (remark := read_quantized(module, config, target.name)):
        note(remark)
    return module


def _declared(config: Mapping[str, object]) -> str:
    from graphgen.runtime.checkpoint.dtype_policy import stated_dtype

    stated = stated_dtype(config)
    if stated is None:
        raise GraphgenError(
            "GG0705",
            "the configuration declares no dtype for --dtype as-declared",
            help="choose one: --dtype f32, bf16 or f16",
        )
    return stated


def _weight_types(model: str, dtype: str, config: Mapping[str, object]) -> tuple[str, ...]:
    """The weights of a stored checkpoint that are in another type than it declares, if asked."""
    if dtype != "as-declared":
        return ()
    from graphgen.runtime.checkpoint.dtype_policy import weight_dtypes_of_folder

    return weight_dtypes_of_folder(Path(model), _declared(config))


def _change(module: Module, tp: int, options: CompileConfig) -> None:
    """Quantize the caches, and split the model over its ranks."""
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.phases.quantize import narrow_caches

    caches = narrow_caches(options)
    passes = _split(tp, options.heads, caches) if tp > 1 else caches
    note_remarks(run_pipeline(module, passes))


def _split(tp: int, strategy: str, caches: Sequence[Pass]) -> Sequence[Pass]:
    """The passes that split a model over several ranks."""
    from graphgen.passes.canonical.canonicalize import Canonicalize
    from graphgen.passes.canonical.unfuse_projections import UnfuseProjections
    from graphgen.passes.gqa.assign_heads import AssignHeads
    from graphgen.passes.gqa.gather_heads import GatherHeads
    from graphgen.passes.gqa.head_strategies import BY_ROWS, GATHERED
    from graphgen.passes.sharding.pad_to_mesh import PadToMesh
    from graphgen.passes.sharding.shard import Shard
    from graphgen.passes.spmd.partition import Partition
    from graphgen.passes.weights.lift import LiftWeights

    if strategy == BY_ROWS:
        raise GraphgenError(
            "GG0705",
            f"--group-query-attention {BY_ROWS} divides the rows of a call, which are the symbol B",
            help="bind the sizes: graphgen build MODEL -o FILE.gg, then graphgen opt FILE.gg "
            f"-p 'default{{tp={tp},heads={BY_ROWS},batch=[{tp}]}}'",
        )
    return [
        Canonicalize(),
        UnfuseProjections(),
        *caches,
        AssignHeads(tp=tp, strategy=strategy),
        Shard(tp=tp),
        PadToMesh(),
        Partition(),
        *([GatherHeads()] if strategy == GATHERED else []),
        LiftWeights(),
    ]
