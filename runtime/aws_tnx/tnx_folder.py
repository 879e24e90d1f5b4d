"""Folders of compiled models: artifacts of graphgen with all programs compiled.

Saved with weights, a folder also has a ``config.json`` with the mark :data:`PRESHARDED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.cpu import CpuProgram
from graphgen.runtime.artifact import Artifact, is_artifact, open_artifact, save_artifact
from graphgen.runtime.checkpoint.config_file import read_json_object
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.folders import write_json
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.progress import Progress
from graphgen.runtime.weights.presharded import layout_hash

CONFIG = "config.json"
PRESHARDED = "is_presharded_checkpoint"


def save_folder(
    folder: Path,
    built: BuiltModel,
    programs: ExecutableCache,
    checkpoint: Checkpoint | None,
    progress: Progress,
) -> None:
    """Write the compiled programs of a model.

    Args:
        folder: new or empty.
        built: the model.
        programs: its programs, all compiled.
        checkpoint: the weights to write too, cut for every rank; ``None`` for programs alone.
        progress: notified of long tasks.

    Raises:
        GraphgenError: GG0704 if it cannot be written.
    """
    sharded = checkpoint is not None
    artifact = save_artifact(folder, built, checkpoint, None, progress, weights=sharded)
    kept = artifact.programs(progress)
    for function in built.module.programs():
        program = programs.get(function.name)
        assert isinstance(program, CpuProgram), "these models have no stages"
        kept.store(function.name, program)
    if sharded:
        write_json(folder / CONFIG, {**built.config, PRESHARDED: True})


def open_compiled(
    folder: Path, config: Mapping[str, object], settings: CompileConfig, progress: Progress
) -> tuple[BuiltModel, ExecutableCache]:
    """The model and its compiled programs from a folder.

    Raises:
        GraphgenError: GG0703 naming the mismatch: another version, other settings, another model,
            or programs that are missing for this machine.
    """
    artifact = open_artifact(folder)
    # Programs do not depend on the values of weights: any checkpoint of the model may be used.
    artifact.check_request(artifact.source, settings)
    other = artifact.model_difference(config)
    if other is not None:
        name, compiled, wanted = other
        raise _unusable(folder, f"were compiled for {name} {compiled}, the model has {wanted}")
    programs = artifact.programs(progress)
    for function in artifact.model.module.programs():
        if not programs.compiled(function.name):
            raise _unusable(folder, f"lack {function.name} for this machine")
    return artifact.model, programs


def weights_of_folder(folder: Path, module: Module, progress: Progress) -> Mapping[str, object]:
    """The weights of every rank from a folder, for programs of any sizes.

    Raises:
        GraphgenError: GG0703 for weights that are cut otherwise than ``module`` reads them.
    """
    artifact: Artifact = open_artifact(folder)
    theirs = artifact.model.module
    if theirs.ranks != module.ranks:
        what = f"are cut for tp {theirs.ranks}, the programs are for tp {module.ranks}"
        raise _unusable(folder, what, "weights")
    if layout_hash(theirs) != layout_hash(module):
        raise _unusable(folder, "have another element type or layout than the programs", "weights")
    return artifact.weights(progress)


def presharded_config(folder: Path) -> dict[str, object] | None:
    """The model's ``config.json`` in a folder saved with weights; ``None`` for other folders."""
    if not is_artifact(folder) or not (folder / CONFIG).is_file():
        return None
    config = read_json_object(folder / CONFIG)
    return config if config.pop(PRESHARDED, False) else None


def _unusable(folder: Path, what: str, part: str = "compiled programs") -> GraphgenError:
    return GraphgenError(
        "GG0703",
        f"the {part} in {folder} {what}",
        help="compile again without load(), and save to a new folder",
    )
