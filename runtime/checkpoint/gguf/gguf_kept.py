"""Weights of a GGUF file in the blocks that it stores: numbers of 4 or 8 bits, and their scales.

Nothing is dequantized: numbers are parts of the file's bytes, copied as they are; a block's scale
and smallest number become f32. Their meaning is IR, see
:mod:`graphgen.passes.quantize.stored.gguf_blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from gguf.quants import Q4_K

from graphgen.models import family_of
from graphgen.runtime.checkpoint.gguf.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.interfaces import Array, TensorInfo
from graphgen.runtime.checkpoint.quantized.stated_modules import stated_modules

# Bytes of a row [out, blocks, bytes of a block] -> the tensors of the scheme of that name.
Split = Callable[[Array], Mapping[str, Array]]


def _half(part: Array) -> Array:
    """f16 [out, blocks], two bytes each, in f32."""
    return np.ascontiguousarray(part).view(np.float16)[..., 0].astype(np.float32)


def _q8_0(blocks: Array) -> Mapping[str, Array]:
    numbers = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    return {"qs": numbers.reshape(len(blocks), -1), "d": _half(blocks[..., :2])}


def _q4_0(blocks: Array) -> Mapping[str, Array]:
    return {"qs": np.ascontiguousarray(blocks[..., 2:]), "d": _half(blocks[..., :2])}


def _q4_1(blocks: Array) -> Mapping[str, Array]:
    numbers = np.ascontiguousarray(blocks[..., 4:])
    return {"qs": numbers, "d": _half(blocks[..., :2]), "m": _half(blocks[..., 2:4])}


def _q4_k(blocks: Array) -> Mapping[str, Array]:
    """Blocks of 256 numbers with 6-bit multiples of a scale and a smallest number for each 32."""
    rows = len(blocks)
    packed = np.ascontiguousarray(blocks[..., 4:16]).reshape(-1, 12)
    scale, least = [x.reshape(rows, -1, 8) for x in Q4_K.get_scale_min(packed)]
    steps = _half(blocks[..., :2])[..., None] * scale.astype(np.float32)
    lows = -_half(blocks[..., 2:4])[..., None] * least.astype(np.float32)
    numbers = np.ascontiguousarray(blocks[..., 16:]).reshape(rows, -1, 32)
    return {"qs": numbers, "d": steps.reshape(rows, -1), "m": lows.reshape(rows, -1)}


# By the name of the kind: the bytes of a block, and its split.
_KINDS: Final[Mapping[str, tuple[int, Split]]] = {
    "Q8_0": (34, _q8_0),
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q4_K": (144, _q4_k),
}
_WEIGHT: Final = ".weight"


class GgufBlocks:
    """A view of a GGUF checkpoint whose weights of products stay in their blocks.

    Embeddings, weights that are stored the other way round and kinds without a row here are
    dequantized as in the checkpoint itself.

    Args:
        base: the checkpoint.
    """

    def __init__(self, base: GgufCheckpoint) -> None:
        self._base: Final = base
        embedding = family_of(base.config).embedding
        kinds = {
            name.removesuffix(_WEIGHT): kind
            for name, kind in base.kinds().items()
            if name.endswith(_WEIGHT) and name != embedding and kind in _KINDS
        }
        self._kinds: Final = kinds
        self._infos: Final = self._listed()
        # The tensors of the weight that was read last: they are read one after the other.
        self._last: tuple[str, Mapping[str, Array]] = ("", {})
        names = [name.removesuffix(_WEIGHT) for name in base.tensors()]
        stated: dict[str, object] = {
            kind: stated_modules({x for x, own in kinds.items() if own == kind}, names)
            for kind in sorted({*kinds.values()})
        }
        quantization = {"quant_method": "gguf", "kinds": stated}
        self.config: Final[Mapping[str, object]] = (
            {**base.config, "quantization_config": quantization} if kinds else base.config
        )

    @property
    def path(self) -> Path:
        """The file that was opened."""
        return self._base.path

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor in its stored form; reads no tensor data."""
        return self._infos

    def read(self, name: str) -> Array:
        """The tensor ``name``; see :class:`Checkpoint`."""
        module, _, last = name.rpartition(".")
        if module not in self._kinds or name not in self._infos:
            return self._base.read(name)
        if self._last[0] != module:
            self._last = (module, self._split(module))
        return self._last[1][last]

    def fingerprint(self) -> str:
        """Identity of the contents; see :class:`Checkpoint`."""
        return self._base.fingerprint()

    def _split(self, module: str) -> Mapping[str, Array]:
        size, split = _KINDS[self._kinds[module]]
        rows = self._base.blocks(f"{module}{_WEIGHT}")
        return split(rows.reshape(len(rows), -1, size))

    def _listed(self) -> Mapping[str, TensorInfo]:
        found: dict[str, TensorInfo] = {}
        for name, info in self._base.tensors().items():
            module = name.removesuffix(_WEIGHT)
            kind = self._kinds.get(module)
            if kind is None or module == name:
                found[name] = info
                continue
            rows, columns = info.shape
            for last, (shape, dtype) in _shapes(kind, rows, columns).items():
                found[f"{module}.{last}"] = TensorInfo(f"{module}.{last}", shape, dtype)
        return found


def _shapes(kind: str, rows: int, columns: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
    """The shape and element type of each tensor of a weight."""
    blocks = ((rows, columns // 32), "f32")
    if kind == "Q8_0":
        return {"qs": ((rows, columns), "s8"), "d": blocks}
    run = 64 if kind == "Q4_K" else 32
    numbers = ((rows, columns // run, run // 2), "u8")
    return {"qs": numbers, "d": blocks} | ({} if kind == "Q4_0" else {"m": blocks})
