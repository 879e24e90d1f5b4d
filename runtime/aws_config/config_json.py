"""The JSON form of configurations, as AWS's libraries write it into ``neuron_config.json``.

Keys are sorted and indented by 2; element types are short names, a class is an object of
``__module__`` and ``__name__``, a nested configuration an object of its attributes.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import FunctionType
from typing import Protocol, TypeVar, cast, runtime_checkable

from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.runtime.aws_config.attribute import REQUIRED, Derived, DescribesModel
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.strict_config import StrictConfig, config_class
from graphgen.runtime.aws_config.value_kinds import CLASS

Config = TypeVar("Config", bound=StrictConfig)
_OURS = "graphgen."
_AWS = "neuronx_distributed"
# Modules of classes in files from before 0.1.0.
_EARLIER = ("graphgen.runtime.aws.config.", "graphgen.runtime.aws.attributes.")
_NAMES = "graphgen.runtime.aws.nxdi"


@runtime_checkable
class _HasJson(Protocol):
    """A configuration of a model."""

    def to_json_string(self) -> str:
        """The configuration as JSON text."""
        ...


def config_json(config: StrictConfig) -> dict[str, object]:
    """The object of a configuration: all attributes, given or not, without old names."""
    rows = attributes_of(config.owner).values()
    return {
        row.name: value_json(config.value(row.name))
        for row in rows
        if not row.replaces and config.value(row.name) is not REQUIRED
    }


def value_json(value: object) -> object:
    """A value of an attribute as JSON."""
    if isinstance(value, StrictConfig):
        return config_json(value)
    if inspect.isclass(value) or inspect.isfunction(value):
        return class_json(value)
    if isinstance(value, _HasJson):
        return parse_json(value.to_json_string())
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): value_json(item) for key, item in items}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [value_json(item) for item in cast("Sequence[object]", value)]
    return value


def class_json(named: type | FunctionType) -> dict[str, object]:
    """AWS's object of a class or a function: its module and its name."""
    return {"__module__": named.__module__, "__name__": named.__name__}


def named_class(value: object) -> object:
    """The class of an object of :func:`class_json`, or the value itself if it names none."""
    return _class_of(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value


def read_config(kind: type[Config], values: Mapping[str, object]) -> Config:
    """The configuration of an object of :func:`config_json`, or of AWS's.

    Attributes that have the value that follows from others are left to follow from them, so that a
    change of the others changes them too.

    Raises:
        GraphgenError: GG0901 for an unknown name, with the nearest one, GG0902 to GG0904.
    """
    made = kind(**_with_classes(kind, values))
    _leave_derived(made)
    return made


def inspect_config(
    kind: type[Config], values: Mapping[str, object]
) -> tuple[Config, list[GraphgenError]]:
    """The same without raising: what can be read, and the errors."""
    made, problems = kind.inspect(_with_classes(kind, values))
    _leave_derived(made)
    return made, problems


def config_text(config: StrictConfig) -> str:
    """JSON text as AWS's libraries write it."""
    return json.dumps(config_json(config), indent=2, sort_keys=True)


def read_object(text: str) -> dict[str, object]:
    """The object of a JSON text (GG0906)."""
    try:
        read: object = parse_json(text)
    except ValueError as error:
        raise _unreadable(f"is not valid JSON: {error}") from error
    if not isinstance(read, dict):
        raise _unreadable(f"is {type(read).__name__}, not a JSON object")
    return cast("dict[str, object]", read)


def _unreadable(what: str) -> GraphgenError:
    return GraphgenError(
        "GG0906",
        f"the configuration {what}",
        help="compile and InferenceConfig.save write neuron_config.json",
    )


def _with_classes(kind: type[StrictConfig], values: Mapping[str, object]) -> dict[str, object]:
    """The values with classes in place of their names, where they can be found."""
    rows = attributes_of(kind.owner)
    made: dict[str, object] = {}
    for name, value in values.items():
        row = rows.get(name.replace("-", "_"))
        if row is not None and row.nested and isinstance(value, Mapping):
            inside = cast("Mapping[str, object]", value)
            made[name] = _with_classes(config_class(row.nested), inside)
        elif row is not None and isinstance(value, Mapping):
            made[name] = _class_of(cast("Mapping[str, object]", value))
        else:
            made[name] = value
    return made


def _class_of(value: Mapping[str, object]) -> object:
    """The class that an object names; the object itself if it names none that is known.

    Only modules of this package are imported: a file must not choose code to run.
    """
    try:
        named = cast("Mapping[str, str]", CLASS.read(value))
    except (TypeError, ValueError):
        return value
    module, name = named["__module__"], named["__name__"]
    if module.startswith((_AWS, *_EARLIER)):
        module = _NAMES
    if module.startswith(_OURS):
        try:
            return getattr(import_module(module), name, value)
        except ImportError:
            return value
    return getattr(sys.modules.get(module), name, value)


def _leave_derived(config: StrictConfig) -> None:
    """Forget given values that equal the ones that follow from other attributes.

    Also those about the model that equal their default: a file has all attributes, and only a value
    that somebody chose says anything.

    A value that the environment replaces, such as logical_nc_config, follows from the machine that
    wrote the file, and counts: another machine may have another default.
    """
    for row in attributes_of(config.owner).values():
        follows = isinstance(row.default, Derived) or isinstance(row.cpu, DescribesModel)
        if follows and not row.replaces and not row.environment:
            config.leave_derived(row.name)
    for nested in config.given.values():
        if isinstance(nested, StrictConfig):
            _leave_derived(nested)
