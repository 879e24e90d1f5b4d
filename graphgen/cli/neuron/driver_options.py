"""Flags of the compile driver: how compilers are run, and where results are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphgen.cli.flag_group import Command, option, options, takes_flags

_FLAGS = options(
    option(int, "--jobs", default=0, min=0, help="Compilers at a time; 0 for one a core."),
    option(
        float,
        "--memory",
        default=0.0,
        metavar="GB",
        min=0,
        help="For all compilers; 0 for 4/5 of what is free.",
    ),
    option(
        float,
        "--timeout",
        default=0.0,
        metavar="SECONDS",
        min=0,
        help="Of a program; 0 for no limit.",
    ),
    option(
        str,
        "--cache-dir",
        default="",
        metavar="DIR",
        help="A folder or URL; by default NEURON_COMPILE_CACHE_URL, then "
        "/var/tmp/neuron-compile-cache.",
    ),
    option(str, "--compiler", default="", metavar="PATH", help="By default neuronx-cc on PATH."),
    option(
        bool,
        "--retry-failed",
        default=False,
        help="Compile again programs that have failed before.",
    ),
    option(bool, "--no-check", default=False, help="Compile whatever 'graphgen check' predicts."),
    option(bool, "--no-metadata", default=False, help="HLO without op names and source lines."),
    option(
        bool,
        "--outline-layers",
        default=False,
        help="Equal layers are one function of the HLO, which the compiler is asked to compile "
        "once (-O1, modular flow).",
    ),
    option(
        bool,
        "--layer-markers",
        default=False,
        help="Layers begin and end with AwsNeuronModuleMarker calls, by which the compiler finds "
        "them (--recursive-layer-det=false).",
    ),
    option(
        bool,
        "--optimize-layouts",
        default=False,
        help="Ask the compiler for layouts of weights first; --weights stores them so.",
    ),
    option(
        str,
        "--keep-layouts",
        default="",
        metavar="W,...",
        help="Weights that --optimize-layouts leaves alone, also with * and ?.",
    ),
)


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
    return takes_flags("driver_options", _FLAGS, _collected)


def _collected(given: Mapping[str, object]) -> DriverOptions:
    return DriverOptions(**given)  # pyright: ignore[reportArgumentType]
