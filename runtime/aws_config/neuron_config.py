"""NxD Inference's configurations as classes of the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.strict_config import CPU, StrictConfig
from graphgen.targets import accelerator, find_target


class NeuronConfig(StrictConfig):
    """Compile-time and run-time options."""

    owner: ClassVar[str] = "NeuronConfig"

    def problems(self, target: str = CPU) -> list[GraphgenError]:
        """The errors of all targets, then those of this one: the LNC, tp_degree and its name."""
        found = super().problems(target)
        if target == CPU or not find_target(target).is_accelerator:
            return found
        return [*found, *self._device_problems(target)]

    def logical_cores(self, target: str) -> int:
        """Physical cores per logical core (LNC): of the variable, given, or the target's own."""
        if self.origin("logical_nc_config").startswith("derived"):
            return accelerator(target).lnc
        return cast(int, self.value("logical_nc_config"))

    def _device_problems(self, target: str) -> Iterator[GraphgenError]:
        named = self.value("target")
        if named not in (None, target):
            yield GraphgenError(
                "GG0903",
                f"{self.owner}.target = {named!r}: this compiles for {target}",
                help=f"compile for {named}, or leave target out",
            )
        lnc, tp = self.logical_cores(target), cast(int, self.value("tp_degree"))
        try:
            device = accelerator(target, lnc)
        except GraphgenError:
            yield GraphgenError(
                "GG0903",
                f"{self.owner}.logical_nc_config = {lnc}: cores of {target} cannot be joined so",
                help=f"leave it out: {target} has logical_nc_config {accelerator(target).lnc}",
            )
            return
        if device.tp_degrees and tp not in device.tp_degrees:
            degrees = ", ".join(map(str, device.tp_degrees))
            yield GraphgenError(
                "GG0903",
                f"{self.owner}.tp_degree = {tp}: the runtime of {target} has degrees {degrees}",
                help="set tp_degree to one of them",
            )


class OnDeviceSamplingConfig(StrictConfig):
    """Options of programs that choose the tokens."""

    owner: ClassVar[str] = "OnDeviceSamplingConfig"


class KVQuantizationConfig(StrictConfig):
    """The numbers and scales of a quantized cache."""

    owner: ClassVar[str] = "KVQuantizationConfig"


class LoraServingConfig(StrictConfig):
    """Adapters that requests choose from."""

    owner: ClassVar[str] = "LoraServingConfig"


class ChunkedPrefillConfig(StrictConfig):
    """Prompts in chunks."""

    owner: ClassVar[str] = "ChunkedPrefillConfig"


class FusedSpecNeuronConfig(StrictConfig):
    """Draft and target of fused speculation."""

    owner: ClassVar[str] = "FusedSpecNeuronConfig"
    positional: ClassVar[tuple[str, ...]] = (
        "worker_cls",
        "draft_config",
        "draft_model_path",
        "draft_model_cls",
    )


class LlamaNeuronConfig(NeuronConfig):
    """The options of Llama models."""


class MistralNeuronConfig(NeuronConfig):
    """The options of Mistral models."""


class Qwen2NeuronConfig(NeuronConfig):
    """The options of Qwen2 models."""


class Qwen3NeuronConfig(NeuronConfig):
    """The options of Qwen3 models."""


class Gemma3NeuronConfig(NeuronConfig):
    """The options of Gemma 3 models."""
