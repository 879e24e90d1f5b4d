"""The folder of a compiled application: AWS's files, and an artifact beside them.

::

    neuron_config.json                           the InferenceConfig
    weights/tp{r}_sharded_checkpoint.safetensors the weights of each rank
    draft/                                       the draft of EAGLE, with its target's tensors
    tokenizer.json ...                           tokenizer files of the checkpoint
    manifest.json module.gg compiled/ tokenizer/ the artifact: programs, as graphgen reads them
    hlo/TAG/_tp0_bkN/model/graph.hlo             programs for a Neuron target, if one is configured
    hlo/TAG/_tp0_bkN/graph.neff ...              and compiled, where neuronx-cc is installed
    sub_models/                                  an artifact of the sub-models beside the family's
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from graphgen.atomic_write import copy_inside
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import (
    MANIFEST,
    Artifact,
    is_artifact,
    open_artifact,
    save_artifact,
    take_weights,
)
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.checkpoint.hub import TOKENIZER_FILES
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import only_gguf
from graphgen.runtime.folders import scratch_folder
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.progress import Progress
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer
from graphgen.runtime.tokenizer.tokenizer_folder import copy_own

# Folders that only a compilation writes.
SUB_MODELS = "sub_models"
_FOLDERS = ("weights", "compiled", "tokenizer", "hlo", SUB_MODELS)
# The folder of a draft that has programs of its own; it stays where the weights do.
DRAFT_FOLDER = "draft"
# Writes files into a folder.
WriteFiles = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class CompiledParts:
    """The contents of a compiled folder.

    Attributes:
        built: the programs.
        config: the configuration.
        checkpoint: the weights; ``None`` to write none.
        tokenizer_folder: the checkpoint that tokenizer files are copied from.
        device: writes the programs for a Neuron target into a folder, where one is configured.
        keep_weights: take the weights that the folder has.
        compile: compile the programs, too.
        draft: the draft to write, which has programs of its own.
        sub_models: writes those with inputs of their own into a folder.
    """

    built: BuiltModel
    config: InferenceConfig
    checkpoint: Checkpoint | None
    tokenizer_folder: Path
    device: WriteFiles | None = None
    keep_weights: bool = False
    compile: bool = True
    draft: EagleCheckpoint | None = None
    sub_models: WriteFiles | None = None


def write_compiled(folder: Path, parts: CompiledParts, progress: Progress) -> None:
    """Compile every program and write the folder.

    The folder is complete or as it was: new files are made beside it, and moved at the end.
    Programs that an earlier compilation left in it are used again if they are the same.

    Raises:
        GraphgenError: GG0704 if it cannot be written, GG0703 for weights to keep that are not
            there or of another layout.
    """
    with _replacing(folder) as scratch:
        new = scratch / "new"
        _write_new(new, folder, parts, progress)
        gone = _FOLDERS if parts.keep_weights else (*_FOLDERS, DRAFT_FOLDER)
        _publish(new, folder, scratch, gone)


def _write_new(new: Path, folder: Path, parts: CompiledParts, progress: Progress) -> None:
    """Write the new contents of ``folder`` to ``new``."""
    source = parts.tokenizer_folder
    artifact = save_artifact(
        new,
        parts.built,
        parts.checkpoint,
        tokenizer_of(source),
        progress,
        weights=parts.checkpoint is not None,
    )
    if parts.keep_weights:
        artifact = take_weights(artifact, open_folder(folder))
    if parts.compile:
        compile_all(artifact, folder / "compiled", progress)
    if parts.draft is not None:
        parts.draft.save(new / DRAFT_FOLDER)
    parts.config.save(new)
    _copy_tokenizer(source, new)
    if parts.device is not None:
        parts.device(new / "hlo")
    if parts.sub_models is not None:
        parts.sub_models(new / SUB_MODELS)


def write_alone(folder: Path, config: InferenceConfig, sub_models: WriteFiles) -> None:
    """Write the folder of an application with sub-models alone, whole or not at all (GG0704)."""
    with _replacing(folder) as scratch:
        new = scratch / "new"
        new.mkdir()
        config.save(new)
        sub_models(new / SUB_MODELS)
        _publish(new, folder, scratch, (*_FOLDERS, DRAFT_FOLDER))


@contextmanager
def _replacing(folder: Path) -> Generator[Path]:
    """A folder beside ``folder`` for what is to replace its contents (GG0704)."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(folder.parent, f".{folder.name}.partial-") as scratch:
            yield scratch
    except OSError as error:
        raise GraphgenError(
            "GG0704",
            f"cannot write the compiled model {folder}: {error.strerror or error}",
            help="free some space or choose another folder",
        ) from error


