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

# Bytes of a weight [out, blocks, bytes of a block] -> one tensor of its scheme.
Part = Callable[[Array], Array]


def _half(first: int) -> Part:
    """The f16 of each block at this byte, f32 [out, blocks]."""

    def part(blocks: Array) -> Array:
        stored = np.ascontiguousarray(blocks[..., first : first + 2])
        return stored.view(np.float16)[..., 0].astype(np.float32)

    return part


def _bytes(first: int, size: int) -> Part:
    """The bytes of each block from this one on, u8 [out, runs, size]."""

    def part(blocks: Array) -> Array:
        return np.ascontiguousarray(blocks[..., first:]).reshape(len(blocks), -1, size)

    return part


def _integers(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(len(blocks), -1)


def _multiples(first: int, which: int, sign: int) -> Part:
    """Q4_K's 6-bit multiples of the f16 at this byte, f32 [out, blocks of 32]."""

    def part(blocks: Array) -> Array:
        packed = np.ascontiguousarray(blocks[..., 4:16]).reshape(-1, 12)
        counts = Q4_K.get_scale_min(packed)[which].reshape(*blocks.shape[:2], 8)
        made = sign * _half(first)(blocks)[..., None] * counts.astype(np.float32)
        return made.reshape(len(blocks), -1)

    return part


# By the name of the kind: the bytes of a block, and the tensors by their last name.
_KINDS: Final[Mapping[str, tuple[int, Mapping[str, Part]]]] = {
    "Q8_0": (34, {"qs": _integers, "d": _half(0)}),
    "Q4_0": (18, {"qs": _bytes(2, 16), "d": _half(0)}),
    "Q4_1": (20, {"qs": _bytes(4, 16), "d": _half(0), "m": _half(2)}),
    # Of 256 numbers.
    "Q4_K": (
        144,
        {"qs": _bytes(16, 32), "d": _multiples(0, 0, 1), "m": _multiples(2, 1, -1)},
    ),
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
        kind = self._kinds.get(module)
        if kind is None or last not in _KINDS[kind][1]:
            return self._base.read(name)  # a bias, or a weight that is not kept
        size, parts = _KINDS[kind]
        rows = self._base.blocks(f"{module}{_WEIGHT}")
        return parts[last](rows.reshape(len(rows), -1, size))

    def fingerprint(self) -> str:
        """Identity of the contents; see :class:`Checkpoint`."""
        return self._base.fingerprint()

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
