"""Command lines of ``neuronx-cc`` per sub-model, and the merge of more arguments into them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.application.base_model import CONTEXT_ENCODING, TOKEN_GENERATION
from graphgen.runtime.aws.attributes.attribute import CompilerArgument
from graphgen.runtime.aws.attributes.attribute_table import attributes_of
from graphgen.runtime.aws.config.neuron_config import NeuronConfig

# Options whose value is a list of options: these are merged one by one.
_NESTED = (
    "--tensorizer-options",
    "--internal-hlo2tensorizer-options",
    "--internal-backend-options",
)
# Sequences from here on have no strided DMA in context encoding with logical cores of two.
_VERY_LONG = 128 * 1024
_FUSED_SPECULATION = "fused_speculation_model"

Option = str | dict[str, str]


def default_compiler_args(config: NeuronConfig, tag: str, target: str) -> str:
    """The arguments of one sub-model, as NxD Inference gives them.

    Attributes whose effect is a compiler argument are merged in by the table.

    Args:
        config: the attributes.
        tag: of the sub-model.
        target: such as ``trn2``.
    """
    context = tag == CONTEXT_ENCODING
    cores = config.logical_cores(target)
    long = bool(config.value("enable_long_context_mode"))
    strided = not (context and cores == 2 and _count(config, "seq_len") >= _VERY_LONG)
    parts = [
        "--auto-cast=none --model-type=transformer",
        "--internal-disable-fma-on-ios --disable-mixed-precision-accumulation" if long else "",
        "--tensorizer-options='--enable-ccop-compute-overlap"
        f"{' --vectorize-strided-dma' if strided else ''}'",
        "-O1" if context else "-O2",
        f"--target={target}",
        "--internal-hlo2tensorizer-options='"
        + ("--modular-flow-mac-threshold=10 " if context else "")
        + ("--experimental-unsafe-fp8e4m3fn-as-fp8e4m3 " if _has_fp8(config) else "")
        + "--verify-hlo=true'",
    ]
    text = merge_compiler_args(" ".join(part for part in parts if part), f"--lnc={cores}")
    for row in attributes_of(config.owner).values():
        effect = row.effect(target)
        if isinstance(effect, CompilerArgument) and "--lnc" not in effect.argument:
            text = merge_compiler_args(text, _argument(effect.argument, config.value(row.name)))
    if tag in (TOKEN_GENERATION, _FUSED_SPECULATION):
        # These programs have too little work between collectives to tile it.
        text = merge_compiler_args(text, "--tensorizer-options=--cc-pipeline-tiling-factor=1")
    return text


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
    if not more:
        return default
    options = _read(default)
    for name, value in _read(more).items():
        before = options.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            options[name] = before | value
        else:
            options[name] = value
    return " ".join(_written(options))


def _count(config: NeuronConfig, name: str) -> int:
    return cast(int, config.value(name))


def _read(text: str) -> dict[str, Option]:
    """Options by name; ``-O1`` is the option ``-O``."""
    return {
        name: dict(_options(value)) if name in _NESTED else value for name, value in _options(text)
    }


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Names and values: ``--name=value``, ``--name value``, ``--name``, ``-O1``."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _unreadable(text, str(error)) from error
    name, values = "", list[str]()
    for word in words:
        if not word.startswith("-"):
            if not name:
                raise _unreadable(text, f"'{word}' follows no option")
            values.append(word)
            continue
        if name:
            yield name, " ".join(values)
        name, _, value = word.partition("=")
        if name.startswith("-O") and len(name) > 2:
            name, value = "-O", name[2:]
        values = [value] if value else []
    if name:
        yield name, " ".join(values)


def _unreadable(text: str, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"compiler arguments {text!r} cannot be read: {why}",
        help="write them as on the command line of neuronx-cc",
    )


def _written(options: Mapping[str, Option]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, dict):
            inner = " ".join(f"{key}={item}" if item else key for key, item in value.items())
            yield f"{name}='{inner}'"
        elif name == "-O":
            yield f"-O{value}"
        else:
            yield f"{name}={shlex.quote(value)}" if value else name
