"""Flags of the compile driver: how compilers are run, and where results are kept."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.cli.flag_group import flag_field


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """The values of the flags."""

    jobs: int = flag_field(0, "Compilers at a time; 0 for one a core.", min=0)
    memory: float = flag_field(
        0.0, "For all compilers; 0 for 4/5 of what is free.", metavar="GB", min=0
    )
    timeout: float = flag_field(0.0, "Of a program; 0 for no limit.", metavar="SECONDS", min=0)
    cache_dir: str = flag_field(
        "",
        "A folder or URL; by default NEURON_COMPILE_CACHE_URL, then /var/tmp/neuron-compile-cache.",
        metavar="DIR",
    )
    compiler: str = flag_field("", "By default neuronx-cc on PATH.", metavar="PATH")
    retry_failed: bool = flag_field(False, "Compile again programs that have failed before.")
    no_check: bool = flag_field(False, "Compile whatever 'graphgen check' predicts.")
    no_metadata: bool = flag_field(False, "HLO without op names and source lines.")
    outline_layers: bool = flag_field(
        False,
        "Equal layers are one function of the HLO, which the compiler is asked to compile once "
        "(-O1, modular flow).",
    )
    layer_markers: bool = flag_field(
        False,
        "Layers begin and end with AwsNeuronModuleMarker calls, by which the compiler finds them "
        "(--recursive-layer-det=false).",
    )
    optimize_layouts: bool = flag_field(
        False, "Ask the compiler for layouts of weights first; --weights stores them so."
    )
    keep_layouts: str = flag_field(
        "", "Weights that --optimize-layouts leaves alone, also with * and ?.", metavar="W,..."
    )


NO_LIMITS = DriverOptions()
