"""The artifact folder: module, weights, tokenizer and compiled programs, listed in a manifest.

A new artifact appears under its name when it is complete; the manifest is written last. Compiled
programs are added later, each file atomically, and a damaged one is compiled again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, cast

from graphgen.atomic_write import (
    folder_inside,
    move_inside,
    open_readable,
    plain_name,
    read_inside,
    require_no_link,
    unwritable,
    write_inside,
)
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import fields_of
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.json_value import OTHER_FORM
from graphgen.read_file import is_file
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.folders import (
    new_folder,
    read_json,
    require_new_folder,
    require_sealed,
    scratch_folder,
    sealed,
    write_flushed,
)
from graphgen.runtime.model import BuiltModel, PassStep, config_of, settings_of
from graphgen.runtime.progress import Progress
from graphgen.runtime.signing import is_signed, signed
from graphgen.runtime.tokenizer.tokenizer import Tokenizer
from graphgen.runtime.tokenizer.tokenizer_folder import save_tokenizer
from graphgen.runtime.weights.aligned_safetensors import fingerprint
from graphgen.runtime.weights.presharded import (
    layout_hash,
    rank_file,
    rank_reader,
    write_rank_files,
)
from graphgen.runtime.weights.rank_weights import names_here, put_ranks, put_weights, weights_of
from graphgen.runtime.weights.weight_reader import WeightReader
from graphgen.text import parse, print_module
from graphgen.version import __version__

MANIFEST = "manifest.json"
FORMAT = 2
# Flags of sizes that a configuration has no field for.
_SIZE_FLAGS = {"max_len": "--max-len"}
# The kind of a manifest of programs for a device.
DEVICE_KIND = "programs for a Neuron device"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An opened artifact.

    Attributes:
        path: the folder.
        model: module and settings, as built.
        source: fingerprint of the weights' checkpoint; empty without one.
        texts: SHA-256 of each program's StableHLO.
        has_weights: False for programs alone, whose weights come from a checkpoint.
        signed: the manifest has a signature of this user.
        trusted: machine code is loaded without one, too.
    """

    path: Path
    model: BuiltModel
    source: str
    texts: dict[str, str]
    has_weights: bool = True
    signed: bool = True
    trusted: bool = False

    def check_request(self, source: str, settings: CompileConfig) -> None:
        """Refuse an artifact of other weights or settings (GG0703, naming both sides)."""
        if source != self.source:
            raise _unusable(
                self.path,
                f"was made from other weights: {self.source[:12]}, the checkpoint is {source[:12]}",
            )
        mine, theirs = settings_of(self.model.settings), settings_of(settings)
        known = {**self.model.settings.values(), **mine}
        wanted = {**settings.values(), **theirs}
        other = [key for key in mine | theirs if mine.get(key) != theirs.get(key)]
        if other:
            both = [f"{key} {known.get(key)}, requested {wanted.get(key)}" for key in other]
            raise _unusable(
                self.path,
                f"was compiled for {'; '.join(both)}",
                _flags_of({key: known.get(key) for key in other}),
            )

    def model_difference(self, config: Mapping[str, object]) -> tuple[str, object, object] | None:
        """The first attribute in which a model configuration differs from the artifact's.

        Args:
            config: of a model, with Hugging Face's names.

        Returns:
            Its name, the artifact's value and the value in ``config``; ``None`` for equal ones.
        """
        from graphgen.models import read_model_config

        compiled, wanted = (read_model_config(each).to_hf() for each in (self.model.config, config))
        for name in wanted | compiled:
            if compiled.get(name) != wanted.get(name):
                return name, compiled.get(name), wanted.get(name)
        return None

    def weights(self, progress: Progress) -> dict[str, object]:
        """Put the prepared weights on the devices, in place if the CPU allows it.

        Raises:
            GraphgenError: GG0703 for an artifact without weights or with damaged ones.
        """
        with self.start_weights() as finish:
            return finish(progress)

    @contextmanager
    def start_weights(
        self, checkpoint: Checkpoint | None = None
    ) -> Generator[Callable[[Progress], dict[str, object]]]:
        """Begin to read the weights in threads, for the time of a ``with`` block.

        Args:
            checkpoint: of the weights if the artifact has none.

        Yields:
            The function that puts them on the devices when they are read; its errors are those of
            :meth:`weights` and :meth:`weights_from`.
        """
        if checkpoint is not None and not self.has_weights:
            yield lambda progress: self.weights_from(checkpoint, progress)
            return
        with self._reader() as reader:
            yield lambda progress: self._put(reader, progress)

    def _reader(self) -> WeightReader:
        if not self.has_weights:
            raise GraphgenError(
                "GG0703",
                f"the artifact {self.path} has no weights",
                help="prepare them from a checkpoint, or write them into it",
            )
        return rank_reader(self.path, self.model.module)

    def _put(self, reader: WeightReader, progress: Progress) -> dict[str, object]:
        module = self.model.module
        with progress.task("reading weights"):
            ranks = dict(zip(names_here(module), reader.arrays(), strict=True))
        return put_ranks(module, ranks)

    def weights_from(self, checkpoint: Checkpoint, progress: Progress) -> dict[str, object]:
        """Prepare the weights of a checkpoint for these programs and put them on the devices.

        Raises:
            GraphgenError: GG0602 for other tensors than the model has, GG0605 for values that are
                not numbers.
        """
        # Only here: an artifact with weights is opened without any model.
        from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint

        check_checkpoint(checkpoint, self.model.module)
        return put_weights(weights_of(checkpoint, self.model.module), progress)

    def programs(self, progress: Progress) -> ExecutableCache:
        """The programs, compiled or loaded from the folder at their first use.

        Those without a signature of this user are compiled again, unless the artifact is trusted.
        """
        return ExecutableCache(
            self.model.module,
            progress,
            self.path / "compiled",
            # Without a signature anybody may have written of which program a file is.
            dict(self.texts) if self.signed or self.trusted else {},
            root=self.path,
            signed=self.signed,
            trusted=self.trusted,
        )


