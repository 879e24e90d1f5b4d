"""The compile configuration that follows from AWS's configurations: a fold over their rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.passes.kernels.neuron_rules import NATIVE
from graphgen.runtime.aws_config.attribute import Attribute, CompileRequest, CompileSetting
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.lora_settings import check_adapters
from graphgen.runtime.aws_config.medusa_checks import tree_of
from graphgen.runtime.aws_config.neuron_config import NeuronConfig, OnDeviceSamplingConfig
from graphgen.runtime.aws_config.strict_config import CPU, StrictConfig

# Fields that attributes add words to, each its own.
ADDED: Final = ("rules", "native_kernels")
# The environment variable that names the manifest; AWS's configurations have no word for it.
_MANIFEST: Final = "GRAPHGEN_KERNEL_ARTIFACTS"


@dataclass(frozen=True, slots=True)
class SettingRequest:
    """The configurations of one compilation, as the table reads them.

    Attributes:
        configs: each attribute is in one of them.
        target: of :mod:`graphgen.targets`.
        model: a ``config.json``; empty where no model is named.
    """

    configs: Sequence[StrictConfig]
    target: str = CPU
    model: Mapping[str, object] = field(default_factory=dict[str, object])

    def __getitem__(self, name: str, /) -> object:
        return self._home(name).value(name)

    def is_given(self, name: str) -> bool:
        """True for an attribute that somebody set."""
        return self._home(name).is_given(name)

    def _home(self, name: str) -> StrictConfig:
        homes = (config for config in self.configs if name in attributes_of(config.owner))
        return next(homes, self.configs[0])


def compile_settings(
    config: NeuronConfig, target: str = CPU, model: Mapping[str, object] | None = None
) -> CompileConfig:
    """The compile configuration of a NeuronConfig for a target.

    Args:
        config: the attributes.
        target: of :mod:`graphgen.targets`.
        model: a ``config.json``, for what depends on it: the features of a draft.

    Raises:
        GraphgenError: GG0903 for impossible combinations, GG0904 for what is not built for the
            target.
    """
    config.check(target)
    check_adapters(config)
    if config.value("is_medusa"):
        tree_of(config)
    manifest = _kernel_manifest(target)
    found = folded(SettingRequest((config,), target, model or {}))
    kernels = {"kernel_artifacts": manifest} if manifest else {"native_kernels": ()}
    return CompileConfig(target=target).updated({**found, **kernels})


def folded(request: SettingRequest) -> dict[str, object]:
    """The fields that configurations, and those inside them, set on the target."""
    found: dict[str, object] = {}
    acted: set[int] = set()
    for row, effect, own in _acting(request):
        # Attributes that set fields together act once.
        if id(effect) not in acted:
            acted.add(id(effect))
            for name, value in applied(row, effect, own).items():
                before = cast("tuple[str, ...]", found.get(name, ()))
                added = name in ADDED
                found[name] = (*before, *cast("tuple[str, ...]", value)) if added else value
    return found


def applied(
    row: Attribute, effect: CompileSetting, request: CompileRequest
) -> Mapping[str, object]:
    """The fields that one row sets."""
    if effect.apply is None:
        return {effect.fields[0]: request[row.name]}
    return effect.apply(request)


def _acting(
    request: SettingRequest,
) -> Iterator[tuple[Attribute, CompileSetting, SettingRequest]]:
    """The rows that set fields, those of configurations after the ones that hold them."""
    for config in request.configs:
        for row in attributes_of(config.owner).values():
            effect = row.effect(request.target)
            if isinstance(effect, CompileSetting) and not row.replaces:
                yield row, effect, request
    for config in request.configs:
        for inner in config.nested_configs():
            yield from _acting(SettingRequest((inner,), request.target, request.model))


def kernel_notes(config: NeuronConfig, target: str) -> tuple[str, ...]:
    """A remark for each kernel that no artifact is given of, for a device."""
    if target == CPU or _kernel_manifest(target):
        return ()
    kernels = {row.option: row.kernel for row in NATIVE}
    return tuple(
        f"NeuronConfig.{row.name} = True has no effect: {kernels[word]} exists in NKI alone, "
        f"and no artifact of it is given for {target}; ordinary ops compute the same, or let "
        f"{_MANIFEST} name a manifest of kernels (docs/kernels.md)"
        for row, effect, request in _acting(SettingRequest((config,), target))
        if "native_kernels" in effect.fields
        for word in cast("tuple[str, ...]", applied(row, effect, request).get("native_kernels", ()))
    )


def _kernel_manifest(target: str) -> str:
    """The manifest of kernels for a device; empty for none, and for the CPU."""
    return "" if target == CPU else os.environ.get(_MANIFEST, "")


def sampling_defaults(config: NeuronConfig) -> tuple[int, float, float]:
    """top_k, top_p and temperature of rows that give none; (1, 1.0, 1.0) is the best token."""
    sampling = config.value("on_device_sampling_config")
    if not isinstance(sampling, OnDeviceSamplingConfig):
        return 1, 1.0, 1.0
    top_k, top_p = sampling.value("top_k"), sampling.value("top_p")
    return cast(int, top_k), cast(float, top_p), cast(float, sampling.value("temperature"))
