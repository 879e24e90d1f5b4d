"""The scheme of a checkpoint from the ``quantization_config`` of its ``config.json``.

https://huggingface.co/docs/transformers/quantization; what would change the numbers and is not
known is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphgen.ir.dtype import dtype, f4e2m1fn, f8e4m3fn, f16, f32, s4, s8, u4
from graphgen.passes.quantization.compressed_formats import (
    Settings,
    StoredQuantization,
    group_of,
    integer_of,
    object_of,
    read_compressed,
    read_fp8,
    refused,
)
from graphgen.passes.quantization.packed import BLOCK
from graphgen.passes.quantization.scheme_table import SCHEMES
from graphgen.passes.quantization.stored_scheme import StoredForm


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
        kinds = object_of(settings.get("kinds"), "kinds")
        return tuple([_gguf(kind) for kind in kinds])
    found = stored_quantization(config)
    return () if found is None else (found,)


def _settings(config: Mapping[str, object]) -> Settings | None:
    found = config.get("quantization_config", config.get("compression_config"))
    return None if found is None else object_of(found, "quantization_config")


def _gguf(kind: str) -> StoredQuantization:
    if kind == "mxfp4-experts":
        return _mxfp4({})
    element = {"Q8_0": s8, "Q4_0": s4}.get(kind, u4)
    # A scale of Q4_K is a product: of an f16 and of 6 bits.
    scale = f32 if kind == "Q4_K" else f16
    form = StoredForm(element, (1, BLOCK), element is u4, scale=scale)
    return StoredQuantization(SCHEMES[kind], form)


def _older_method(settings: Settings) -> str:
    """transformers before 4.34 wrote no ``quant_method`` for bitsandbytes."""
    eight = settings.get("load_in_8bit") or settings.get("load_in_4bit")
    return "bitsandbytes" if eight else "none"


def _bits(settings: Settings, key: str, known: tuple[int, ...]) -> int:
    bits = integer_of(settings, key, 4)
    if bits not in known:
        raise refused(f"{key} {bits}", f"read: {' and '.join(map(str, known))} bits")
    return bits


def _gptq(settings: Settings) -> StoredQuantization:
    form = settings.get("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise refused(f"checkpoint_format {form!r}")
    bits = _bits(settings, "bits", (4, 8))
    ordered = bool(settings.get("desc_act", False))
    stored = StoredForm(dtype(f"u{bits}"), group_of(settings, 128), True, ordered)
    return StoredQuantization(SCHEMES[str(form)], stored)


def _awq(settings: Settings) -> StoredQuantization:
    version = str(settings.get("version", "gemm")).lower()
    if version != "gemm":
        raise refused(f"version '{version}' of awq", "read: gemm")
    if not settings.get("zero_point", True):
        raise refused("awq without zero points")
    bits = _bits(settings, "bits" if "bits" in settings else "w_bit", (4,))
    size = "group_size" if "group_size" in settings else "q_group_size"
    group = group_of({"group_size": settings.get(size, 128)}, 128)
    return StoredQuantization(SCHEMES["awq"], StoredForm(dtype(f"u{bits}"), group, True))


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


_METHODS: Mapping[str, Callable[[Settings], StoredQuantization]] = {
    "aws": _aws,
    "compressed-tensors": read_compressed,
    "fbgemm_fp8": _fbgemm,
    "fp8": read_fp8,
    "mxfp4": _mxfp4,
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
}
