"""Weights of a GGUF file in the blocks that it stores: numbers of 4 or 8 bits, and their scales.

Nothing is dequantized: numbers, and a block's scale and smallest number, are parts of the file's
bytes, copied as they are; but the latter of Q4_K are products, in f32. Their meaning is IR, see
:mod:`graphgen.passes.quantization.packed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from gguf.quants import Q4_K

from graphgen.models import family_of
from graphgen.passes.quantization.unlisted_modules import stated_modules
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.interfaces import Array, TensorInfo

# Bytes of a weight [..., out, blocks, bytes of a block] -> one tensor of its scheme.
Part = Callable[[Array], Array]


def _half(first: int) -> Part:
    """The f16 of each block at this byte, [..., out, blocks]."""

    def part(blocks: Array) -> Array:
        stored = np.ascontiguousarray(blocks[..., first : first + 2])
        return stored.view(np.float16)[..., 0]

    return part


def _bytes(first: int, size: int) -> Part:
    """The bytes of each block from this one on, u8 [..., out, runs, size]."""

    def part(blocks: Array) -> Array:
        return np.ascontiguousarray(blocks[..., first:]).reshape(*blocks.shape[:-2], -1, size)

    return part


def _integers(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(*blocks.shape[:-2], -1)


def _multiples(first: int, which: int, sign: int) -> Part:
    """Q4_K's 6-bit multiples of the f16 at this byte, f32 [..., out, blocks of 32]."""

    def part(blocks: Array) -> Array:
        packed = np.ascontiguousarray(blocks[..., 4:16]).reshape(-1, 12)
        counts = Q4_K.get_scale_min(packed)[which].reshape(*blocks.shape[:-1], 8)
        half = _half(first)(blocks).astype(np.float32)
        made = sign * half[..., None] * counts.astype(np.float32)
        return made.reshape(*blocks.shape[:-2], -1)

    return part


def _neighbors(blocks: Array) -> Array:
    """MXFP4's numbers, of which a byte holds two that are 16 apart, with neighbors in a byte."""
    stored = blocks[..., 1:]
    numbers = np.concatenate([stored & 15, stored >> 4], axis=-1)
    return numbers[..., ::2] | numbers[..., 1::2] << 4


# (shape of the weight) -> shape and element type of each tensor by its last name.
Shapes = Callable[[tuple[int, ...]], Mapping[str, tuple[tuple[int, ...], str]]]


@dataclass(frozen=True)
class KeptKind:
    """A kind whose blocks are kept.

    Attributes:
        scheme: of :data:`graphgen.passes.quantization.scheme_table.SCHEMES`.
        size: the bytes of a block.
        parts: the tensors of the scheme by their last name.
        shapes: theirs.
    """

    scheme: str
    size: int
    parts: Mapping[str, Part]
    shapes: Shapes


def _integer_shapes(shape: tuple[int, ...]) -> Mapping[str, tuple[tuple[int, ...], str]]:
    *outer, columns = shape
    return {"qs": (shape, "s8"), "d": ((*outer, columns // 32), "f16")}


def _nibble_shapes(run: int, dtype: str, *facts: str) -> Shapes:
    """Runs of numbers that share bytes, and facts of this type of each 32."""

    def shapes(shape: tuple[int, ...]) -> Mapping[str, tuple[tuple[int, ...], str]]:
        *outer, columns = shape
        found = dict.fromkeys(facts, ((*outer, columns // 32), dtype))
        return {"qs": ((*outer, columns // run, run // 2), "u8"), **found}

    return shapes


def _mx_shapes(shape: tuple[int, ...]) -> Mapping[str, tuple[tuple[int, ...], str]]:
    groups = (*shape[:-1], shape[-1] // 32)
    return {"weight_blocks": ((*groups, 16), "u8"), "weight_scales": (groups, "u8")}


_ALL: Final = (
    KeptKind("Q8_0", 34, {"qs": _integers, "d": _half(0)}, _integer_shapes),
    KeptKind("Q4_0", 18, {"qs": _bytes(2, 16), "d": _half(0)}, _nibble_shapes(32, "f16", "d")),
    KeptKind(
        "Q4_1",
        20,
        {"qs": _bytes(4, 16), "d": _half(0), "m": _half(2)},
        _nibble_shapes(32, "f16", "d", "m"),
    ),
    # Of 256 numbers.
    KeptKind(
        "Q4_K",
        144,
        {"qs": _bytes(16, 32), "d": _multiples(0, 0, 1), "m": _multiples(2, 1, -1)},
        _nibble_shapes(64, "f32", "d", "m"),
    ),
)
_KINDS: Final[Mapping[str, KeptKind]] = {kind.scheme: kind for kind in _ALL}
# GPT-OSS's experts, as transformers stores them.
_MXFP4: Final = KeptKind(
    "mxfp4-experts",
    17,
    {"weight_blocks": _neighbors, "weight_scales": lambda blocks: blocks[..., 0]},
    _mx_shapes,
)
_WEIGHT: Final = ".weight"


class GgufBlocks:
    """A view of a GGUF checkpoint whose weights of products stay in their blocks.

    Embeddings, weights whose rows are not stored as rows and kinds without a row here are
    dequantized as in the checkpoint itself.

    Args:
        base: the checkpoint.
    """

    def __init__(self, base: GgufCheckpoint) -> None:
        self._base: Final = base
        embedding = family_of(base.config).embedding
        ranks = {name: len(info.shape) for name, info in base.tensors().items()}
        found = {
            name.removesuffix(_WEIGHT): _kept(kind, ranks[name])
            for name, kind in base.kinds().items()
            if name.endswith(_WEIGHT) and name != embedding
        }
        kinds = {module: kind for module, kind in found.items() if kind is not None}
        self._kinds: Final = kinds
        self._infos: Final = self._listed()
        names = [name.removesuffix(_WEIGHT) for name in base.tensors()]
        stated: dict[str, object] = {
            scheme: stated_modules({x for x, own in kinds.items() if own.scheme == scheme}, names)
            for scheme in sorted({kind.scheme for kind in kinds.values()})
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
        if kind is None or last not in kind.parts:
            return self._base.read(name)  # a bias, or a weight that is not kept
        rows = self._base.blocks(f"{module}{_WEIGHT}")
        return kind.parts[last](rows.reshape(*rows.shape[:-1], -1, kind.size))

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
            for last, (shape, dtype) in kind.shapes(info.shape).items():
                found[f"{module}.{last}"] = TensorInfo(f"{module}.{last}", shape, dtype)
        return found


def _kept(kind: str, rank: int) -> KeptKind | None:
    """The row of a kind, of matrices and of stacks of them; MXFP4 is of stacks alone."""
    return _MXFP4 if kind == "MXFP4" and rank == 3 else _KINDS.get(kind)
