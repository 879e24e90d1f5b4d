"""The ``quantization_config`` of compressed-tensors and of ``fp8``: read, and its inverse.

https://github.com/vllm-project/compressed-tensors (0.10 and later) and transformers'
``FineGrainedFP8Config``. One table says which numbers each format of compressed-tensors holds;
a combination that it does not list is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir.dtype import DType, f4e2m1fn, f8e4m3fn, s4, s8
from graphgen.json_value import Json
from graphgen.passes.quantization.scheme_table import SCHEMES
from graphgen.passes.quantization.stored_scheme import StoredForm, StoredScheme

Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """The quantization of one checkpoint.

    Attributes:
        scheme: names and meaning of its tensors.
        form: its numbers.
        activations: how the scheme computes with activations; empty for as they are.
    """

    scheme: StoredScheme
    form: StoredForm
    activations: str = ""


def refused(what: str, help: str = "") -> GraphgenError:
    """GG0502: a quantized checkpoint that is not read."""
    help = help or "dequantize the checkpoint, or take one of another scheme"
    return GraphgenError("GG0502", f"quantization_config: {what} is not read", help=help)


def object_of(value: object, name: str) -> Settings:
    """``value`` if it is a JSON object (GG0502)."""
    if not isinstance(value, dict):
        raise refused(f"{name} {value!r}, which is not a JSON object,")
    return cast("Settings", value)


def integer_of(settings: Settings, key: str, default: int) -> int:
    """An integer of the settings (GG0502 for another type)."""
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(f"{key} {value!r}")
    return value


def group_of(settings: Settings, default: int) -> tuple[int, int]:
    """Blocks of a row; -1 for the whole row."""
    size = integer_of(settings, "group_size", default)
    if size < 1 and size != -1:
        raise refused(f"group_size {size}")
    return 1, max(size, 0)


# (format, type, bits) of compressed-tensors -> the scheme and the type of numbers. Of several
# formats of the same, the first is written.
_FORMATS: Mapping[tuple[str, str, int], tuple[str, DType]] = {
    ("int-quantized", "int", 8): ("compressed-tensors", s8),
    ("float-quantized", "float", 8): ("compressed-tensors", f8e4m3fn),
    ("naive-quantized", "int", 8): ("compressed-tensors", s8),
    ("naive-quantized", "float", 8): ("compressed-tensors", f8e4m3fn),
    ("pack-quantized", "int", 4): ("pack-quantized", s4),
    ("pack-quantized", "int", 8): ("pack-quantized", s8),
    ("mxfp4-pack-quantized", "float", 4): ("mxfp4", f4e2m1fn),
}
_FIXED = "a fixed scale for the inputs of each module"


def read_compressed(settings: Settings) -> StoredQuantization:
    """Quantization stated by compressed-tensors (GG0502 for unsupported settings)."""
    groups = object_of(settings.get("config_groups", {}), "config_groups")
    if len(groups) != 1:
        raise refused(f"compressed-tensors with {len(groups)} config_groups", "read: one group")
    (name, found), *_ = groups.items()
    group = object_of(found, name)
    weights = object_of(group.get("weights"), f"{name}.weights")
    form = str(group.get("format") or settings.get("format"))
    if form not in {known for known, _, _ in _FORMATS}:
        raise refused(f"format '{form}' of compressed-tensors")
    given = group.get("input_activations")
    activations = object_of({} if given is None else given, f"{name}.input_activations")
    static = bool(activations) and not activations.get("dynamic", False)
    if static:
        _check_static(activations, f"{name}.input_activations")
    _check_others(settings)
    if weights.get("actorder") in ("group", "dynamic"):
        raise refused(f"actorder '{weights['actorder']}' of compressed-tensors")
    kind, bits = str(weights.get("type", "int")), integer_of(weights, "num_bits", 8)
    listed = _FORMATS.get((form, kind, bits))
    if listed is None:
        raise refused(f"compressed-tensors of {kind} {bits} bits in {form}")
    scheme, element = listed
    points = not weights.get("symmetric", True)
    stored = StoredForm(element, _block(weights), points, static=static)
    note = f"{kind}{activations.get('num_bits', 8)}" if activations else ""
    note += f", {_FIXED}" if static else ""
    return StoredQuantization(SCHEMES[scheme], stored, note)


def _check_others(settings: Settings) -> None:
    """Refuse sparse weights, and transforms of more than weights: numbers would differ (GG0502).

    A transform of a weight's inputs or outputs is in its numbers already.
    """
    sparsity = object_of(settings.get("sparsity_config") or {}, "sparsity_config")
    if sparsity.get("format", "dense") != "dense":
        raise refused(f"sparsity_config of format '{sparsity['format']}'")
    transforms = object_of(settings.get("transform_config") or {}, "transform_config")
    groups = object_of(transforms.get("config_groups") or {}, "transform_config.config_groups")
    for name, group in groups.items():
        uses = object_of(group, name).get("apply")
        for use in cast("list[object]", uses if isinstance(uses, list) else [{}]):
            place = object_of(use, f"{name}.apply").get("location")
            if place not in ("weight_input", "weight_output"):
                raise refused(f"transform_config with {name} of location '{place}'")


def _check_static(activations: Settings, where: str) -> None:
    """Refuse other fixed scales than one a tensor, symmetric, of 8 bits (GG0502)."""
    given = [
        activations.get(*each)
        for each in (("strategy", "tensor"), ("symmetric", True), ("num_bits", 8))
    ]
    if given != ["tensor", True, 8]:
        strategy, symmetric, bits = given
        what = f"static scales of strategy '{strategy}', symmetric {symmetric}, of {bits} bits"
        raise refused(f"{where} with {what}", "one a tensor, symmetric, of 8 bits is read")


def compressed_config(found: StoredQuantization, kept: Sequence[str]) -> dict[str, Json]:
    """The inverse of :func:`read_compressed`.

    Args:
        found: of a scheme that :data:`_FORMATS` lists, with weights alone.
        kept: modules of linear layers that are not quantized.
    """
    form, kind, bits = next(
        key
        for key, (scheme, element) in _FORMATS.items()
        if scheme == found.scheme.name and element is found.form.element
    )
    weights: dict[str, Json] = {
        "num_bits": bits,
        "type": kind,
        "symmetric": not found.form.zero_points,
        **_strategy(found.form.block),
        "dynamic": False,
    }
    if found.scheme.name == "mxfp4":
        weights["scale_dtype"] = "torch.uint8"
    group: dict[str, Json] = {"targets": ["Linear"], "weights": weights, "format": form}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(kept),
    }


def _block(weights: Settings) -> tuple[int, int]:
    strategy = weights.get("strategy")
    match strategy:
        case "tensor":
            return 0, 0
        case "channel":
            return 1, 0
        case "group":
            return group_of(weights, 128)
        case "block":
            return _pair(weights.get("block_structure"), "block_structure")
        case _:
            raise refused(f"strategy {strategy!r} of compressed-tensors")


def _strategy(block: tuple[int, int]) -> dict[str, Json]:
    """The inverse of :func:`_block`."""
    rows, columns = block
    match block:
        case (0, 0):
            return {"strategy": "tensor"}
        case (1, 0):
            return {"strategy": "channel"}
        case (1, _):
            return {"strategy": "group", "group_size": columns}
        case _:
            return {"strategy": "block", "block_structure": [rows, columns]}


def read_fp8(settings: Settings) -> StoredQuantization:
    """Quantization stated by transformers' ``fp8`` (GG0502 for unsupported settings)."""
    kind = settings.get("activation_scheme", "dynamic")
    if kind == "static" and settings.get("weight_block_size") is None:
        # As vLLM reads them: one scale a weight, and one for its inputs.
        form = StoredForm(f8e4m3fn, (0, 0), static=True)
        return StoredQuantization(SCHEMES["compressed-tensors"], form, f"f8e4m3, {_FIXED}")
    if kind != "dynamic":
        raise refused(f"activation_scheme '{kind}' of blocks", "take a dynamic checkpoint")
    block = _pair(settings.get("weight_block_size", [128, 128]), "weight_block_size")
    form = StoredForm(f8e4m3fn, block)
    return StoredQuantization(SCHEMES["fp8"], form, "f8e4m3, a scale for 128 elements")


def fp8_config(found: StoredQuantization, kept: Sequence[str]) -> dict[str, Json]:
    """The inverse of :func:`read_fp8`; arguments as of :func:`compressed_config`."""
    return {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [*found.form.block],
        "modules_to_not_convert": list(kept),
    }


def _pair(value: object, key: str) -> tuple[int, int]:
    """Two sizes above 0 (GG0502)."""
    sizes = cast("list[object]", value) if isinstance(value, list) else []
    if len(sizes) != 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise refused(f"{key} {value!r}")
    rows, columns = cast("list[int]", sizes)
    return rows, columns
