"""``graphgen perplexity``: of a model, of quantization schemes, of parts quantized alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.files import read_text
from graphgen.cli.flags import CACHE_FIELDS, NO_OPTIONS, with_compile_flags
from graphgen.cli.shared_options import AsJson, PlotFile, check_plot
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import ACTIVATIONS_BLOCKS, ACTIVATIONS_DYNAMIC, ACTIVATIONS_WIDE
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.report.table import Table

if TYPE_CHECKING:
    from graphgen.runtime.checkpoint.interfaces import Checkpoint
    from graphgen.runtime.distributed.process_group import ProcessGroup

COMMAND: Final = Command("quantization", "Measure the perplexity of a model on a text.")


@with_compile_flags(
    *("dtype", "tp", "nodes", "heads", "quantization", "keep_quantized"),
    *CACHE_FIELDS,
    *("rpl_reduce_dtype", "attention_dtype", "softmax_dtype", "router_dtype"),
    *("activation_quantization_type", "activation_ranges"),
)
def perplexity(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, a GGUF file, or smollm2.")
    ],
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="UTF-8 text to predict.")],
    window: Annotated[int, typer.Option("--window", help="Tokens that are read together.")] = 256,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="NAME,...",
            help="Several in one table: f32, bf16, int8, int8:per_tensor_symmetric, f8e4m3, or a "
            "folder with a quantized checkpoint; +dynamic, +static, +blocks: 8-bit activations.",
        ),
    ] = None,
    sensitivity: Annotated[
        str | None,
        typer.Option(
            "--sensitivity",
            metavar="SCHEME",
            help="Quantize each part alone, as int8, int4:group:64 or mxfp4; rank what it costs. "
            "+dynamic, +blocks: its activations too, in 8 bits.",
        ),
    ] = None,
    each: Annotated[
        Literal["layer", "module"],
        typer.Option("--each", help="The parts of --sensitivity."),
    ] = "layer",
    plot: PlotFile = None,
    compile_options: CompileConfig = NO_OPTIONS,
    as_json: AsJson = False,
) -> None:
    """Measure perplexity: 1 for a text that the model predicts with certainty.

    The text is cut into windows; in each, every token but the first is predicted from those before
    it. Compare runs of one text, tokenizer and window only. --compare measures several in one run,
    beside the model in f32: the divergence of the predictions, how often the most likely token is
    the same, and the bytes of the weights.

    \b
    Examples:
      graphgen perplexity smollm2 --text story.txt
      graphgen perplexity smollm2 --text story.txt --quantized --quantization-dtype f8e4m3
      graphgen perplexity smollm2 --text story.txt --compare f32,bf16,int8,f8e4m3 --plot out.svg
      graphgen perplexity smollm2 --text story.txt --sensitivity int4:group:64 --each layer
    """
    from graphgen.runtime.engine import locate_checkpoint

    _check(compare, sensitivity, plot, each, compile_options)
    read, checkpoint = read_text(text), locate_checkpoint(model)
    config = _configuration(checkpoint, compile_options)
    with _in_launch({"--compare": compare, "--sensitivity": sensitivity}) as group:
        if compare is not None:
            _compare(checkpoint, (read, window), compare, config, plot, as_json=as_json)
        elif sensitivity is not None:
            _rank(checkpoint, (read, window), sensitivity, each, plot, as_json=as_json)
        else:
            if group is not None and "nodes" not in compile_options.given:
                config = _over_machines(group, config)
            _measure(checkpoint, (read, window), config, as_json=as_json)


def _configuration(checkpoint: Checkpoint, options: CompileConfig) -> CompileConfig:
    from graphgen.runtime.checkpoint.dtype_policy import chosen_types

    return options.updated(chosen_types(options.dtype, checkpoint))


def _over_machines(group: ProcessGroup, config: CompileConfig) -> CompileConfig:
    from graphgen.cli.launched_inputs import chosen_nodes

    return replace(config, nodes=chosen_nodes(group.place.nodes, config.tp))


@contextmanager
def _in_launch(given: Mapping[str, object]) -> Generator[ProcessGroup | None]:
    """Belong to a launch, if there is one, which cannot share these options (GG0705)."""
    from graphgen.cli.launched_inputs import check_in_turn, end_process, refuse_in_launch
    from graphgen.runtime.distributed.process_group import launched

    with launched(end_process) as group:
        if group is not None:
            check_in_turn(group, lambda: refuse_in_launch(given))
        yield group


def _check(
    compare: str | None,
    sensitivity: str | None,
    plot: str | None,
    each: str,
    options: CompileConfig,
) -> None:
    """Refuse options that have no effect together before anything is read (GG0705)."""
    several = compare is not None or sensitivity is not None
    if compare is not None and sensitivity is not None:
        raise _no_effect("--compare and --sensitivity exclude each other", "run them one by one")
    if several and options.quantization:
        raise _no_effect(
            "--quantized has no effect on --compare and --sensitivity", "name schemes in their list"
        )
    if several and options.keep_quantized:
        raise _no_effect(
            "--keep-quantized has no effect on --compare and --sensitivity",
            "name 'stored' in the list of --compare",
        )
    plain = CompileConfig()
    changed = [name for name, value in options.asked.items() if value != getattr(plain, name)]
    if sensitivity is not None and changed:
        raise _no_effect(
            f"--sensitivity runs in f32 on one rank: --{changed[0]} has no effect", "leave it out"
        )
    if each != "layer" and sensitivity is None:
        raise _no_effect("--each has no effect without --sensitivity", "add --sensitivity int8")
    if plot is not None and not several:
        raise _no_effect("--plot needs several numbers", "add --compare or --sensitivity")
    check_plot(plot)


def _no_effect(what: str, help: str) -> GraphgenError:
    return GraphgenError("GG0705", what, help=help)


def _measure(
    checkpoint: Checkpoint, text: tuple[str, int], config: CompileConfig, *, as_json: bool
) -> None:
    from graphgen.runtime.accuracy.perplexity import (
        every_token_session,
        read_windows,
        session_perplexity,
    )
    from graphgen.runtime.distributed.led_session import lead
    from graphgen.runtime.progress import TerminalProgress

    progress, windows = TerminalProgress(), read_windows(checkpoint, *text)
    session = every_token_session(checkpoint, len(windows[0]), config, progress)
    found = lead(session, lambda: session_perplexity(session, windows, config, progress))
    if found is None:
        return
    facts: dict[str, Json] = {
        "perplexity": found.value,
        "tokens": found.tokens,
        "window": text[1],
        "weight_bytes": found.weight_bytes,
        "weight_types": dict(found.weight_types),
        "quantization": config.quantization or None,
        **({"kv_cache": dict(found.saturation.to_json())} if found.saturation else {}),
    }
    types = ", ".join(f"{size / 1e6:.1f} MB {name}" for name, size in found.weight_types.items())
    rows = [
        ("perplexity", f"{found.value:.4f}"),
        ("tokens predicted", str(found.tokens)),
        ("weights", types),
        *([("quantization", config.quantization)] if config.quantization else []),
        *([("caches saturated", found.saturation.text)] if found.saturation else []),
    ]
    emit(as_json, lambda: facts, lambda: Table(("", ""), rows))


def _compare(
    checkpoint: Checkpoint,
    text: tuple[str, int],
    names: str,
    config: CompileConfig,
    plot: str | None,
    *,
    as_json: bool,
) -> None:
    from graphgen.atomic_write import write_whole
    from graphgen.runtime.accuracy.perplexity import predicted, read_windows
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.quantization.comparison import compare_schemes, compared_models
    from graphgen.runtime.quantization.sensitivity import comparison_picture

    models = compared_models(names, config)
    windows = read_windows(checkpoint, *text)
    scores = compare_schemes(checkpoint, windows, models, TerminalProgress())
    tokens = predicted(windows)
    if plot is not None:
        title = f"{checkpoint.path.name}, {tokens} tokens"
        write_whole(Path(plot), comparison_picture(plot, title, scores))
    rows = [
        (
            score.name,
            f"{score.perplexity:.4f}",
            f"{score.divergence:.6f}",
            f"{100 * score.agreement:.2f} %",
            f"{score.weight_bytes / 1e6:.1f}",
        )
        for score in scores
    ]
    heads = ("", "perplexity", "KL to f32", "same top token", "weights, MB")
    facts: dict[str, Json] = {
        "tokens": tokens,
        "window": text[1],
        "schemes": [score.to_json() for score in scores],
    }
    emit(as_json, lambda: facts, lambda: Table(heads, rows))


def _rank(
    checkpoint: Checkpoint,
    text: tuple[str, int],
    name: str,
    each: str,
    plot: str | None,
    *,
    as_json: bool,
) -> None:
    from graphgen.atomic_write import write_whole
    from graphgen.passes.quantization.schemes import DTYPES, scheme_of_text
    from graphgen.runtime.accuracy.perplexity import predicted, read_windows
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.quantization.sensitivity import sensitivity, sensitivity_picture

    stem, plus, activations = name.partition("+")
    scheme = scheme_of_text(stem)
    dynamic = activations == ACTIVATIONS_DYNAMIC and scheme.dtype in DTYPES
    blocks = activations == ACTIVATIONS_BLOCKS and scheme.dtype in ("int8", "int4")
    if plus and not (dynamic or blocks):
        raise _no_effect(
            f"--sensitivity {name}: what an 8-bit weight is multiplied by can be dynamic, and what "
            "an integer is multiplied by in blocks",
            "such as int8+dynamic or int4+blocks",
        )
    windows = read_windows(checkpoint, *text)
    rows_of = activations or ACTIVATIONS_WIDE
    costs = sensitivity(checkpoint, windows, scheme, each, TerminalProgress(), rows_of)
    label = scheme.text + plus + activations
    if plot is not None:
        title = f"{checkpoint.path.name} in {label}"
        write_whole(Path(plot), sensitivity_picture(plot, title, costs))
    rows = [
        (cost.name, f"{cost.perplexity:.4f}", f"{cost.divergence:.6f}", f"{cost.weights:,}")
        for cost in costs
    ]
    heads = (f"quantized alone, {label}", "perplexity", "KL to f32", "weights")
    facts: dict[str, Json] = {
        "scheme": label,
        "each": each,
        "tokens": predicted(windows),
        "parts": [cost.to_json() for cost in costs],
    }
    emit(as_json, lambda: facts, lambda: Table(heads, rows))
