"""Report on a configuration file: value, origin and effect of each attribute."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.runtime.aws_config.attribute import REQUIRED, Refused, effect_text
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.compile_settings import compile_settings, kernel_notes
from graphgen.runtime.aws_config.config_json import inspect_config, value_json
from graphgen.runtime.aws_config.environment import environment_notes
from graphgen.runtime.aws_config.model_checks import stored_quantization
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.strict_config import CPU, StrictConfig, config_class


@dataclass(frozen=True, slots=True)
class AttributeLine:
    """One attribute of a configuration.

    Attributes:
        name: with the names of the configurations around it, separated by periods.
        value: as in JSON.
        origin: ``file``, ``default``, ``derived: ...``, or an environment variable.
        effect: the effect on the target, in words.
    """

    name: str
    value: Json
    origin: str
    effect: str


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """A configuration as a user gave it, errors included.

    Attributes:
        owner: name of the class.
        target: a target of :mod:`graphgen.targets`.
        lines: the attributes, in the order of the table.
        notes: attributes and variables without effect, and old names.
        problems: the errors.
        config: what could be read.
        settings: of a NeuronConfig without errors.
    """

    owner: str
    target: str
    lines: Sequence[AttributeLine]
    notes: Sequence[str]
    problems: Sequence[GraphgenError]
    config: StrictConfig
    settings: CompileConfig | None


def report_of(values: Mapping[str, object], owner: str, target: str = CPU) -> ConfigReport:
    """The report on the attributes of a file, or of an object of AWS's JSON.

    Args:
        values: attributes by name; hyphens are underscores. Those under ``neuron_config``, if it
            is there.
        owner: name of the class; empty for the NeuronConfig class that has all the names.
        target: for the effects.
    """
    given = values.get("neuron_config", values)
    if not isinstance(given, Mapping):
        raise GraphgenError(
            "GG0906",
            f"neuron_config is {type(given).__name__}, not a JSON object",
            help="compile and InferenceConfig.save write neuron_config.json",
        )
    attributes = cast("Mapping[str, object]", given)
    kind = config_class(owner or _owner(attributes))
    config, problems = inspect_config(kind, attributes)
    if target != CPU:
        known = [str(error) for error in problems]
        problems.extend(e for e in config.problems(target) if str(e) not in known)
    settings: CompileConfig | None = None
    if isinstance(config, NeuronConfig) and not problems:
        settings = compile_settings(config, target)
        problems.extend(_of_files(config))
    return ConfigReport(
        kind.owner,
        target,
        _lines(config, target, ""),
        (
            *config.notes(target),
            *_kernel_notes(config, target),
            *environment_notes(os.environ, target),
        ),
        problems,
        config,
        settings,
    )


def _kernel_notes(config: StrictConfig, target: str) -> tuple[str, ...]:
    return kernel_notes(config, target) if isinstance(config, NeuronConfig) else ()


def _of_files(config: NeuronConfig) -> list[GraphgenError]:
    """The error about a file that the configuration names."""
    try:
        stored_quantization(config)
    except GraphgenError as error:
        return [error]
    return []


def _owner(values: Mapping[str, object]) -> str:
    """MoENeuronConfig for values that only it has."""
    names = {name.replace("-", "_") for name in values}
    expert = set(attributes_of("MoENeuronConfig")) - set(attributes_of("NeuronConfig"))
    return "MoENeuronConfig" if names & expert else "NeuronConfig"


def _lines(config: StrictConfig, target: str, prefix: str) -> list[AttributeLine]:
    """The attributes, those of nested configurations after the one that holds them."""
    made: list[AttributeLine] = []
    for name, row in attributes_of(config.owner).items():
        if row.replaces:
            continue
        origin, value, shown = _read(config, name)
        effect = row.effect(target)
        quiet = isinstance(effect, Refused) and row.requests_nothing(value, config.default(name))
        words = "off" if quiet else effect_text(effect)
        made.append(AttributeLine(f"{prefix}{name}", shown, origin, words))
        if isinstance(value, StrictConfig):
            made.extend(_lines(value, target, f"{prefix}{name}."))
    return made


def _read(config: StrictConfig, name: str) -> tuple[str, object, Json]:
    """The origin of a value, the value, and the value as JSON."""
    origin = config.origin(name)
    origin = "file" if origin == "given" else origin
    try:
        value = config.value(name)
    except GraphgenError as error:
        return origin, None, error.what
    if value is REQUIRED:
        return "missing", None, None
    if isinstance(value, StrictConfig):
        return origin, value, type(value).__name__
    shown = value_json(value)
    infinite = isinstance(shown, float) and abs(shown) == float("inf")
    return origin, value, str(shown) if infinite else cast(Json, shown)