def tokenizer_of(path: Path) -> Tokenizer | None:
    """The tokenizer of a checkpoint, if it has one."""
    if path.is_dir():
        has = (path / "tokenizer.json").is_file() or only_gguf(path) is not None
    else:
        has = path.suffix == ".gguf"
    return load_tokenizer(path) if has else None


def compile_all(artifact: Artifact, earlier: Path, progress: Progress) -> None:
    """Compile the programs into the artifact, or copy those that ``earlier`` has; no links."""
    programs = artifact.programs(progress)
    names = [function.name for function in artifact.model.module.programs()]
    for name in names:
        path = programs.path(name)
        if path is None or earlier.is_symlink() or (earlier / path.name).is_symlink():
            continue
        if (earlier / path.name).is_file():
            path.parent.mkdir(exist_ok=True)
            copy_inside(earlier / path.name, path.parent, path)
    for name in names:
        programs.get(name)


def _copy_tokenizer(checkpoint: Path, folder: Path) -> None:
    """Copy the tokenizer files of a checkpoint folder, which transformers reads."""
    if checkpoint.is_dir():
        names = [name for name in TOKENIZER_FILES if (checkpoint / name).is_file()]
        copy_own(checkpoint, names, folder)


def _publish(new: Path, folder: Path, scratch: Path, gone: Sequence[str]) -> None:
    """Move the entries of ``new`` to ``folder``, the manifest last; earlier ones to scratch.

    Args:
        new: the new entries.
        folder: the compiled folder.
        scratch: takes what is replaced.
        gone: folders of an earlier compilation, which leave even if no entry replaces them.
    """
    old = scratch / "old"
    old.mkdir()
    folder.mkdir(exist_ok=True)
    for name in (MANIFEST, *gone):
        with suppress(FileNotFoundError):
            os.replace(folder / name, old / name)
    for entry in sorted(new.iterdir(), key=lambda entry: entry.name == MANIFEST):
        with suppress(FileNotFoundError):
            os.replace(folder / entry.name, old / entry.name)
        os.replace(entry, folder / entry.name)


def open_folder(folder: Path) -> Artifact:
    """The artifact in a compiled folder (GG0908 for a folder without one)."""
    if not is_artifact(folder):
        raise GraphgenError(
            "GG0908",
            f"{folder} has no compiled model: {MANIFEST} is missing",
            help=f"compile first: application.compile({str(folder)!r})",
        )
    return open_artifact(folder)


def open_compiled(folder: Path, settings: CompileConfig, model: Mapping[str, object]) -> Artifact:
    """Open a folder that :func:`write_compiled` made for this configuration.

    Raises:
        GraphgenError: GG0908 for a folder without programs, GG0703 for another configuration.
    """
    artifact = open_folder(folder)
    if "quantization_config" in artifact.model.config:
        # Compiled for weights that were quantized before; their checkpoint may be gone since.
        settings = replace(settings, quantization="")
    artifact.check_request(artifact.source, settings)
    other = artifact.model_difference(model)
    if other is not None:
        name, compiled, wanted = other
        raise GraphgenError(
            "GG0703",
            f"{folder} was compiled for {name} {compiled}, the configuration has {wanted}",
            help="compile again, or use the configuration of the folder",
        )
    return artifact
