"""Read an argument that names a module file or a model; a model is validated by its twins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import load_plugins
from graphgen.ir import Module
from graphgen.read_file import is_folder, is_there

if TYPE_CHECKING:
    from graphgen.passes.workload.value_ranges import Statistics
    from graphgen.runtime.accuracy.validate_model import ModuleVerdicts, ValidationOptions

ModelOrFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A module: .gg, StableHLO, HLO; - is stdin. Or a model, as in build."
    ),
]
Twins = Annotated[
    Literal["auto", "mini", "wide", "both"] | None,
    typer.Option("--twins", help="Small twins of a model to run; auto, the default, is both."),
]
Thorough = Annotated[
    bool,
    typer.Option(
        "--thorough",
        help="All that finds faults: adversarial calls, realistic values, both twins, coverage.",
    ),
]

MeasuredIn = Annotated[
    str | None,
    typer.Option(
        "--statistics", metavar="CHECKPOINT", help="Draw weights with the ranges of a checkpoint."
    ),
]


def read_model(name: str, layers: int | None = None) -> Module:
    """The module in a file, or the logical one of a model, in bf16.

    Args:
        name: a module file, ``-``, or a model as ``graphgen build`` takes it: a known shape, a
            checkpoint folder, a ``config.json`` or a ``.gguf`` file.
        layers: of a model, build only the first ones.

    Raises:
        GraphgenError: what reading a module or a configuration raises.
    """
    if not is_model(name):
        if layers is not None:
            raise typer.BadParameter(
                "is for models: a module file has the layers it was built with",
                param_hint="'--layers'",
            )
        return read_module(name)
    from graphgen.ir import dtype
    from graphgen.models import build
    from graphgen.runtime.checkpoint.model_config import model_config

    return build(model_config(name), dtype("bf16"), layers=layers)


def is_model(name: str) -> bool:
    """True for known shapes, and for what holds a configuration instead of a module."""
    if name == STANDARD:
        return False
    path = Path(name)
    if is_folder(path) or path.suffix in (".gguf", ".json"):
        return is_there(path)
    if is_there(path):
        return False
    from graphgen.models import SHAPES, shape_name

    return shape_name(name) in SHAPES or name == "smollm2"


def check_twins(model: str, twins: str | None, *, own_size: bool) -> bool:
    """True if twins of a model are validated; refuse ``--twins`` where none can be.

    Args:
        model: the argument: a module file, or a model.
        twins: of ``--twins``, ``None`` if it was not given.
        own_size: whether an option asks for the model as large as it is.
    """
    if twins is not None and not is_model(model):
        raise typer.BadParameter(
            "is for models: a module file is validated as it is; give a model, as in "
            "'graphgen validate llama-3.1-8b', or build the twin: 'graphgen build MODEL --twin "
            f"{twins if twins == 'wide' else 'mini'} -o twin.gg'",
            param_hint="'--twins'",
        )
    if twins is not None and own_size:
        raise typer.BadParameter(
            "cannot be combined with --layerwise, --layers, --weights or --inputs, which take the "
            "model at its own size",
            param_hint="'--twins'",
        )
    return is_model(model) and not own_size


def measured_ranges(
    checkpoint: str | None, *, given: bool
) -> Mapping[str, Sequence[Statistics]] | None:
    """The ranges of the weights of a checkpoint, ``None`` without one.

    Args:
        checkpoint: a path, or a name such as ``smollm2``.
        given: whether other options say where weights come from.

    Raises:
        GraphgenError: what reading the checkpoint raises.
    """
    if checkpoint is None:
        return None
    if given:
        raise typer.BadParameter(
            "cannot be combined with --weights or --layerwise, which have weights of their own",
            param_hint="'--statistics'",
        )
    from graphgen.runtime.accuracy.validate_model import checkpoint_statistics

    return checkpoint_statistics(checkpoint)


def run_twins(
    model: str,
    pipeline: str,
    plugins: Sequence[str] | None,
    options: ValidationOptions,
    on_step: Callable[[str], None],
) -> list[ModuleVerdicts]:
    """Validate a pipeline on the twins of a model.

    Args:
        model: as ``graphgen build`` takes it.
        pipeline: passes, as after ``-p``; ``default`` gets the buckets of each twin.
        plugins: files with further passes.
        options: of the validation.
        on_step: called before each step with its description.

    Raises:
        GraphgenError: what reading the configuration or a pass raises.
    """
    loaded = load_plugins(plugins)
    from graphgen.lowering.plugin_file import check_plugins_named
    from graphgen.passes.pipelines import parse
    from graphgen.runtime.accuracy.validate_model import validate_model
    from graphgen.runtime.checkpoint.model_config import model_config

    check_plugins_named(loaded, pipeline, parse(pipeline))
    return validate_model(
        model_config(model), lambda sizes: parse(pipeline, sizes), options, on_step
    )
