"""Decode the configurations of custom calls, including NKI kernels.

Sources: the kernels' own front end writes base64 of JSON (NKI guide, "Framework custom op"); the
other targets of Neuron write a number, or ``key=value`` pairs.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Op, TensorType
from graphgen.json_value import parse_json
from graphgen.numbers import is_finite, signed_number
from graphgen.ops.control import kernel_of
from graphgen.read_file import is_file

NKI = "AwsNeuronCustomNativeKernel"
# The meaning of the only number in a target's configuration.
_NUMBER = {
    "AwsNeuronRmsNorm": "dim",
    "AwsNeuronSoftmax": "dim",
    "AwsNeuronSoftmaxBackward": "dim",
    "AwsNeuronArgMax": "dim",
    "AwsNeuronArgMin": "dim",
    "AwsNeuronTopK": "k",
}
Facts = Mapping[str, object]
_NOTHING: Facts = {}


@dataclass(slots=True)
class CustomCall:
    """Custom calls of one target with one configuration.

    Attributes:
        target: the name the compiler knows it by.
        count: how many there are.
        facts: the configuration decoded; for a kernel its function, artifact, inputs, outputs,
            grid, multiplications. ``config`` holds what could not be decoded.
        first: the first of them.
    """

    target: str
    count: int
    facts: dict[str, object] = field(default_factory=dict[str, object])
    first: Op | None = None

    @property
    def text(self) -> str:
        """The facts on one line."""
        parts = (f"{key} {_short(value)}" for key, value in self.facts.items())
        return ", ".join(parts)


def calls_of(ops: Iterable[Op]) -> list[CustomCall]:
    """The custom calls and kernels among ``ops``, equal ones together, by first appearance."""
    found: dict[tuple[str, str], CustomCall] = {}
    for op in ops:
        target = op.attrs.text("target") if op.name == "custom_call" else kernel_of(op)
        if not target:
            continue
        key = target, op.attrs.text("config")
        if key not in found:
            found[key] = CustomCall(target, 0, decode(*key), op)
        found[key].count += 1
    return list(found.values())


def is_number(config: str) -> bool:
    """True for a configuration that is one whole number of at most 64 bits."""
    try:
        signed_number(config)
    except ValueError:
        return False
    return True


def decode(target: str, config: str) -> dict[str, object]:
    """The fields of a configuration by name; ``config`` alone if its form is unknown."""
    if not config:
        return {}
    if target == NKI:
        return _kernel(config)
    if is_number(config):
        return {_NUMBER.get(target, "config"): signed_number(config)}
    given = _json(config)
    if given is not None:
        return dict(given)
    pairs = [part.partition("=") for part in config.replace(";", ",").split(",") if part.strip()]
    if pairs and all(equals for _, equals, _ in pairs):
        return {key.strip(): value.strip() for key, _, value in pairs}
    return {"config": config}


def _kernel(config: str) -> dict[str, object]:
    """A kernel's configuration, of any of the three ages there have been."""
    try:
        text = base64.b64decode(config, validate=True).decode()
    except (binascii.Error, ValueError):
        text = config
    given = _json(text)
    if given is None:
        return {"config": config}
    facts: dict[str, object] = {}
    name = given.get("func_name") or given.get("func_literal")
    if isinstance(name, str):
        facts["kernel"] = name
    binary = given.get("klir_binary")
    inner: Facts = cast(Facts, binary) if isinstance(binary, dict) else _NOTHING
    path = inner.get("binary")
    if isinstance(path, str):
        facts["artifact"] = path
        facts["there"] = is_file(Path(path))
    for key, wanted in (("input_names", "inputs"), ("output_names", "outputs")):
        names = inner.get(key)
        if isinstance(names, list):
            facts[wanted] = cast(list[object], names)
    shown = ("func_name", "func_literal", "klir_binary")
    facts.update({key: value for key, value in given.items() if key not in shown})
    rest = ("binary", "input_names", "output_names")
    facts.update({key: value for key, value in inner.items() if key not in rest})
    return facts


def _json(text: str) -> Facts | None:
    try:
        found: object = parse_json(text)
    except ValueError:
        return None
    return cast(Facts, found) if isinstance(found, dict) else None


def _short(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, cast(list[object], value))) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Functions by which transformers-neuronx calls a kernel: the kernel, and what they pass to it.
_WRAPPERS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "wrapper_flash_attention_nki": ("flash_fwd", {"softmax_scale": 1.0}),
    "wrapper_flash_attention_bir": ("attention_isa_kernel", {}),
}


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A call of a native kernel.

    Attributes:
        kernel: its name.
        arguments: what it is given beside its tensors.
        types: types of the results.
    """

    kernel: str
    arguments: Mapping[str, object]
    types: tuple[TensorType, ...]

    def number(self, key: str, default: float) -> float:
        """An argument that is a number; ``default`` where it is not given, or ``None``."""
        value = self.arguments.get(key)
        if value is None:
            return default
        # Switches are numbers, as in Python.
        if not isinstance(value, bool) and not is_finite(value):
            what = f"native kernel '{self.kernel}': {key} is {value!r}, not a number"
            raise GraphgenError("GG0403", what)
        return float(value)


def native_call(attrs: Attrs) -> NativeCall:
    """The call that a ``custom_call``'s configuration describes (GG0403 if it names no kernel)."""
    facts = decode(NKI, attrs.text("config"))
    name = facts.get("kernel", facts.get("config", ""))
    if not isinstance(name, str) or not name:
        raise GraphgenError("GG0403", "the configuration of a native kernel does not name it")
    name = name.rpartition(".")[2].lstrip("_")
    given = facts.get("arguments")
    arguments = cast(Mapping[str, object], given if isinstance(given, Mapping) else {})
    name, passed = _WRAPPERS.get(name, (name, {}))
    return NativeCall(name, {**passed, **arguments}, attrs.types("results"))
