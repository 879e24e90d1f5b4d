"""The programs of a model for a Neuron target, with the options of the compiler; no weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import KERNELS_OFF
from graphgen.config.rank_config import MANUAL
from graphgen.exec.adapters import adapter_rows
from graphgen.exec.decode_steps import STEPS
from graphgen.ir import VERIFY, VERIFY_TREE, Module
from graphgen.lowering.neuronx_cc.command_line import OptionLayer
from graphgen.lowering.neuronx_cc.default_options import LONG, Situation
from graphgen.lowering.neuronx_cc.program_plan import PlanOptions, options_by_default
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.lora.slot_program import write_slot_module
from graphgen.passes.outline.mark_layers import MarkLayers
from graphgen.passes.pipelines import default
from graphgen.runtime.model import BuiltModel, logical_module, steps_of, with_mesh
from graphgen.targets import Accelerator

# AWS's tools know sub-models under these names, which are the folders of their programs.
SUB_MODELS: Mapping[str, str] = {
    "prefill": "context_encoding_model",
    "decode": "token_generation_model",
    VERIFY: "speculation_model",
    STEPS: "fused_speculation_model",
    VERIFY_TREE: "medusa_speculation_model",
}


@dataclass(frozen=True, slots=True)
class DevicePrograms:
    """A model ready to be compiled for a device.

    Attributes:
        built: the module for the target, and how it was made.
        options: the options of the compiler.
        kept_layouts: weights whose layout the configuration keeps.
    """

    built: BuiltModel
    options: PlanOptions
    kept_layouts: Sequence[str] = ()

    @property
    def module(self) -> Module:
        """The programs of the model."""
        return self.built.module

    @property
    def modules(self) -> list[Module]:
        """Modules to compile: of the model, and of the program that writes adapters into slots."""
        adapted = bool(adapter_rows(self.module))
        return [self.module, *([write_slot_module(self.module)] if adapted else [])]


def device_programs(
    model: Mapping[str, object],
    settings: CompileConfig,
    device: Accelerator,
    layers: Sequence[OptionLayer],
    *,
    marked: bool = False,
    journal: Journal | None = None,
) -> DevicePrograms:
    """Build a model for a device; nothing of this machine is in the programs.

    Args:
        model: a ``config.json``.
        settings: what is compiled; its target is replaced by the device.
        device: the device.
        layers: the user's options of the compiler.
        marked: layers begin and end with marks for the compiler.
        journal: records every rewrite.

    Raises:
        GraphgenError: GG0501 to GG0503 for the configuration, GG0304 if it cannot be split.
    """
    settings = replace(settings, target=device.name, kernels=KERNELS_OFF)
    settings, chosen = with_mesh(model, settings, device)
    settings = replace(settings, parallelism=MANUAL)
    module, steps = logical_module(model, settings)
    passes = [*default(settings), *([MarkLayers()] if marked else [])]
    steps += [*chosen, *steps_of(run_pipeline(module, passes, journal=journal))]
    built = BuiltModel(dict(model), settings, module, steps)
    base = Situation(
        phase="",
        target=device.name,
        lnc=device.lnc,
        longest=settings.max_len,
        long_context=settings.max_len >= LONG,
        eight_bit_floats=has_float8(module),
        family=str(model.get("model_type", "")),
    )
    return DevicePrograms(built, options_by_default(base, device, SUB_MODELS, layers))


def has_float8(module: Module) -> bool:
    """True if a program reads weights or caches of 8-bit floats."""
    return any(
        value.dtype.name.startswith("f8")
        for function in module.programs()
        for value in function.args
    )
