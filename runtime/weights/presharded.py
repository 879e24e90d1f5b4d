"""Pre-sharded weights: the prepared weights of every rank in files, ready to be read.

The files have AWS's names: ``weights/tp{r}_sharded_checkpoint.safetensors``. The manifest
``weights.json`` holds the degree, the hash of the weight programs, every tensor, and the arguments
and results of every program in order; it is written last.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np

from graphgen.analysis.fingerprint import function_fingerprint
from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import WEIGHTS_GLOBAL, WEIGHTS_RANK, Entry, Function, Module, Role, Value
from graphgen.json_value import OTHER_FORM
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.folders import new_folder, read_json, require_sealed, sealed, write_flushed
from graphgen.runtime.progress import Progress
from graphgen.runtime.weights.aligned_safetensors import fingerprint, write_aligned
from graphgen.runtime.weights.rank_weights import (
    RankArrays,
    names_here,
    program_weights,
    weights_of,
)
from graphgen.runtime.weights.weight_checks import max_magnitude
from graphgen.runtime.weights.weight_reader import WeightReader
from graphgen.version import __version__

MANIFEST = "weights.json"
_ROLES = {Role.PARAM: Role.WEIGHT.value}
_HELP = "make it again: graphgen shard-weights CHECKPOINT --tp N -o FOLDER"


def rank_file(folder: Path, rank: int) -> Path:
    """The file of one rank's weights."""
    return folder / "weights" / f"tp{rank}_sharded_checkpoint.safetensors"


def layout_hash(module: Module) -> str:
    """SHA-256 of everything but the checkpoint that prepared weights depend on, in hexadecimal.

    Programs of other sizes over the same weights have the same layout.
    """
    parts = [f"{row.name} {row.physical.text}" for row in program_weights(module)]
    homes = [module.functions.get(name) for name in (WEIGHTS_GLOBAL, WEIGHTS_RANK)]
    parts += [function_fingerprint(home) for home in homes if home is not None]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def write_rank_files(
    folder: Path, module: Module, checkpoint: Checkpoint, progress: Progress
) -> None:
    """Prepare and write the weights of all ranks in parallel, tensor by tensor per rank."""
    weights = weights_of(checkpoint, module)
    rows = program_weights(module)
    (folder / "weights").mkdir()
    done = [0] * module.ranks
    with progress.task(f"writing weights of {module.ranks} ranks") as report:

        def arrays(rank: int) -> Iterator[Array]:
            for row in rows:
                made = weights.on_rank(row, rank).array()
                weights.require_numbers(row, max_magnitude(made))
                yield made
                done[rank] += 1
                report(sum(done) / (len(rows) * module.ranks))

        def write(rank: int) -> None:
            shapes = {row.name: _like(row) for row in rows}
            write_aligned(rank_file(folder, rank), shapes, arrays(rank))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(write, range(module.ranks)))


def _like(row: Entry) -> Array:
    """An array of the tensor's shape and type, without memory of its own."""
    return np.broadcast_to(np.zeros((), numpy_dtype(row.physical.dtype)), row.physical.dims)


def signature(module: Module, program: Function) -> dict[str, list[dict[str, str]]]:
    """The arguments and results of a program in order: name, type on a rank, and role.

    The role of an argument says where it comes from: ``weight`` from the rank's file, ``state``
    from the result of that name of the last call, zeros at first, ``input`` from the caller,
    ``rank`` is the number of the rank.
    """

    def listed(name: str, value: Value) -> dict[str, str]:
        row = module.interface.get(name)
        role = "rank" if row is None else _ROLES.get(row.role, row.role.value)
        return {"name": name, "type": value.type.text, "role": role}

    return {
        "arguments": [listed(value.name or "", value) for value in program.args],
        "results": [listed(name, value) for name, value in program.outputs],
    }


def shard_weights(path: Path, module: Module, checkpoint: Checkpoint, progress: Progress) -> None:
    """Write a folder of prepared weights.

    Raises:
        GraphgenError: GG0704 if it cannot be written; no partial folder remains.
    """
    with new_folder(path, "the weights", f"{path} exists") as folder:
        write_rank_files(folder, module, checkpoint, progress)
        manifest = {
            "graphgen": __version__,
            "tp": module.ranks,
            "layout": layout_hash(module),
            "source": checkpoint.fingerprint(),
            "tensors": {row.name: row.physical.text for row in program_weights(module)},
            "programs": {f.name: signature(module, f) for f in module.programs()},
            "files": [fingerprint(rank_file(folder, rank), folder) for rank in range(module.ranks)],
        }
        write_flushed(folder / MANIFEST, sealed(manifest))


def read_shards(path: Path, module: Module, checkpoint: Checkpoint) -> dict[int, RankArrays]:
    """Read the prepared weights for ``module`` of the ranks that this process has.

    Raises:
        GraphgenError: GG0703 naming both sides of a mismatch (degree, checkpoint, tensors, layout)
            or the damaged file and tensor.
    """
    try:
        manifest = read_json(path / MANIFEST)
        _check(path, manifest, module, checkpoint)
        _require_files(path, manifest)
    except (OSError, *OTHER_FORM) as error:
        raise _unusable(path, f"cannot be read: {error}") from error
    with rank_reader(path, module) as reader:
        return dict(zip(names_here(module), reader.arrays(), strict=True))


def rank_reader(folder: Path, module: Module) -> WeightReader:
    """A reader of the files of :func:`names_here`, in that order (GG0703)."""
    wanted = names_here(module)
    files = {rank_file(folder, rank): names for rank, names in wanted.items()}
    return WeightReader(files, folder)


def source_of(path: Path) -> str:
    """The fingerprint of the checkpoint that a folder of prepared weights was made from.

    Raises:
        GraphgenError: GG0703 for a damaged manifest, or files that are not those written with it.
    """
    try:
        manifest = read_json(path / MANIFEST)
        _require_files(path, manifest)
        return str(manifest["source"])
    except (OSError, *OTHER_FORM) as error:
        raise _unusable(path, f"cannot be read: {error}") from error


def _require_files(path: Path, manifest: Mapping[str, object]) -> None:
    require_sealed(path / MANIFEST, manifest)
    for rank, wanted in enumerate(cast("list[str]", manifest["files"])):
        file = rank_file(path, rank)
        if fingerprint(file, path) != wanted:
            raise _unusable(path, f"are damaged: {file.name} was changed")


def _check(
    path: Path, manifest: Mapping[str, object], module: Module, checkpoint: Checkpoint
) -> None:
    if manifest["tp"] != module.ranks:
        what = f"are for tp {manifest['tp']}, the programs are for tp {module.ranks}"
        raise _unusable(path, what)
    source = checkpoint.fingerprint()
    if manifest["source"] != source:
        theirs = str(manifest["source"])[:12]
        raise _unusable(path, f"come from checkpoint {theirs}, this is {source[:12]}")
    theirs = cast(Mapping[str, str], manifest["tensors"])
    mine = {row.name: row.physical.text for row in program_weights(module)}
    for name in sorted({*theirs, *mine}):
        if theirs.get(name) != mine.get(name):
            has, wants = theirs.get(name, "nothing"), mine.get(name, "nothing")
            raise _unusable(path, f"have {has} as {name}, the programs read {wants}")
    layout = layout_hash(module)
    if manifest["layout"] != layout:
        what = f"have layout {str(manifest['layout'])[:12]}, the programs read {layout[:12]}"
        raise _unusable(path, what)


def _unusable(path: Path, what: str) -> GraphgenError:
    return GraphgenError("GG0703", f"the weights in {path} {what}", help=_HELP)