def is_artifact(path: Path) -> bool:
    """True if the folder has an artifact's manifest."""
    return is_file(path / MANIFEST)


def _new(path: Path) -> tuple[str, str]:
    """The words about a new artifact in errors."""
    return "the artifact", f"{path} exists and is not an artifact"


def require_place(path: Path) -> None:
    """Refuse a folder that :func:`save_artifact` could not make, before work is done (GG0704)."""
    require_new_folder(path, *_new(path))


def save_artifact(
    path: Path,
    model: BuiltModel,
    checkpoint: Checkpoint | None,
    tokenizer: Tokenizer | None,
    progress: Progress,
    *,
    weights: bool = True,
) -> Artifact:
    """Write a new artifact and open it.

    Args:
        path: a new or empty folder.
        model: module and settings.
        checkpoint: of the weights; may be ``None`` without weights.
        tokenizer: ``None`` for an artifact that runs on tokens only.
        progress: notified of long tasks.
        weights: prepare and write the weights; otherwise :func:`write_weights` adds them, or a
            checkpoint is given where the artifact is used.

    Raises:
        GraphgenError: GG0704 if it cannot be written; no partial folder remains. GG0705 for weights
            without a checkpoint.
    """
    if weights and checkpoint is None:
        raise GraphgenError("GG0705", "weights need a checkpoint", help="give one")
    with new_folder(path, *_new(path)) as folder:
        if tokenizer is not None:
            save_tokenizer(tokenizer, folder / "tokenizer")
        (folder / "module.gg").write_text(print_module(model.module))
        if weights and checkpoint is not None:
            write_rank_files(folder, model.module, checkpoint, progress)
        store = ExecutableCache(model.module, progress)
        manifest = {
            "format": FORMAT,
            "graphgen": __version__,
            "settings": settings_of(model.settings),
            "config": dict(model.config),
            "source": checkpoint.fingerprint() if checkpoint is not None else "",
            "passes": [asdict(report) for report in model.reports],
            "files": _digests(folder),
            "weights": _fingerprints(folder, model.module) if weights else [],
            "programs": {f.name: store.text_hash(f.name) for f in model.module.programs()},
        }
        write_flushed(folder / MANIFEST, signed(manifest))
    return read_artifact(path)


def write_weights(artifact: Artifact, checkpoint: Checkpoint, progress: Progress) -> Artifact:
    """Write the prepared weights of a checkpoint into an artifact, in place of those it has.

    Weights that a session has read stay as they are for it.

    Raises:
        GraphgenError: GG0602 for other tensors than the model has, GG0605 for values that are not
            numbers; the artifact is as it was. GG0704 if it cannot be written, GG0703 where a
            symbolic link is in the way.
    """
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint

    path, module = artifact.path, artifact.model.module
    check_checkpoint(checkpoint, module)
    require_no_link(path, path / MANIFEST)
    try:
        with scratch_folder(path, ".weights-") as scratch:
            write_rank_files(scratch, module, checkpoint, progress)
            manifest = read_json(path / MANIFEST)
            manifest |= {
                "source": checkpoint.fingerprint(),
                "weights": _fingerprints(scratch, module),
            }
            folder_inside(path, path / "weights")
            for rank in range(module.ranks):
                move_inside(rank_file(scratch, rank), path, rank_file(path, rank))
            write_inside(path, path / MANIFEST, _rewritten(artifact, manifest))
    except OSError as error:
        raise unwritable(str(path), error.strerror or str(error)) from error
    return read_artifact(path)


