"""Folders of compiled models: programs, and on request the weights of every rank."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import BuiltModel, settings_of
from graphgen.runtime.progress_callback import Progress, Silent
from graphgen.runtime.weights.presharded import write_shards
from graphgen.runtime.whole_folder import new_folder, write_json
from graphgen.version import __version__

PROGRAMS = "programs.json"
# The mark of a configuration beside weights of every rank.
PRESHARDED = "is_presharded_checkpoint"
_COMPILED = "compiled"


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
        GraphgenError: GG0704 if it cannot be written; no partial folder remains.
    """
    with new_folder(folder, "the compiled model", f"{folder} exists") as home:
        kept = ExecutableCache(built.module, Silent(), home / _COMPILED, dict(programs.texts))
        for function in built.module.programs():
            kept.store(function.name, programs.get(function.name))
        write_json(
            home / PROGRAMS,
            {
                "graphgen": __version__,
                "settings": settings_of(built.settings),
                "programs": {f.name: programs.text_hash(f.name) for f in built.module.programs()},
            },
        )
        if checkpoint is not None:
            write_shards(home, built.module, checkpoint, progress)
            config = {**built.config, PRESHARDED: True}
            write_json(home / "config.json", config)


def open_programs(folder: Path, built: BuiltModel, progress: Progress) -> ExecutableCache:
    """The compiled programs of a model from a folder.

    Raises:
        GraphgenError: GG0703 naming the mismatch: another version, other settings, another model,
            or a missing file.
    """
    try:
        found = cast(Mapping[str, object], json.loads((folder / PROGRAMS).read_text()))
        version, settings = found["graphgen"], cast(Mapping[str, object], found["settings"])
        texts = cast(Mapping[str, str], found["programs"])
    except (OSError, ValueError, KeyError) as error:
        raise _unusable(folder, f"cannot be read: {error}") from error
    if version != __version__:
        raise _unusable(folder, f"are of graphgen {version}, this is {__version__}")
    # As JSON holds them, where tuples are lists.
    mine = cast("dict[str, object]", json.loads(json.dumps(settings_of(built.settings))))
    for name in mine | dict(settings):
        if mine.get(name) != settings.get(name):
            what = f"are compiled for {name} {settings.get(name)}, not {mine.get(name)}"
            raise _unusable(folder, what)
    programs = ExecutableCache(built.module, progress, folder / _COMPILED)
    for function in built.module.programs():
        if texts.get(function.name) != programs.text_hash(function.name):
            raise _unusable(folder, f"are of another model: {function.name} differs")
        if not programs.compiled(function.name):
            raise _unusable(folder, f"lack {function.name} for this CPU")
    return programs


def is_sharded(folder: Path) -> bool:
    """True for a folder that :func:`save_folder` wrote with weights."""
    return (folder / PROGRAMS).is_file() and (folder / "config.json").is_file()


def _unusable(folder: Path, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0703",
        f"the compiled programs in {folder} {what}",
        help="compile again without load(), and save to a new folder",
    )
