"""A quantized checkpoint's forms as its configuration states them, and modules that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from graphgen.ir import Module, dtype
from graphgen.option_words import ACTIVATIONS_WIDE
from graphgen.passes.quantize.stored.quantization_settings import StoredQuantization
from graphgen.passes.quantize.stored.read_config import stored_quantizations
from graphgen.targets import find_target

# Keys of a quantization_config: patterns of modules, exceptions, and the type of scales.
MODULES: Final = "quantized_modules"
SKIPPED: Final = "unquantized_modules"
SCALES: Final = "type_of_scales"


@dataclass(frozen=True, slots=True)
class StoredReading:
    """One form of a checkpoint's weights, and where it is.

    Attributes:
        found: scheme and numbers.
        modules: patterns of the modules whose weight is stored so.
        skip: modules that a pattern matches and whose weight is not.
    """

    found: StoredQuantization
    modules: tuple[str, ...]
    skip: tuple[str, ...]


def stored_readings(config: Mapping[str, object]) -> list[StoredReading]:
    """Each form that a checkpoint's weights are in.

    Args:
        config: of a checkpoint, as ``with_quantization`` or a view of GGUF gives it; without the
            modules that they state, those that the scheme always has, if there are some.

    Raises:
        GraphgenError: GG0502 for a scheme that is not read.
    """
    stated = config.get("quantization_config")
    found = stored_quantizations(config)
    if not found or not isinstance(stated, dict):
        return []
    own = cast("Mapping[str, Mapping[str, object]]", stated)
    kinds = own.get("kinds", {})
    readings: list[StoredReading] = []
    if SCALES in own:
        scale = dtype(str(own[SCALES]))
        found = [replace(each, form=replace(each.form, scale=scale)) for each in found]
    for each in found:
        names = cast("Mapping[str, Sequence[str]]", kinds.get(each.scheme.name, own))
        modules, skip = names.get(MODULES, each.scheme.modules), names.get(SKIPPED, ())
        if modules:
            readings.append(StoredReading(each, tuple(modules), tuple(skip)))
    return readings


def read_quantized(
    module: Module,
    config: Mapping[str, object],
    target: str = "cpu",
    activations: str = ACTIVATIONS_WIDE,
) -> str:
    """Let a logical module read the weights of a quantized checkpoint.

    Args:
        module: built from ``config``; changed in place.
        config: of a checkpoint, as ``with_quantization`` gives it.
        target: of the compilation; on Neuron's devices f8e4m3 ends at 240, and not at 448.
        activations: their type in the compilation, ``activation_quantization_type``.

    Returns:
        A remark for the user on what is computed otherwise than by the checkpoint's own library;
        empty for none.

    Raises:
        GraphgenError: GG0502 for a scheme that is not read.
    """
    readings = stored_readings(config)
    if not readings:
        return ""
    # Only here: an artifact runs without any pass.
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.quantize.read_quantized import ReadQuantized

    for each in readings:
        form = each.found.form
        reading = ReadQuantized(
            scheme=each.found.scheme.name,
            element=form.element.name,
            block=form.block,
            zero_points=form.zero_points,
            ordered=form.ordered,
            rescaled=find_target(target).is_accelerator,
            static=form.static,
            scales=form.scale.name,
            modules=each.modules,
            skip=each.skip,
        )
        run_pipeline(module, [reading])
    found = readings[0].found
    if not found.activations or activations != ACTIVATIONS_WIDE:
        return ""
    return (
        f"the checkpoint is made for activations in {found.activations}; they stay in "
        f"{module.meta['dtype']} here, which rounds less"
    )
