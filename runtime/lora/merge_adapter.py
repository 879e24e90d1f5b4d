"""Merge a low-rank adapter into a checkpoint: read a tensor, add scale * B A, write, forget."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.models.registry import family_of
from graphgen.read_file import is_there
from graphgen.runtime.checkpoint.config_file import read_json_object
from graphgen.runtime.checkpoint.hf_folder import FolderCheckpoint
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Array, Checkpoint, TensorInfo
from graphgen.runtime.checkpoint.name_mapping import with_model_names
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.folders import new_folder, write_json
from graphgen.runtime.lora.adapter_file import Adapter, LowRankPair, require_none
from graphgen.runtime.progress import Progress
from graphgen.runtime.quantization.quantizable import quantizable_weights
from graphgen.runtime.tokenizer.tokenizer_folder import copy_other_files
from graphgen.runtime.weights.aligned_safetensors import append_tensor, stream_header


@dataclass(frozen=True, slots=True)
class MergeBase:
    """A checkpoint in floats.

    Attributes:
        stored: its tensors, under today's names of the family but not split or stacked.
        config: all of its ``config.json``.
    """

    stored: Checkpoint
    config: Mapping[str, object]

    @property
    def model(self) -> Mapping[str, object]:
        """The configuration of the text model."""
        return self.stored.config


def open_merge_base(path: Path, *, dequantize: bool = False) -> MergeBase:
    """The checkpoint at ``path`` to merge an adapter into.

    Args:
        path: a folder or a GGUF file.
        dequantize: take the weights of a quantized GGUF file in f32.

    Raises:
        GraphgenError: GG0601 for a checkpoint that cannot be read; GG0705 for quantized weights,
            which would have to be rounded again.
    """
    opened = open_checkpoint(path)
    stated = opened.config.get("quantization_config")
    if isinstance(stated, dict):
        method = cast("Mapping[str, object]", stated).get("quant_method", "quantization_config")
        raise _quantized(
            path,
            f"its weights are quantized ({method})",
            "merge into the checkpoint in floats that it was made from, and quantize the result "
            "with 'graphgen quantize'",
        )
    if is_there(path / "model.safetensors") or not _gguf(opened.path):
        folder = FolderCheckpoint(path)
        return MergeBase(with_model_names(folder), read_json_object(path / "config.json"))
    kinds = _kinds(opened)
    if kinds and not dequantize:
        help = "give --dequantize to write a checkpoint in f32"
        raise _quantized(path, f"its weights are quantized ({', '.join(kinds)})", help)
    return MergeBase(opened, opened.config)


def _gguf(path: Path) -> bool:
    return path.suffix == ".gguf"


def _kinds(checkpoint: Checkpoint) -> list[str]:
    """GGUF's names of the kinds of its tensors that are narrower than 16 bits."""
    # Only here: the gguf package is not needed to read safetensors.
    from graphgen.runtime.checkpoint.listing import list_checkpoint

    floats = ("F16", "BF16", "F32", "F64")
    kinds = {tensor.type for tensor in list_checkpoint([checkpoint.path]).tensors}
    return sorted(kind for kind in kinds if kind not in floats)


def _quantized(path: Path, what: str, help: str) -> GraphgenError:
    return GraphgenError("GG0705", f"cannot merge into {path}: {what}", where=str(path), help=help)


Floats = npt.NDArray[np.float32]

WEIGHTS: Final = "model.safetensors"
_HEAD: Final = "lm_head.weight"
# The float32 copies of this many bytes of a weight are all that is in memory of it.
_BLOCK_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class MergedCheckpoint:
    """Statistics of a written checkpoint.

    Attributes:
        merged: modules whose weight has the adapter's product in it.
        replaced: tensors that the adapter holds whole.
        untied: the head is stored apart from the embedding now.
        nbytes: of the weights' file.
    """

    merged: tuple[str, ...]
    replaced: tuple[str, ...]
    untied: bool
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """The tensors to write in order, and where each comes from.

    Attributes:
        rows: of the new file.
        source: the checkpoint's tensor that a row is made of, by name.
        pairs: the factors of a row's weight, by name.
        untied: a head is written that the checkpoint has tied.
    """

    rows: list[TensorInfo]
    source: Mapping[str, str]
    pairs: Mapping[str, LowRankPair]
    untied: bool


