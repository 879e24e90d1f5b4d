"""The scheme of a checkpoint from the ``quantization_config`` of its ``config.json``.

https://huggingface.co/docs/transformers/quantization; what would change the numbers and is not
known is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir.dtype import DType, dtype, f4e2m1fn, f8e4m3fn, s4, s8, u4
from graphgen.passes.quantize.stored.gguf_blocks import BLOCK
from graphgen.passes.quantize.stored.scheme import StoredForm, StoredScheme
from graphgen.passes.quantize.stored.scheme_table import SCHEMES

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


def stored_quantization(config: Mapping[str, object]) -> StoredQuantization | None:
    """The quantization that a ``config.json`` states; ``None`` without one.

    Raises:
        GraphgenError: GG0502 for a method, a format or an option that is not read.
    """
    settings = _settings(config)
    if settings is None:
        return None
    method = str(settings.get("quant_method", _older_method(settings)))
    reader = _METHODS.get(method)
    if reader is None:
        raise refused(f"quant_method '{method}'", f"read: {', '.join(_METHODS)}")
    return reader(settings)


def stored_quantizations(config: Mapping[str, object]) -> tuple[StoredQuantization, ...]:
    """The same of checkpoints whose weights are in several forms, as GGUF's are.

    Raises:
        GraphgenError: GG0502 for a method, a format or an option that is not read.
    """
    settings = _settings(config)
    if settings is not None and settings.get("quant_method") == "gguf":
        kinds = _object(settings.get("kinds"), "kinds")
        return tuple([_gguf(kind) for kind in kinds])
    found = stored_quantization(config)
    return () if found is None else (found,)


def _settings(config: Mapping[str, object]) -> Settings | None:
    found = config.get("quantization_config", config.get("compression_config"))
    return None if found is None else _object(found, "quantization_config")


def _gguf(kind: str) -> StoredQuantization:
    element = {"Q8_0": s8, "Q4_0": s4}.get(kind, u4)
    return StoredQuantization(SCHEMES[kind], StoredForm(element, (1, BLOCK), element is u4))


def refused(what: str, help: str = "") -> GraphgenError:
    """GG0502: a quantized checkpoint that is not read."""
    help = help or "dequantize the checkpoint, or take one of another scheme"
    return GraphgenError("GG0502", f"quantization_config: {what} is not read", help=help)


def _object(value: object, name: str) -> Settings:
    if not isinstance(value, dict):
        raise refused(f"{name} {value!r}, which is no JSON object,")
    return cast("Settings", value)


def _older_method(settings: Settings) -> str:
    """transformers before 4.34 wrote no ``quant_method`` for bitsandbytes."""
    eight = settings.get("load_in_8bit") or settings.get("load_in_4bit")
    return "bitsandbytes" if eight else "none"


def _integer(settings: Settings, key: str, default: int) -> int:
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(f"{key} {value!r}")
    return value


def _group(settings: Settings, default: int) -> tuple[int, int]:
    """Blocks of a row; -1 for the whole row."""
    size = _integer(settings, "group_size", default)
    if size < 1 and size != -1:
        raise refused(f"group_size {size}")
    return 1, max(size, 0)


def _bits(settings: Settings, key: str, known: tuple[int, ...]) -> int:
    bits = _integer(settings, key, 4)
    if bits not in known:
        raise refused(f"{key} {bits}", f"read: {' and '.join(map(str, known))} bits")
    return bits


def _gptq(settings: Settings) -> StoredQuantization:
    form = settings.get("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise refused(f"checkpoint_format {form!r}")
    bits = _bits(settings, "bits", (4, 8))
    ordered = bool(settings.get("desc_act", False))
    stored = StoredForm(dtype(f"u{bits}"), _group(settings, 128), True, ordered)
    return StoredQuantization(SCHEMES[str(form)], stored)


def _awq(settings: Settings) -> StoredQuantization:
    version = str(settings.get("version", "gemm")).lower()
    if version != "gemm":
        raise refused(f"version '{version}' of awq", "read: gemm")
    if not settings.get("zero_point", True):
        raise refused("awq without zero points")
    bits = _bits(settings, "bits" if "bits" in settings else "w_bit", (4,))
    size = "group_size" if "group_size" in settings else "q_group_size"
    group = _group({"group_size": settings.get(size, 128)}, 128)
    return StoredQuantization(SCHEMES["awq"], StoredForm(dtype(f"u{bits}"), group, True))


def _fp8(settings: Settings) -> StoredQuantization:
    if settings.get("activation_scheme", "dynamic") != "dynamic":
        raise refused(f"activation_scheme '{settings['activation_scheme']}'", _STATIC)
    size = settings.get("weight_block_size", [128, 128])
    fits = isinstance(size, list) and len(cast("list[object]", size)) == 2
    if not fits or not all(isinstance(x, int) and x > 0 for x in cast("list[object]", size)):
        raise refused(f"weight_block_size {size!r}")
    rows, columns = cast("list[int]", size)
    return StoredQuantization(
        SCHEMES["fp8"], StoredForm(f8e4m3fn, (rows, columns)), "f8e4m3, a scale for 128 elements"
    )


def _fbgemm(settings: Settings) -> StoredQuantization:
    form = StoredForm(f8e4m3fn, (1, 0))
    return StoredQuantization(SCHEMES["fbgemm_fp8"], form, "f8e4m3, a scale a row")


def _bitsandbytes(settings: Settings) -> StoredQuantization:
    if settings.get("load_in_4bit") or not settings.get("load_in_8bit"):
        raise refused("bitsandbytes of 4 bits (NF4, FP4)", "read: load_in_8bit")
    form = StoredForm(s8, (1, 0))
    return StoredQuantization(SCHEMES["bitsandbytes"], form, "int8, with outliers in 16 bits")


def _mxfp4(settings: Settings) -> StoredQuantization:
    """GPT-OSS's experts; the sizes of groups are fixed, and nothing else is stated."""
    return StoredQuantization(SCHEMES["mxfp4-experts"], StoredForm(f4e2m1fn, (1, 32)))


