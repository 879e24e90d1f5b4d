"""Command lines of ``neuronx-cc`` per sub-model, and the merge of more arguments into them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

from graphgen.lowering.neuronx_cc.command_line import OptionLayer, merge
from graphgen.lowering.neuronx_cc.default_options import Situation, default_layers
from graphgen.lowering.neuronx_cc.program_plan import PlanOptions
from graphgen.runtime.aws_config.attribute import CompilerArgument
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.base_model import FUSED_SPECULATION, PHASES, TOKEN_GENERATION
from graphgen.targets import accelerator


def default_compiler_args(config: NeuronConfig, tag: str, target: str) -> str:
    """The arguments of one sub-model, as NxD Inference gives them.

    Attributes whose effect is a compiler argument are merged in by the table.

    Args:
        config: the attributes.
        tag: of the sub-model.
        target: such as ``trn2``.
    """
    return merge(attribute_layers(config, tag, target)).text


def attribute_layers(
    config: NeuronConfig, tag: str, target: str, family: str = "", shared_layers: int = 0
) -> list[OptionLayer]:
    """The layers of :func:`default_compiler_args`: the defaults, then a layer an attribute.

    Args:
        config: the attributes.
        tag: of the sub-model.
        target: such as ``trn2``.
        family: the model type, for the options of its family.
        shared_layers: layers of the program that call one function.
    """
    layers = default_layers(situation(config, tag, target, family, shared_layers))
    layers += _attributes(config, target)
    if tag in (TOKEN_GENERATION, FUSED_SPECULATION):
        # These programs have too little work between collectives to tile it.
        text = "--tensorizer-options=--cc-pipeline-tiling-factor=1"
        layers.append(OptionLayer(f"{tag} is not tiled", text))
    return layers


def plan_options(config: NeuronConfig, target: str, more: str = "") -> PlanOptions:
    """The options of all programs of a configuration, with those of ``NEURON_CC_FLAGS``.

    Args:
        config: the attributes.
        target: such as ``trn2``.
        more: an application's own arguments.
    """
    flags = os.environ.get("NEURON_CC_FLAGS", "")
    own = [OptionLayer("get_compiler_args", more), OptionLayer("NEURON_CC_FLAGS", flags)]
    tags = {phase: tag for tag, phase in PHASES.items()}
    return PlanOptions(
        accelerator(target, config.logical_cores(target)),
        tags,
        lambda phase, shared: [
            *attribute_layers(config, tags[phase], target, "", shared),
            *[layer for layer in own if layer.text.strip()],
        ],
        lambda phase, shared: situation(config, tags[phase], target, "", shared),
    )


def situation(
    config: NeuronConfig, tag: str, target: str, family: str = "", shared_layers: int = 0
) -> Situation:
    """The facts that defaults depend on; arguments as of :func:`attribute_layers`."""
    return Situation(
        phase=PHASES[tag],
        target=target,
        lnc=config.logical_cores(target),
        longest=cast(int, config.value("seq_len")),
        long_context=bool(config.value("enable_long_context_mode")),
        eight_bit_floats=_has_fp8(config),
        family=family,
        shared_layers=shared_layers,
    )


def _attributes(config: NeuronConfig, target: str) -> Iterator[OptionLayer]:
    for row in attributes_of(config.owner).values():
        for effect in (row.effect(target), row.beside):
            if not isinstance(effect, CompilerArgument) or "--lnc" in effect.argument:
                continue
            wanted = not effect.also or config.value(effect.also)
            text = _argument(effect.argument, config.value(row.name)) if wanted else ""
            if text:
                yield OptionLayer(row.name, text)


def _argument(argument: str, value: object) -> str:
    """The argument with its value; empty for an attribute that is off."""
    if value is None or value is False:
        return ""
    return argument if value is True else f"{argument}={value}"


def _has_fp8(config: NeuronConfig) -> bool:
    weights = config.value("quantized") and str(config.value("quantization_dtype")).startswith("f8")
    return bool(weights or config.value("kv_cache_quant"))


def merge_compiler_args(default: str, more: str | None) -> str:
    """Both lists of arguments as one; an option in both has the value of ``more``.

    Options of ``default`` stay unless ``more`` has them; lists of options, such as
    ``--tensorizer-options``, are merged option by option.

    Raises:
        GraphgenError: GG0705 for a text that is not a list of options.
    """
    return merge([OptionLayer("default", default), OptionLayer("more", more or "")]).text