def merge_adapter(
    base: MergeBase, adapter: Adapter, output: Path, progress: Progress
) -> MergedCheckpoint:
    """Write a folder with W + scale * B A in the place of each weight W that has an adapter.

    The sum is taken in float32 and rounded once, to the element type of W. The folder appears
    complete, or not at all; a tensor is read, changed and written before the next one. A head that
    is tied to the embedding is written apart where the adapter is of one of them.

    Args:
        base: the checkpoint.
        adapter: for this model.
        output: a new or empty folder.
        progress: notified of the task.

    Raises:
        GraphgenError: GG0602 naming the adapter's tensors that the checkpoint has no place for, or
            copies of weights that differ from the checkpoint's; GG0502 for a tied head that the
            family cannot have apart; GG0704 if the folder is taken or cannot be written.
    """
    plan = _planned(base, adapter)
    occupied = f"{output} is there already"
    with new_folder(output, "the merged checkpoint", occupied) as folder:
        copy_other_files(base.stored, folder)
        write_json(folder / "config.json", _config(base.config, untied=plan.untied))
        with progress.task("merging") as report, (folder / WEIGHTS).open("wb") as file:
            kinds = ((row.name, NUMPY_DTYPES[row.dtype], row.shape) for row in plan.rows)
            file.write(stream_header(kinds))
            for number, row in enumerate(plan.rows, 1):
                for block in _blocks(base, adapter, plan, row):
                    append_tensor(file, block)
                report(number / len(plan.rows))
            file.flush()
            os.fsync(file.fileno())
        size = (folder / WEIGHTS).stat().st_size
    return MergedCheckpoint(tuple(adapter.pairs), tuple(adapter.whole), plan.untied, size)


def _planned(base: MergeBase, adapter: Adapter) -> _Plan:
    """The tensors to write, after a check of every tensor of the adapter."""
    tensors = dict(base.stored.tensors())
    family = family_of(base.model)
    source = {name: name for name in tensors}
    pairs = {f"{module}.weight": pair for module, pair in adapter.pairs.items()}
    touched = {*pairs, *adapter.whole}
    tied = _HEAD not in tensors and family.embedding in tensors
    untied = tied and (_HEAD in touched or family.embedding in touched)
    if untied:
        _check_untied(base)
        table = tensors[family.embedding]
        tensors[_HEAD] = TensorInfo(_HEAD, table.shape, table.dtype)
        source[_HEAD] = family.embedding
    problems = [
        *_misfits(base, adapter, tensors),
        *_missing(adapter, tensors),
        *_other_copies(base, adapter, source),
    ]
    require_none(problems, adapter.path, str(base.stored.path))
    return _Plan(list(tensors.values()), source, pairs, untied)


def _check_untied(base: MergeBase) -> None:
    """Require that the model can have a head of its own (GG0502)."""
    try:
        family_of(base.model).read({**base.model, "tie_word_embeddings": False})
    except GraphgenError as error:
        raise GraphgenError(
            "GG0502",
            "the adapter is of the embedding or the head, which this family has as one",
            where=str(base.stored.path),
            note=error.what,
            help="serve the adapter beside the model instead: generate --lora",
        ) from error


def _missing(adapter: Adapter, tensors: Mapping[str, TensorInfo]) -> Iterator[str]:
    """A line for each weight that the configuration names and the adapter has nothing for."""
    config = adapter.config
    for name, info in tensors.items():
        module = name.removesuffix(".weight")
        if module == name or len(info.shape) != 2 or not config.targets:
            continue
        if module not in adapter.pairs and name not in adapter.whole and config.names(module):
            yield f"'{module}.lora_A' is missing: target_modules names '{module}'"


