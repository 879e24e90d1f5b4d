"""Compare HLO files by their computation, to recognize cache entries of other tools."""

from __future__ import annotations

from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.lowering.neuron.folders import MODULES
from graphgen.lowering.open import open_module


def same_program(hlo: Path, entry: Path) -> bool:
    """True if the HLO in the folder of an entry is the program of a file.

    Names of instructions, ids and metadata may differ. An entry that cannot be read is another one.
    """
    theirs = next((entry / name for name in MODULES if (entry / name).is_file()), None)
    if theirs is None:
        return False
    try:
        return _hash(theirs) == _hash(hlo)
    except GraphgenError:
        return False


def _hash(path: Path) -> list[str]:
    module = open_module(path)
    functions = module.programs() or list(module.functions.values())
    return [canonical_hash(module, item, Compilation("")) for item in functions]
