"""Translate the rotary-embedding scaling of a GGUF file to Hugging Face's ``rope_scaling``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from gguf.constants import GGMLQuantizationType

from graphgen.errors import GraphgenError
from graphgen.nn.rope import RopeConfig, scaled_frequencies
from graphgen.runtime.checkpoint.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES

ROPE_FACTORS_TENSOR: Final = "rope_freqs.weight"
"""The tensor in which llama.cpp keeps one divisor for each rotary frequency."""

_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"
LONGROPE_TENSORS: Final = frozenset({_SHORT, _LONG})
"""The tensors in which llama.cpp keeps Phi-3's divisors."""

_TYPE: Final = "rope.scaling.type"
_FACTOR: Final = "rope.scaling.factor"
_OLD_FACTOR: Final = "rope.scale_linear"
_ORIGINAL: Final = "rope.scaling.original_context_length"
_BETAS: Final[Mapping[str, str]] = {
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
_ATTENTION_FACTOR: Final = "rope.scaling.attn_factor"
_LOG_MULTIPLIER: Final = "rope.scaling.yarn_log_multiplier"
# Settings that Hugging Face has no name for, and the value at which they change nothing.
_NEUTRAL: Final[Mapping[str, float]] = {
    _ATTENTION_FACTOR: 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    _LOG_MULTIPLIER: 0.0,
}
ROPE_KEYS: Final = frozenset(
    {_TYPE, _FACTOR, _OLD_FACTOR, _ORIGINAL, "rope.scaling.finetuned", *_BETAS, *_NEUTRAL}
)
"""The metadata keys read here, without the architecture in front."""

# Low and high frequency factors of every Llama 3.1, 3.2 and 3.3 model, and of Llama 4 Scout; only
# the factor differs between them.
_LLAMA3: Final = ((1.0, 4.0), (1.0, 1.0))
_LLAMA3_POSITIONS: Final = 8192


def read_rope_scaling(
    header: GgufHeader, head_dim: int, theta: float, *, read: frozenset[str] = frozenset()
) -> dict[str, object] | None:
    """The ``rope_scaling`` entry of the configuration; None for unscaled rotary embeddings.

    Args:
        header: of the model.
        head_dim: the size of the rotated part of a head.
        theta: the base of the rotary frequencies.
        read: keys that the caller translates.

    Raises:
        GraphgenError: GG0502 for a scaling that has no equivalent in a Hugging Face configuration.
    """
    for name, neutral in _NEUTRAL.items():
        if name not in read and header.metadata.get(header.own(name)) not in (None, neutral):
            raise header.unsupported(header.own(name), f"only {neutral} is supported")
    scaling = _scaling_from_keys(header)
    if ROPE_FACTORS_TENSOR not in header.tensors:
        return scaling
    if scaling is not None:
        raise _bad_factors(header, f"scaling of type '{scaling['rope_type']}' is stated beside it")
    return _scaling_from_factors(header, head_dim, theta)


def read_latent_scaling(
    header: GgufHeader, head_dim: int, theta: float
) -> dict[str, object] | None:
    """The same of DeepSeek's models, whose scores YaRN scales too.

    llama.cpp's converter writes a tenth of ``mscale_all_dim``, and its own model takes ``mscale``
    to be the same number.
    """
    scaling = read_rope_scaling(header, head_dim, theta, read=frozenset({_LOG_MULTIPLIER}))
    key = header.own(_LOG_MULTIPLIER)
    if scaling is None or header.metadata.get(key) in (None, 0.0):
        return scaling
    scale = header.positive_float(key) * 10
    return {**scaling, "mscale": scale, "mscale_all_dim": scale}


def read_longrope(header: GgufHeader, head_dim: int, theta: float) -> dict[str, object] | None:
    """The same of Phi-3, which divides frequencies by numbers of their own (GG0502)."""
    key = header.own(_TYPE)
    if _SHORT not in header.tensors and header.metadata.get(key) != "longrope":
        return read_rope_scaling(header, head_dim, theta)
    factor = header.own(_ATTENTION_FACTOR)
    return {
        "rope_type": "longrope",
        "short_factor": _divisors(header, _SHORT, head_dim),
        "long_factor": _divisors(header, _LONG, head_dim),
        "attention_factor": header.positive_float(factor, 1.0),
        "original_max_position_embeddings": header.positive_int(header.own(_ORIGINAL)),
    }


def _divisors(header: GgufHeader, name: str, head_dim: int) -> list[float]:
    """The numbers f32 [head_dim / 2] of a tensor (GG0502), each the shortest that rounds to it."""
    tensor = header.tensors.get(name)
    if tensor is None:
        raise header.file.error(f"tensor '{name}' is missing, which scales rotary embeddings")
    if tensor.kind is not GGMLQuantizationType.F32 or tensor.shape != (head_dim // 2,):
        what = f"it is {tensor.kind.name} of shape {tensor.shape}"
        raise _bad_factors(header, what, name)
    stored = tensor.file.array(
        tensor.offset, head_dim // 2, NUMPY_DTYPES["f32"], f"tensor '{name}'"
    )
    if not (stored.size and np.isfinite(stored).all() and (stored > 0).all()):
        raise _bad_factors(header, "its values are not finite numbers above 0", name)
    return [float(str(value)) for value in stored]


def _scaling_from_keys(header: GgufHeader) -> dict[str, object] | None:
    key, known = header.own(_TYPE), header.metadata
    # llama.cpp reads a factor without a type as linear scaling.
    kind = header.string(key) if key in known else "linear"
    if kind == "none":
        return None
    if kind == "linear":
        factors = [k for k in map(header.own, (_FACTOR, _OLD_FACTOR)) if k in known]
        # llama.cpp reads 0 as "not scaled".
        if not factors or known[factors[0]] in (0, 1):
            return None
        return {"rope_type": "linear", "factor": header.positive_float(factors[0])}
    if kind != "yarn":
        raise header.unsupported(key, "supported: none, linear, yarn")
    betas = {hf: header.own(name) for name, hf in _BETAS.items() if header.own(name) in known}
    return {
        "rope_type": "yarn",
        "factor": header.positive_float(header.own(_FACTOR)),
        "original_max_position_embeddings": header.positive_int(header.own(_ORIGINAL)),
        **{hf: header.positive_float(full) for hf, full in betas.items()},
    }


def _scaling_from_factors(
    header: GgufHeader, head_dim: int, theta: float
) -> dict[str, object] | None:
    """Recognise Llama 3's scaling: recompute its divisors and compare all of them."""
    stored = np.array(_divisors(header, ROPE_FACTORS_TENSOR, head_dim))
    if (stored == 1).all():
        return None
    factor = float(stored.max())
    plain = np.array(scaled_frequencies(RopeConfig(theta), head_dim))
    for low, high in _LLAMA3:
        rope = RopeConfig(theta, "llama3", factor, low, high, _LLAMA3_POSITIONS)
        scaled = np.array(scaled_frequencies(rope, head_dim))
        if np.allclose(stored, plain / scaled, rtol=1e-5, atol=0):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": _LLAMA3_POSITIONS,
            }
    raise _bad_factors(header, "its values are not those of a Llama 3 model")


def _bad_factors(header: GgufHeader, why: str, name: str = ROPE_FACTORS_TENSOR) -> GraphgenError:
    return GraphgenError(
        "GG0502",
        f"the GGUF tensor '{name}' scales rotary embeddings in a way that "
        f"cannot be translated: {why}",
        where=str(header.file.path),
        help="use the model's safetensors checkpoint instead",
    )