def _misfits(base: MergeBase, adapter: Adapter, tensors: Mapping[str, TensorInfo]) -> Iterator[str]:
    """A line for each tensor of the adapter that has no place in the checkpoint."""
    for module, pair in adapter.pairs.items():
        weight = tensors.get(f"{module}.weight")
        if weight is None:
            yield f"'{pair.a.name}': there is no '{module}.weight'"
            continue
        wanted = (pair.a.shape[1], pair.b.shape[0])
        if sorted(weight.shape) != sorted(wanted) or (pair.embedding and weight.shape != wanted):
            yield (
                f"'{pair.a.name}' {list(pair.a.shape)} and '{pair.b.name}' {list(pair.b.shape)} "
                f"do not fit '{weight.name}' {list(weight.shape)}"
            )
        elif pair.magnitude:
            yield from _misfit_of_magnitude(base, adapter, pair, weight)
    for name, stored in {**adapter.whole, **adapter.copies}.items():
        shape, weight = adapter.tensor(stored).shape, tensors.get(name)
        if weight is None or weight.shape != shape:
            other = f"is {list(weight.shape)}" if weight else "is not there"
            yield f"'{stored}' {list(shape)}: '{name}' {other}"


def _misfit_of_magnitude(
    base: MergeBase, adapter: Adapter, pair: LowRankPair, weight: TensorInfo
) -> Iterator[str]:
    """A line where the norms of DoRA are not those of the rows of a weight."""
    shape = adapter.tensor(pair.magnitude).shape
    if _is_transposed(base, pair, weight.shape):
        yield f"'{pair.magnitude}': DoRA of '{weight.name}', which is [in,out], is not built"
    elif prod(shape) != weight.shape[0]:
        yield f"'{pair.magnitude}' {list(shape)} does not fit '{weight.name}' {list(weight.shape)}"


def _other_copies(base: MergeBase, adapter: Adapter, source: Mapping[str, str]) -> Iterator[str]:
    """A line for each copy of a weight in the adapter that is not the checkpoint's weight."""
    for name, stored in adapter.copies.items():
        if name not in source:
            continue
        mine, other = base.stored.read(source[name]), adapter.read(stored)
        if mine.shape == other.shape and not np.array_equal(mine.astype(other.dtype), other):
            yield f"'{stored}' differs from '{name}': the adapter was made for another model"


def _config(config: Mapping[str, object], *, untied: bool) -> dict[str, object]:
    return {**config, "tie_word_embeddings": False} if untied else dict(config)


def _blocks(base: MergeBase, adapter: Adapter, plan: _Plan, row: TensorInfo) -> Iterator[Array]:
    """The elements of one tensor, some rows after the others."""
    stored = adapter.whole.get(row.name)
    if stored is not None:
        yield adapter.read(stored).astype(NUMPY_DTYPES[row.dtype])
        return
    weight, pair = base.stored.read(plan.source[row.name]), plan.pairs.get(row.name)
    if pair is None:
        yield weight
        return
    a, b = adapter.factors(pair.module)
    left, right = b, a.astype(np.float32)
    if _is_transposed(base, pair, weight.shape):
        left, right = right.T, left.T
    count = max(_BLOCK_BYTES // (4 * weight.shape[1]), 1)
    scale = _magnitudes(adapter, pair)
    for start in range(0, weight.shape[0], count):
        rows = slice(start, start + count)
        merged = weight[rows].astype(np.float32) + left[rows] @ right
        if scale is not None:
            norm = np.linalg.norm(merged, axis=1, keepdims=True)
            merged *= scale[rows, None] / norm
        yield merged.astype(weight.dtype)


def _magnitudes(adapter: Adapter, pair: LowRankPair) -> Floats | None:
    """The norms [out] that DoRA gives the rows of a merged weight; ``None`` without them.

    arXiv 2402.09353: W' = m (W + s B A) / |W + s B A|, the norm of each output.
    """
    if not pair.magnitude:
        return None
    return adapter.read(pair.magnitude).astype(np.float32).reshape(-1)


def _is_transposed(base: MergeBase, pair: LowRankPair, shape: tuple[int, ...]) -> bool:
    """True for a weight [in,out]: an embedding, and the layers of GPT-2."""
    if pair.embedding:
        return True
    if shape[0] != shape[1]:
        return shape == (pair.a.shape[1], pair.b.shape[0])
    found = quantizable_weights(base.model, ()).get(f"{pair.module}.weight")
    return found is not None and found.contracted == 0
