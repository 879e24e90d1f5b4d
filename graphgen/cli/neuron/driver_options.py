"""Flags of the compile driver: how compilers are run, and where results are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from graphgen.cli.flag_group import Command, flag, takes_flags

Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Compilers at a time; 0 for one a core.")]
Memory = Annotated[
    float,
    typer.Option(
        "--memory", metavar="GB", min=0, help="For all compilers; 0 for 4/5 of what is free."
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0, help="Of a program; 0 for no limit."),
]
CacheDir = Annotated[
    str,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="A folder or URL; by default NEURON_COMPILE_CACHE_URL, then "
        "/var/tmp/neuron-compile-cache.",
    ),
]
Compiler = Annotated[
    str, typer.Option("--compiler", metavar="PATH", help="By default neuronx-cc on PATH.")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Compile again programs that have failed before.")
]
NoCheck = Annotated[
    bool, typer.Option("--no-check", help="Compile whatever 'graphgen check' predicts.")
]
NoMetadata = Annotated[
    bool, typer.Option("--no-metadata", help="HLO without op names and source lines.")
]
OutlineLayers = Annotated[
    bool,
    typer.Option(
        "--outline-layers",
        help="Equal layers are one function of the HLO, which the compiler is asked to compile "
        "once (-O1, modular flow).",
    ),
]
LayerMarkers = Annotated[
    bool,
    typer.Option(
        "--layer-markers",
        help="Layers begin and end with AwsNeuronModuleMarker calls, by which the compiler finds "
        "them (--recursive-layer-det=false).",
    ),
]
OptimizeLayouts = Annotated[
    bool,
    typer.Option(
        "--optimize-layouts",
        help="Ask the compiler for layouts of weights first; --weights stores them so.",
    ),
]
KeepLayout = Annotated[
    str,
    typer.Option(
        "--keep-layouts",
        metavar="W,...",
        help="Weights that --optimize-layouts leaves alone, also with * and ?.",
    ),
]


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """The values of the flags."""

    jobs: int = 0
    memory: float = 0.0
    timeout: float = 0.0
    cache_dir: str = ""
    compiler: str = ""
    retry_failed: bool = False
    no_check: bool = False
    no_metadata: bool = False
    outline_layers: bool = False
    layer_markers: bool = False
    optimize_layouts: bool = False
    keep_layouts: str = ""


NO_LIMITS = DriverOptions()


def takes_driver_options() -> Callable[[Command], Command]:
    """Give a command these flags in place of its parameter ``driver_options``."""
    kinds: Mapping[str, tuple[object, object]] = {
        "jobs": (Jobs, 0),
        "memory": (Memory, 0.0),
        "timeout": (Timeout, 0.0),
        "cache_dir": (CacheDir, ""),
        "compiler": (Compiler, ""),
        "retry_failed": (RetryFailed, False),
        "no_check": (NoCheck, False),
        "no_metadata": (NoMetadata, False),
        "outline_layers": (OutlineLayers, False),
        "layer_markers": (LayerMarkers, False),
        "optimize_layouts": (OptimizeLayouts, False),
        "keep_layouts": (KeepLayout, ""),
    }
    flags = {name: flag(name, *kind) for name, kind in kinds.items()}
    return takes_flags("driver_options", flags, _collected)


def _collected(given: Mapping[str, object]) -> DriverOptions:
    return DriverOptions(**given)  # pyright: ignore[reportArgumentType]
