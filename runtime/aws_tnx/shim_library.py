"""The installed transformers-neuronx: where it is, and the names of AWS's modules it asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_tnx.shim_modules import CLASSES, MODULES, OPERATIONS, ROOTS

DISTRIBUTION, PACKAGE = "transformers-neuronx", "transformers_neuronx"
# Modules that the library has, and a placeholder of its name does not.
_PARTS = ("compiler", "decoder", "hlo", "ops")
_SOURCE = (
    "pip install --no-deps transformers-neuronx "
    "--index-url https://pip.repos.neuron.amazonaws.com, "
    "or the sources: https://github.com/aws-neuron/transformers-neuronx"
)
# Other packages of AWS's that the library may ask for.
_PRIVATE = (*ROOTS, "torch_neuron", "torch_xla")


@dataclass(frozen=True, slots=True)
class Library:
    """An installed transformers-neuronx.

    Attributes:
        folder: of its package.
        version: of its distribution; empty for sources on the path.
    """

    folder: Path
    version: str

    @property
    def text(self) -> str:
        """The version and the folder on one line."""
        return f"{DISTRIBUTION} {self.version or '(sources)'} in {self.folder}"


@dataclass(frozen=True, slots=True)
class AskedName:
    """A name of AWS's that the library asks for.

    Attributes:
        module: a module, or ``torch.ops.neuron`` or ``torch.classes.neuron``.
        name: a name in it; empty for the module alone.
        places: the first file and line, and the number of all.
    """

    module: str
    name: str
    places: tuple[str, int]

    @property
    def has_stand_in(self) -> bool:
        """True where a stand-in offers the name."""
        if self.module == "torch.ops.neuron":
            return self.name in OPERATIONS
        if self.module == "torch.classes.neuron":
            return self.name in CLASSES
        names = MODULES.get(self.module)
        if names is None:
            return False
        inner = f"{self.module}.{self.name}"
        return not self.name or self.name in names or "*" in names or inner in MODULES


def find_library() -> Library:
    """Find the installed library.

    Raises:
        GraphgenError: GG0908 where it is not installed, or where what is installed under its name
            is not the library, such as PyPI's placeholder.
    """
    try:
        known = version(DISTRIBUTION)
    except PackageNotFoundError:
        known = ""
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        if all((Path(place) / f"{part}.py").is_file() for part in _PARTS):
            return Library(Path(place), known)
    if not places and not known:
        raise GraphgenError("GG0908", f"{DISTRIBUTION} is not installed", help=_SOURCE)
    what = f"{DISTRIBUTION} {known}".strip()
    raise GraphgenError(
        "GG0908",
        f"the installed {what} is not the library",
        note=f"it has no module {PACKAGE}.{_PARTS[0]}: PyPI has a placeholder under this name, "
        "and the library is not on PyPI",
        help=f"pip uninstall {DISTRIBUTION}, then {_SOURCE}",
    )


def asked_names(library: Library) -> list[AskedName]:
    """The names of AWS's that the library's files ask for, by module."""
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for file in sorted(library.folder.rglob("*.py")):
        shown = file.relative_to(library.folder).as_posix()
        for module, name, line in _names_in(ast.parse(file.read_text(encoding="utf-8"))):
            first, count = found.get((module, name), (f"{shown}:{line}", 0))
            found[module, name] = first, count + 1
    return [AskedName(module, name, places) for (module, name), places in sorted(found.items())]


def _names_in(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in _PRIVATE:
                    yield alias.name, "", node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] in _PRIVATE:
                for alias in node.names:
                    yield node.module, alias.name, node.lineno
        elif isinstance(node, ast.Attribute):
            home = ast.unparse(node.value)
            if home in ("torch.ops.neuron", "torch.classes.neuron"):
                yield home, node.attr, node.lineno


def counts(names: list[AskedName], real: frozenset[str]) -> Mapping[str, int]:
    """The numbers of names by state: ``real``, ``stand-in``, ``missing``."""
    states = [state_of(name, real) for name in names]
    return {state: states.count(state) for state in ("real", "stand-in", "missing")}


def state_of(name: AskedName, real: frozenset[str]) -> str:
    """``real`` where AWS's package is installed, else ``stand-in`` or ``missing``."""
    root = name.module.partition(".")[0]
    if root in real or (root == "torch" and "torch_neuronx" in real):
        return "real"
    return "stand-in" if name.has_stand_in else "missing"
