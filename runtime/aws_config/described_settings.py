"""A compilation as AWS's ``neuron_config.json``, where its attributes can say all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute import Attribute, CompileSetting
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.targets import Accelerator

# Fields that a device does not read.
_OF_THE_CPU = ("min_rows", "kernels")


def described_settings(
    model: Mapping[str, object],
    settings: CompileConfig,
    device: Accelerator,
    *,
    marked: bool = False,
) -> str:
    """The text of a ``neuron_config.json`` that asks for the same programs; empty for none.

    Args:
        model: a ``config.json``.
        settings: the compilation.
        device: the target.
        marked: layers begin and end with marks for the compiler.
    """
    try:
        config = NeuronConfig(
            **described(NeuronConfig.owner, settings),
            logical_nc_config=device.lnc,
            layer_boundary_markers=marked,
        )
        if _differences(compile_settings(config, device.name), settings):
            return ""
        plain = {name: value for name, value in model.items() if name != "dtype"}
        made = InferenceConfig(config)
        for name, value in plain.items():
            setattr(made, name, value)
        return made.to_json_string() + "\n"
    except (GraphgenError, KeyError):
        return ""


def described(owner: str, settings: CompileConfig) -> dict[str, object]:
    """The attributes of a class that ask for a compilation, as far as its rows describe it.

    Raises:
        KeyError: for a word that has no name among AWS's.
    """
    found: dict[str, object] = {}
    for row in attributes_of(owner).values():
        describe = _description(row)
        if describe is not None and not row.replaces:
            value = describe(settings)
            if row.nested:
                value = described(row.nested, settings) if value else None
            found[row.name] = value
    return found


def _description(row: Attribute) -> Callable[[CompileConfig], object] | None:
    """The function of a row; that of a field which has the value of the attribute itself."""
    effect = row.cpu
    if row.described is not None or not isinstance(effect, CompileSetting):
        return row.described
    return attrgetter(effect.fields[0]) if effect.apply is None else None


def _differences(described: CompileConfig, settings: CompileConfig) -> list[str]:
    """The fields in which the programs would differ."""
    other = described.values()
    return [
        name
        for name, value in settings.values().items()
        if name not in _OF_THE_CPU and other[name] != value
    ]
