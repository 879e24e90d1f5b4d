"""Read a Llama model from one GGUF file under its Hugging Face names and in Hugging Face layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quant_shape_to_byte_shape

from graphgen.errors import GraphgenError
from runtime.checkpoint.gguf_config import read_config
from runtime.checkpoint.gguf_header import GgufTensor, read_header
from runtime.checkpoint.gguf_rope import ROPE_FACTORS_TENSOR
from runtime.checkpoint.mapped import unreadable
from runtime.checkpoint.source import NUMPY_DTYPES, Array, TensorInfo

_PLAIN: Final[Mapping[GGMLQuantizationType, str]] = {
    GGMLQuantizationType.F32: "f32",
    GGMLQuantizationType.F16: "f16",
    GGMLQuantizationType.BF16: "bf16",
    GGMLQuantizationType.F64: "f64",
    GGMLQuantizationType.I8: "s8",
    GGMLQuantizationType.I16: "s16",
    GGMLQuantizationType.I32: "s32",
    GGMLQuantizationType.I64: "s64",
}
_WHOLE_NAMES: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME: Final = re.compile(
    r"(?:blk\.(?P<layer>0|[1-9][0-9]*)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)"
)


class GgufCheckpoint:
    """The weights and the configuration of one GGUF file, memory-mapped.

    Quantised tensors are declared, and come, as f32. A GGUF name that has no Hugging Face
    equivalent is kept as it is, so that it shows up when the tensors are matched with the model.

    Args:
        path: the ``.gguf`` file.

    Raises:
        GraphgenError: GG0601 for a damaged file, GG0501, GG0502 or GG0503 for a model or a setting
            that cannot be translated.
    """

    def __init__(self, path: Path) -> None:
        self._header: Final = read_header(path)
        self.path: Final = path
        self.config: Final[Mapping[str, object]] = read_config(self._header)
        self._entries: Final[dict[str, GgufTensor]] = {}
        for name, entry in self._header.tensors.items():
            if name == ROPE_FACTORS_TENSOR:
                continue  # it has become part of the configuration
            if hf_name(name) in self._entries:
                raise unreadable(path, f"two GGUF tensors are '{hf_name(name)}'")
            self._entries[hf_name(name)] = entry

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its Hugging Face name, in file order; reads no tensor data."""
        return {
            name: TensorInfo(name, entry.shape, _PLAIN.get(entry.kind, "f32"))
            for name, entry in self._entries.items()
        }

    def read(self, name: str) -> Array:
        """The tensor ``name``, dequantised, its rows in Hugging Face order.

        Raises:
            GraphgenError: GG0602 if there is no such tensor, GG0601 if it cannot be decoded.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise GraphgenError("GG0602", f"there is no tensor '{name}'", where=str(self.path))
        values = self._decode(entry)
        match = _NAME.fullmatch(entry.name)
        heads = {
            "attn_q": self.config["num_attention_heads"],
            "attn_k": self.config["num_key_value_heads"],
        }.get(match["part"] if match and match["layer"] else "")
        return self._undo_rotary_order(entry, values, heads) if isinstance(heads, int) else values

    def fingerprint(self) -> str:
        """Identity of the contents as 64 hexadecimal digits; see :class:`Checkpoint`."""
        spans = ((entry.offset, entry.nbytes) for entry in self._header.tensors.values())
        return self._header.file.digest(self._header.data_offset, spans)

    def _decode(self, entry: GgufTensor) -> Array:
        what = f"the data of tensor '{entry.name}'"
        plain = _PLAIN.get(entry.kind)
        if plain is not None:
            dtype = NUMPY_DTYPES[plain]
            count = entry.nbytes // dtype.itemsize
            return self._header.file.array(entry.offset, count, dtype, what).reshape(entry.shape)
        if not entry.nbytes:
            return np.empty(entry.shape, np.float32)
        blocks = self._header.file.array(entry.offset, entry.nbytes, NUMPY_DTYPES["u8"], what)
        rows = blocks.reshape(quant_shape_to_byte_shape(entry.shape, entry.kind))
        try:
            # A scale that is not finite gives values that are not finite; that is no warning's job.
            with np.errstate(all="ignore"):
                return dequantize(rows, entry.kind)
        except RuntimeError as error:  # a kind that the package has no rule for
            raise unreadable(
                self.path,
                f"tensor '{entry.name}' is quantised as {entry.kind.name}, "
                f"which the gguf package cannot dequantise",
                offset=entry.offset,
            ) from error

    def _undo_rotary_order(self, entry: GgufTensor, values: Array, heads: int) -> Array:
        """Rows of each head from interleaved pairs (llama.cpp) to two halves (Hugging Face).

        The inverse of ``w.reshape(heads, 2, d // 2, in).swapaxes(1, 2)``.
        """
        rows = entry.shape[0]
        if rows % (2 * heads):
            raise unreadable(
                self.path,
                f"tensor '{entry.name}' has {rows} rows, which {heads} heads of even size "
                f"cannot share",
            )
        pairs = values.reshape(heads, rows // heads // 2, 2, *entry.shape[1:])
        return pairs.swapaxes(1, 2).reshape(entry.shape)


def hf_name(name: str) -> str:
    """The Hugging Face name of the GGUF tensor ``name``; the name itself if there is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer, part, kind = match["layer"], match["part"], match["kind"]
    if layer is None:
        return f"{_WHOLE_NAMES[part]}.{kind}" if part in _WHOLE_NAMES else name
    known = _LAYER_NAMES.get(part)
    return f"model.layers.{layer}.{known}.{kind}" if known else name
