"""The folder of a model that is compiled for a device: written whole, and read with its hashes.

::

    manifest.json                                target, compiler, programs, SHA-256 of every file
    programs/SUB_MODEL/PROGRAM/graph.neff ...    HLO, command line, log and NEFF of a program
    interfaces.json                              arguments, results and aliases of every program
    neuron_config.json                           AWS's configuration, where one describes the model
    config.json                                  the model
    env.sh                                       variables to export where it runs
    weights/tp{r}_sharded_checkpoint.safetensors the weights of rank r, if there are any
    module.gg, tokenizer/                        with weights: what generates from them

Nothing in it names a machine or a folder, so that it can be moved.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import cast

from graphgen.atomic_write import (
    move_inside,
    plain_name,
    read_inside,
    remove_inside,
    require_no_link,
    write_inside,
)
from graphgen.errors import GraphgenError
from graphgen.json_value import OTHER_FORM, parse_json
from graphgen.lowering.abi import donated
from graphgen.lowering.compile_cache.cache_entry import digest
from graphgen.lowering.neuronx_cc.driver import CompiledProgram
from graphgen.lowering.neuronx_cc.program_plan import COMMAND, HLO, NEFF
from graphgen.runtime.artifact.artifact_folder import DEVICE_KIND
from graphgen.runtime.artifact.device_programs import DevicePrograms
from graphgen.runtime.artifact.runtime_environment import environment_script, runtime_variables
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.folders import read_json, require_sealed, scratch_folder
from graphgen.runtime.model import settings_of
from graphgen.runtime.progress import Progress
from graphgen.runtime.signing import VARIABLE, is_signed, signed
from graphgen.runtime.tokenizer.tokenizer import Tokenizer
from graphgen.runtime.tokenizer.tokenizer_folder import save_tokenizer
from graphgen.runtime.weights.presharded import shard_weights, signature
from graphgen.text import print_module
from graphgen.version import __version__

MANIFEST, INTERFACES, ENVIRONMENT = "manifest.json", "interfaces.json", "env.sh"
CONFIG, NEURON_CONFIG = "config.json", "neuron_config.json"
# With the weights: what an engine opens.
MODULE, TOKENIZER = "module.gg", "tokenizer"
VERIFIED = "on no device: by the published contract alone"


@dataclass(frozen=True, slots=True)
class DeviceFolder:
    """A folder that was read.

    Attributes:
        path: of the folder.
        manifest: its content.
    """

    path: Path
    manifest: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def neffs(self) -> Mapping[str, Path]:
        """The NEFF of each program, by its name."""
        rows = cast("Sequence[Mapping[str, str]]", self.manifest["programs"])
        return {row["name"]: self.path / row["folder"] / NEFF for row in rows}

    def read(self, path: Path) -> bytes:
        """A file of the folder, compared with its hash as it is read (GG0703)."""
        name = path.relative_to(self.path).as_posix()
        files = cast("Mapping[str, str]", self.manifest["files"])
        try:
            data = read_inside(self.path, path)
        except OSError as error:
            raise _unusable(self.path, error) from error
        if sha256(data).hexdigest() != files.get(name):
            raise _unusable(self.path, ValueError(f"{name} was changed"))
        return data

    def key(self, name: str) -> str:
        """The canonical hash of a program; empty for one that is not there."""
        rows = cast("Sequence[Mapping[str, str]]", self.manifest["programs"])
        return next((row["key"] for row in rows if row["name"] == name), "")


def begin_device_folder(path: Path) -> None:
    """Take the mark of completeness from a folder whose programs are about to change (GG0704)."""
    for name in (MANIFEST, MODULE):
        remove_inside(path, path / name)


def write_device_folder(
    path: Path,
    programs: DevicePrograms,
    made: Sequence[CompiledProgram],
    compiler: str,
    neuron_config: str = "",
) -> DeviceFolder:
    """Write the files beside compiled programs, the manifest last.

    Args:
        path: the folder, which has the programs.
        programs: the model.
        made: its programs.
        compiler: its version.
        neuron_config: the text of AWS's configuration; empty where none describes the model.

    Raises:
        GraphgenError: GG0704 if it cannot be written, GG0703 where a symbolic link is in the way;
            the folder has no manifest then.
    """
    variables = runtime_variables(programs, [item.program for item in made])
    write_inside(path, path / INTERFACES, _text(_interfaces(programs)))
    write_inside(path, path / CONFIG, _text(programs.built.config))
    write_inside(path, path / ENVIRONMENT, environment_script(variables).encode())
    if neuron_config:
        write_inside(path, path / NEURON_CONFIG, neuron_config.encode())
    else:
        remove_inside(path, path / NEURON_CONFIG)
    device = programs.options.device
    rows = [
        {
            "name": item.program.name,
            "sub_model": item.program.sub_model,
            "folder": item.program.folder.relative_to(path).as_posix(),
            "key": item.program.key,
            "options": item.program.command.words,
        }
        for item in made
    ]
    content: dict[str, object] = {
        "kind": DEVICE_KIND,
        "graphgen": __version__,
        "target": device.name,
        "lnc": device.lnc,
        "ranks": programs.module.ranks,
        "settings": settings_of(programs.built.settings),
        "compiler": compiler,
        "verified": VERIFIED,
        "environment": dict(variables),
        "programs": rows,
        "files": _digests(path, made),
    }
    text = signed(content)
    write_inside(path, path / MANIFEST, text)
    return DeviceFolder(path, cast("dict[str, object]", parse_json(text)))


def write_device_weights(
    path: Path,
    programs: DevicePrograms,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer | None,
    progress: Progress,
) -> None:
    """Write the weights of every rank and what generates from them, in the place of earlier ones.

    Call it between :func:`begin_device_folder` and :func:`write_device_folder`.

    Args:
        path: the folder.
        programs: the model.
        checkpoint: of the weights.
        tokenizer: of the texts; ``None`` for a model without.
        progress: notified of long tasks.

    Raises:
        GraphgenError: GG0704 if they cannot be written, GG0703 where a symbolic link is in the
            way, GG06xx for the checkpoint.
    """
    try:
        with scratch_folder(path, ".weights-") as scratch:
            new = scratch / "new"
            shard_weights(new, programs.module, checkpoint, progress)
            if tokenizer is not None:
                save_tokenizer(tokenizer, new / TOKENIZER)
            for name in ("weights", "weights.json", TOKENIZER):
                require_no_link(path, path / name)
                if (path / name).is_dir():
                    shutil.rmtree(path / name)
                if (new / name).exists():
                    move_inside(new / name, path, path / name)
        write_inside(path, path / MODULE, print_module(programs.module).encode())
    except OSError as error:
        what = f"cannot write the weights in {path}: {error.strerror or error}"
        raise GraphgenError("GG0704", what, help="free some space, or choose another") from error


def open_device_folder(path: Path, *, weights: bool = True) -> DeviceFolder:
    """Read a folder, and compare every file with its hash.

    Args:
        path: the folder.
        weights: compare files of weights, too; their tensors have checksums of their own.

    Raises:
        GraphgenError: GG0703 for a folder that is incomplete, of another kind, or damaged.
    """
    try:
        content = read_json(path / MANIFEST)
        require_sealed(path / MANIFEST, content)
        _require_files(path, content, weights=weights)
    except (OSError, *OTHER_FORM) as error:
        raise _unusable(path, error) from error
    return DeviceFolder(path, content)


def _unusable(path: Path, error: Exception) -> GraphgenError:
    return GraphgenError(
        "GG0703",
        f"{path} cannot be used: {error}",
        help=f"make it again: graphgen compile MODEL -o {path}; finished programs are kept",
    )


def require_trust(folder: DeviceFolder, *, trust: bool) -> None:
    """Refuse the programs of a folder that this user has not signed (GG0703).

    They are machine code, and nothing here can compile them again.

    Args:
        folder: whose programs are about to be loaded.
        trust: load them anyway.
    """
    if not trust and not is_signed(folder.manifest):
        raise GraphgenError(
            "GG0703",
            f"the programs in {folder.path} are not signed with your key, and are not loaded",
            help=f"{VARIABLE}=FILE with the key of the machine that compiled them, or "
            "--trust-artifacts if you trust the maker of the folder",
        )


def _require_files(path: Path, content: Mapping[str, object], *, weights: bool) -> None:
    """Compare the files with their hashes (ValueError, OSError)."""
    if content.get("kind") != DEVICE_KIND:
        raise ValueError(f"{MANIFEST} describes something else")
    files = cast("Mapping[str, str]", content["files"])
    for row in cast("Sequence[Mapping[str, str]]", content.get("programs", ())):
        plain_name(row["folder"])
        for name in (f"{row['folder']}/{file}" for file in (HLO, NEFF)):
            if name not in files:
                raise ValueError(f"{MANIFEST} has no hash of {name}")
    for name, expected in files.items():
        if name.endswith(".safetensors") and not weights:
            continue
        if digest(path, path / plain_name(name)) != expected:
            raise ValueError(f"{name} was changed")


def _text(content: object) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _interfaces(programs: DevicePrograms) -> dict[str, object]:
    """Arguments and results of each program in order, and the aliases between them."""
    return {
        item.name: {
            **signature(module, item),
            "aliases": [
                {"argument": argument, "result": result}
                for argument, result in sorted(donated(module, item).items())
            ],
        }
        for module in programs.modules
        for item in module.programs()
    }


def _digests(path: Path, made: Sequence[CompiledProgram]) -> dict[str, str]:
    """SHA-256 of the files of the folder by their path; logs are not part of it."""
    files = [item.program.folder / name for item in made for name in (HLO, COMMAND, NEFF)]
    files += [path / name for name in (INTERFACES, CONFIG, ENVIRONMENT, NEURON_CONFIG)]
    files += [path / "weights.json", *sorted((path / "weights").glob("*.safetensors"))]
    files += [path / MODULE, *sorted((path / TOKENIZER).glob("*.json"))]
    there = [file for file in files if file.is_file()]
    try:
        return {file.relative_to(path).as_posix(): digest(path, file) for file in there}
    except OSError as error:
        raise _unusable(path, error) from error