def take_weights(artifact: Artifact, earlier: Artifact) -> Artifact:
    """Use the weights of an earlier artifact in a new one without weights; files are shared.

    Raises:
        GraphgenError: GG0703 if the earlier one has no weights, or weights of another layout;
            GG0704 if they cannot be linked.
    """
    module = artifact.model.module
    if not earlier.has_weights or layout_hash(earlier.model.module) != layout_hash(module):
        lacks = "has no weights" if not earlier.has_weights else "has weights of another layout"
        raise _unusable(earlier.path, lacks)
    require_no_link(artifact.path, artifact.path / MANIFEST)
    try:
        folder_inside(artifact.path, artifact.path / "weights")
        for rank in range(module.ranks):
            # Of a link, such as in the hub's cache, the file that it points to is shared.
            os.link(rank_file(earlier.path, rank).resolve(), rank_file(artifact.path, rank))
        manifest = read_json(artifact.path / MANIFEST)
        manifest |= {"source": earlier.source, "weights": _fingerprints(artifact.path, module)}
        write_inside(artifact.path, artifact.path / MANIFEST, _rewritten(artifact, manifest))
    except OSError as error:
        raise unwritable(str(artifact.path), error.strerror or str(error)) from error
    return read_artifact(artifact.path)


def _rewritten(artifact: Artifact, manifest: Mapping[str, object]) -> bytes:
    """A manifest with other weights; only one that was signed before is signed again."""
    return signed(manifest) if artifact.signed else sealed(manifest)


def _fingerprints(folder: Path, module: Module) -> list[str]:
    return [fingerprint(rank_file(folder, rank), folder) for rank in range(module.ranks)]


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the module and the tokenizer's files, by their paths in the folder."""
    files = [folder / "module.gg", *sorted((folder / "tokenizer").glob("*"))]
    return {path.relative_to(folder).as_posix(): _sha256(folder, path) for path in files}


def _sha256(folder: Path, path: Path) -> str:
    with open_readable(folder, path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_unchanged(folder: Path, digests: Mapping[str, str]) -> None:
    """Refuse files other than those that were written (GG0703, naming the first)."""
    for name, digest in digests.items():
        if _sha256(folder, folder / plain_name(name)) != digest:
            raise _unusable(folder, f"is damaged: {name} was changed")
    # A tokenizer reads some files only where they are there.
    for path in (folder / "tokenizer").glob("[!.]*"):
        name = path.relative_to(folder).as_posix()
        if name not in digests:
            raise _unusable(folder, f"is damaged: {name} was added")


def read_artifact(path: Path, *, trust: bool = False) -> Artifact:
    """Open an artifact of this version and check that it is complete.

    The tensors in the files of weights are compared with their checksums when they are read.

    Args:
        path: the folder.
        trust: load its machine code without a signature of this user, too.

    Raises:
        GraphgenError: GG0703 naming the mismatch: another format, another version of graphgen,
            changed weights, a damaged manifest or module.
    """
    try:
        manifest = read_json(path / MANIFEST)
        version, form = manifest["graphgen"], manifest["format"]
        if form != FORMAT or version != __version__:
            raise _unusable(
                path,
                f"was made by graphgen {version} (format {form}), this is {__version__} "
                f"(format {FORMAT})",
            )
        require_sealed(path / MANIFEST, manifest)
        settings = config_of(cast(Mapping[str, object], manifest["settings"]))
        _require_unchanged(path, cast(Mapping[str, str], manifest["files"]))
        module = parse(read_inside(path, path / "module.gg").decode(), str(path / "module.gg"))
        for rank, wanted in enumerate(cast(list[str], manifest["weights"])):
            file = rank_file(path, rank)
            if fingerprint(file, path) != wanted:
                raise _unusable(path, f"holds other weights than it was made with: {file.name}")
        reports = [PassStep(**row) for row in cast(list[dict[str, Any]], manifest["passes"])]
        config = cast(Mapping[str, object], manifest["config"])
        model = BuiltModel(config, settings, module, reports)
        texts = cast(dict[str, str], manifest["programs"])
        source, has_weights = cast(str, manifest["source"]), bool(manifest["weights"])
        return Artifact(path, model, source, texts, has_weights, is_signed(manifest), trust)
    except (OSError, *OTHER_FORM) as error:
        raise _unusable(path, f"is damaged: {error}") from error


def _flags_of(settings: Mapping[str, object]) -> str:
    """The flags that request these values; empty where a value has none."""
    fields, flags = fields_of(CompileConfig), list[str]()
    for name, value in settings.items():
        flag = _SIZE_FLAGS.get(name) or (fields[name].flag if name in fields else "")
        # Flags of lists and switches have more than one form.
        if not flag or isinstance(value, bool) or not isinstance(value, int | str) or value == "":
            return ""
        flags.append(f"{flag} {quote(str(value))}")
    return " ".join(flags)


def _unusable(path: Path, what: str, flags: str = "") -> GraphgenError:
    help = "delete the folder and make it again"
    return GraphgenError(
        "GG0703", f"the artifact {path} {what}", help=f"give {flags}, or {help}" if flags else help
    )
