"""The arguments of neuronx-cc that follow from a NeuronConfig.

Formulas: NxD Inference's defaults by phase, which its model classes replace as a whole where they
have arguments of their own. Here a family adds to them and replaces none.
"""

from __future__ import annotations

from typing import Final

from graphgen.runtime.aws.config.neuron_config import NeuronConfig

CONTEXT: Final = "context_encoding_model"
TOKENS: Final = "token_generation_model"
# AWS's names of the programs of a phase.
PHASES: Final = (CONTEXT, TOKENS)


def compiler_arguments(config: NeuronConfig, target: str, phase: str) -> tuple[str, ...]:
    """The arguments for the programs of one phase.

    Args:
        config: the configuration; ``cc_pipeline_tiling_factor``, ``logical_nc_config``,
            ``scratchpad_page_size``, ``enable_long_context_mode``, ``enable_spill_reload_dge`` and
            ``enable_output_completion_notifications`` are read.
        target: a Neuron target.
        phase: one of :data:`PHASES`. Token programs have collectives in one piece.
    """
    context = phase == CONTEXT
    pieces = config.value("cc_pipeline_tiling_factor") if context else 1
    arguments = [
        f"--target={target}",
        "--auto-cast=none",
        "--model-type=transformer",
        "--tensorizer-options=--enable-ccop-compute-overlap "
        f"--cc-pipeline-tiling-factor={pieces} --vectorize-strided-dma",
        f"--lnc={config.logical_cores(target)}",
        "-O1" if context else "-O2",
    ]
    if page := config.value("scratchpad_page_size"):
        arguments.append(f"--hbm-scratchpad-page-size={page}")
    if config.value("enable_spill_reload_dge"):
        arguments.extend(("--internal-enable-dge-levels", "spill_reload"))
    modular = "--modular-flow-mac-threshold=10 " if context else ""
    arguments.append(f"--internal-hlo2tensorizer-options={modular}--verify-hlo=true")
    backend = {
        "enable_long_context_mode": "--enable-verifier=false",
        "enable_output_completion_notifications": "--enable-output-completion-notifications",
    }
    options = [option for name, option in backend.items() if config.value(name)]
    if options:
        arguments.append(f"--internal-backend-options={' '.join(options)}")
    return tuple(arguments)