def _aws(settings: Settings) -> StoredQuantization:
    """The form of NxD Inference, which the runtime finds in tensors."""
    rows = 1 if settings.get("quantization_type") == "per_channel_symmetric" else 0
    form = StoredForm(dtype(str(settings.get("quantization_dtype", "s8"))), (rows, 0))
    return StoredQuantization(SCHEMES["aws"], form)


_STATIC = "scales of activations that are fixed change the numbers; take a dynamic checkpoint"


def _compressed(settings: Settings) -> StoredQuantization:
    groups = _object(settings.get("config_groups", {}), "config_groups")
    if len(groups) != 1:
        raise refused(f"compressed-tensors with {len(groups)} config_groups", "read: one group")
    (name, found), *_ = groups.items()
    group = _object(found, name)
    weights = _object(group.get("weights"), f"{name}.weights")
    form = str(group.get("format") or settings.get("format"))
    if form not in _COMPRESSED:
        raise refused(f"format '{form}' of compressed-tensors")
    given = group.get("input_activations")
    activations: Settings = {}
    if given is not None:
        activations = _object(given, f"{name}.input_activations")
    if activations and not activations.get("dynamic", False):
        raise refused(f"{name}.input_activations with static scales", _STATIC)
    kind, bits = str(weights.get("type", "int")), _integer(weights, "num_bits", 8)
    stored = StoredForm(
        _compressed_element(kind, bits, form),
        _compressed_block(weights),
        not weights.get("symmetric", True),
    )
    if weights.get("actorder") in ("group", "dynamic"):
        raise refused(f"actorder '{weights['actorder']}' of compressed-tensors")
    scheme = SCHEMES[_COMPRESSED[form]]
    note = f"{kind}{activations.get('num_bits', 8)}" if activations else ""
    return StoredQuantization(scheme, stored, note)


# The scheme of each format of compressed-tensors.
_COMPRESSED: Mapping[str, str] = {
    "pack-quantized": "pack-quantized",
    "mxfp4-pack-quantized": "mxfp4",
    "int-quantized": "compressed-tensors",
    "float-quantized": "compressed-tensors",
    "naive-quantized": "compressed-tensors",
}


def _compressed_element(kind: str, bits: int, form: str) -> DType:
    match _COMPRESSED[form], kind, bits:
        case "mxfp4", "float", 4:
            return f4e2m1fn
        case "compressed-tensors", "float", 8:
            return f8e4m3fn
        case "compressed-tensors", "int", 8:
            return s8
        case "pack-quantized", "int", 4 | 8:
            return dtype(f"s{bits}")
        case _:
            raise refused(f"compressed-tensors of {kind} {bits} bits in {form}")


def _compressed_block(weights: Settings) -> tuple[int, int]:
    strategy = weights.get("strategy")
    match strategy:
        case "tensor":
            return 0, 0
        case "channel":
            return 1, 0
        case "group":
            return _group(weights, 128)
        case "block":
            found = weights.get("block_structure")
            if isinstance(found, list) and len(cast("list[object]", found)) == 2:
                rows, columns = cast("list[int]", found)
                return int(rows), int(columns)
            raise refused(f"block_structure {found!r}")
        case _:
            raise refused(f"strategy {strategy!r} of compressed-tensors")


_METHODS: Mapping[str, Callable[[Settings], StoredQuantization]] = {
    "aws": _aws,
    "compressed-tensors": _compressed,
    "fbgemm_fp8": _fbgemm,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
}
