"""Read how a GGUF file scales rotary embeddings, as the ``rope_scaling`` of Hugging Face."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf.gguf_metadata import Metadata
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES

ROPE_FACTORS_TENSOR: Final = "rope_freqs.weight"
"""The tensor in which llama.cpp keeps one divisor for each rotary frequency."""

_TYPE: Final = "rope.scaling.type"
_FACTOR: Final = "rope.scaling.factor"
_OLD_FACTOR: Final = "rope.scale_linear"
_ORIGINAL: Final = "rope.scaling.original_context_length"
_BETAS: Final[Mapping[str, str]] = {
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
# Settings that Hugging Face has no name for, and the value at which they change nothing.
_NEUTRAL: Final[Mapping[str, float]] = {
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
}
ROPE_KEYS: Final = frozenset(
    {_TYPE, _FACTOR, _OLD_FACTOR, _ORIGINAL, "rope.scaling.finetuned", *_BETAS, *_NEUTRAL}
)
"""The metadata keys read here, without the architecture in front."""

# Every Llama 3.1, 3.2 and 3.3 model has these; only the factor differs between them.
_LLAMA3: Final[Mapping[str, float | int]] = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read_rope_scaling(
    metadata: Metadata, header: GgufHeader, head_dim: int, theta: float
) -> dict[str, object] | None:
    """The ``rope_scaling`` entry of the configuration; None if rotary embeddings are not scaled.

    Args:
        metadata: the metadata of the file.
        header: its header, for the tensor of frequency factors.
        head_dim: the size of one attention head.
        theta: the base of the rotary frequencies.

    Raises:
        GraphgenError: GG0502 for a scaling that has no equivalent in a Hugging Face configuration.
    """
    for key, neutral in _NEUTRAL.items():
        if metadata.get(metadata.own(key)) not in (None, neutral):
            raise metadata.unsupported(metadata.own(key), f"only {neutral} is supported")
    scaling = _scaling_from_keys(metadata)
    if ROPE_FACTORS_TENSOR not in header.tensors:
        return scaling
    if scaling is not None:
        raise _bad_factors(header, f"scaling of type '{scaling['rope_type']}' is stated beside it")
    return _scaling_from_factors(header, head_dim, theta)


def _scaling_from_keys(metadata: Metadata) -> dict[str, object] | None:
    # llama.cpp takes a factor without a type for linear scaling.
    key = metadata.own(_TYPE)
    kind = metadata.string(key) if key in metadata else "linear"
    if kind == "none":
        return None
    factor_key = next(
        (metadata.own(name) for name in (_FACTOR, _OLD_FACTOR) if metadata.own(name) in metadata),
        None,
    )
    if kind == "linear":
        # llama.cpp takes 0 for "not scaled".
        if factor_key is None or metadata.get(factor_key) in (0, 1):
            return None
        return {"rope_type": "linear", "factor": metadata.positive_float(factor_key)}
    if kind != "yarn":
        raise metadata.unsupported(key, "supported: none, linear, yarn")
    scaling: dict[str, object] = {
        "rope_type": "yarn",
        "factor": metadata.positive_float(metadata.own(_FACTOR)),
        "original_max_position_embeddings": metadata.positive_int(metadata.own(_ORIGINAL)),
    }
    for name, hf_name in _BETAS.items():
        if metadata.own(name) in metadata:
            scaling[hf_name] = metadata.positive_float(metadata.own(name))
    return scaling


def _scaling_from_factors(
    header: GgufHeader, head_dim: int, theta: float
) -> dict[str, object] | None:
    """Recognise Llama 3's scaling by computing its factors anew and comparing all of them."""
    tensor = header.tensors[ROPE_FACTORS_TENSOR]
    if tensor.kind is not GGMLQuantizationType.F32 or tensor.shape != (head_dim // 2,):
        raise _bad_factors(header, f"it is {tensor.kind.name} of shape {tensor.shape}")
    stored = tensor.file.array(
        tensor.offset, head_dim // 2, NUMPY_DTYPES["f32"], f"tensor '{ROPE_FACTORS_TENSOR}'"
    ).astype(np.float64)
    if not (stored.size and np.isfinite(stored).all() and (stored > 0).all()):
        raise _bad_factors(header, "its values are not finite numbers above 0")
    if (stored == 1).all():
        return None
    factor = float(stored.max())
    if not np.allclose(stored, llama3_factors(head_dim, theta, factor), rtol=1e-5, atol=0):
        raise _bad_factors(header, "its values are not those of a Llama 3 model")
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3}


def llama3_factors(head_dim: int, theta: float, factor: float) -> npt.NDArray[np.float64]:
    """By how much Llama 3 divides each rotary frequency, (head_dim / 2,) f64.

    Frequencies with a wavelength below 8192/4 positions are kept, those above 8192/1 are divided by
    ``factor``, and between the two the division is blended linearly in 8192/wavelength. Source:
    ``apply_scaling`` in the reference code of Llama 3.1.
    """
    original = _LLAMA3["original_max_position_embeddings"]
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = original * frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / (kept + (1.0 - kept) / factor)


def _bad_factors(header: GgufHeader, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0502",
        f"the GGUF tensor '{ROPE_FACTORS_TENSOR}' scales rotary embeddings in a way that "
        f"cannot be translated: {why}",
        where=str(header.file.path),
        help="use the model's safetensors checkpoint instead",
    )
