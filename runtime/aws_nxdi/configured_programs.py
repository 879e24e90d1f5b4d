"""The programs that a ``neuron_config.json`` describes, for a Neuron target; no weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.limits import JSON_BYTES
from graphgen.lowering.neuronx_cc.command_line import OptionLayer
from graphgen.lowering.neuronx_cc.default_options import Situation
from graphgen.lowering.neuronx_cc.program_plan import PlanOptions
from graphgen.models import known_family
from graphgen.runtime.artifact.device_programs import SUB_MODELS, DevicePrograms
from graphgen.runtime.aws_config.config_json import read_object
from graphgen.runtime.aws_config.medusa_heads import config_with_heads
from graphgen.runtime.aws_nxdi.base_model import PHASES, TOKEN_GENERATION
from graphgen.runtime.aws_nxdi.compiler_args import attribute_layers, situation
from graphgen.runtime.aws_nxdi.fused_programs import build_programs
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from graphgen.targets import accelerator


def configured_programs(
    file: Path, target: str, lnc: int, layers: Sequence[OptionLayer]
) -> DevicePrograms:
    """Build the programs of a configuration, and the options that its attributes request.

    Args:
        file: a ``neuron_config.json`` with the attributes of the model.
        target: the device.
        lnc: cores of a logical core; 0 for those of the configuration.
        layers: the user's options of the compiler.

    Raises:
        GraphgenError: GG0906 for a file that cannot be read, GG0501 for an unknown model, GG09xx
            for its attributes.
    """
    family = _family(file)
    application = CAUSAL_LM[family](file.parent)
    config = application.neuron_config
    device = accelerator(target, lnc or config.logical_cores(target))
    given = [OptionLayer("--lnc", f"--lnc={lnc}")] if lnc else []
    tags = {phase: tag for tag, phase in PHASES.items()}

    def tag_of(phase: str) -> str:
        # The program that writes adapters into slots has the options of a step.
        return tags.get(phase, TOKEN_GENERATION)

    def of_phase(phase: str, shared: int) -> Sequence[OptionLayer]:
        own = attribute_layers(config, tag_of(phase), target, family, shared)
        return [*own, *given, *layers]

    def at(phase: str, shared: int) -> Situation:
        return situation(config, tag_of(phase), target, family, shared)

    model = config_with_heads(config, application.model_config(), application.model_path)
    built = build_programs(model, application.config, application.compile_config(target))
    kept = cast("Sequence[str]", config.value("weights_to_skip_layout_optimization"))
    return DevicePrograms(built, PlanOptions(device, SUB_MODELS, of_phase, at), tuple(kept))


def _family(file: Path) -> str:
    """The model type of a configuration."""
    try:
        values = read_object(read_regular(file, JSON_BYTES).decode("utf-8"))
    except (OSError, ValueError) as error:
        what = f"cannot read the configuration: {error}"
        raise GraphgenError("GG0906", what, where=str(file)) from error
    found = str(values.get("model_type", ""))
    family = known_family(found)
    if family is None or family.model_type not in CAUSAL_LM:
        raise GraphgenError(
            "GG0501",
            f"the configuration describes the model type {found!r}",
            where=str(file),
            help=f"one of {', '.join(CAUSAL_LM)}",
        )
    return family.model_type
