"""The kind of a file or folder, recognized in one place: checkpoints, profiles, dumps, modules."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from graphgen.atomic_write import open_regular
from graphgen.read_file import is_file, is_folder

_HEAD = 16


class FileKind(Enum):
    """A kind of file or folder; its value is what people call it, with the article."""

    ARTIFACT = "an artifact"
    CHECKPOINT = "a checkpoint"
    DEVICE_PROFILE = "a profile of a Neuron device"
    FOLDER = "a folder of programs or dumps"
    MODULE = "a module"
    NEFF = "a NEFF"
    RECORDING = "a recording of XLA's profiler"
    XLA_DUMP = "a folder of XLA's dumps"
    XLA_FILE = "a file of XLA without a module"


def kind_of_file(path: Path) -> FileKind:
    """The kind by name and first bytes; a module for all that its reader has to refuse.

    Raises:
        OSError: the file cannot be opened.
    """
    # Only here: each form has a reader of its own, and most files need one of them.
    from graphgen.lowering.neuron.device_profile import is_profile
    from graphgen.lowering.profiles.open_profile import has_thunks
    from graphgen.lowering.xla_dump.dump_files import file_without_module
    from graphgen.runtime.checkpoint.listing import is_checkpoint, is_torch_file

    if is_folder(path):
        return _kind_of_folder(path)
    if not is_file(path):
        return FileKind.MODULE
    with open_regular(path) as opened:
        head = opened.read(_HEAD)
    if is_profile(path, head):
        return FileKind.DEVICE_PROFILE
    if has_thunks(path):
        return FileKind.RECORDING
    if is_checkpoint(head) or is_torch_file(path):
        return FileKind.CHECKPOINT
    if path.suffix == ".neff":
        return FileKind.NEFF
    return FileKind.MODULE if file_without_module(path) is None else FileKind.XLA_FILE


def _kind_of_folder(path: Path) -> FileKind:
    from graphgen.lowering.xla_dump.dump_folder import is_dump_folder
    from graphgen.runtime.artifact import is_artifact, is_for_device
    from graphgen.runtime.checkpoint.listing import checkpoint_files

    if is_dump_folder(path):
        return FileKind.XLA_DUMP
    if is_artifact(path) and not is_for_device(path):
        return FileKind.ARTIFACT
    return FileKind.CHECKPOINT if checkpoint_files(path) else FileKind.FOLDER
