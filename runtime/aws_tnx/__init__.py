"""transformers-neuronx: models, ``sample``, and shims of Neuron's private modules (``shim_*``).

The shims offer PyHLO, a compiler, native kernels and torch's operations on ranks to an installed
transformers-neuronx on this CPU. :func:`install` puts them where Python finds modules, on request
only, and never in the place of a module that is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec

from graphgen.runtime.aws_tnx.shim_modules import MODULES, ROOTS, make_module
from graphgen.runtime.aws_tnx.shim_transformers import give_older_names, take_older_names

__all__ = ["install", "is_stand_in", "real_packages", "uninstall"]


def install() -> Mapping[str, bool]:
    """Let the modules that are missing be imported from here; may be called again.

    Returns:
        For each module, whether a stand-in is used; false where the real package is installed.
    """
    import torch

    real = real_packages()
    used = {name: name.partition(".")[0] not in real for name in MODULES}
    for name, missing in used.items():
        if missing and name not in sys.modules:
            made = sys.modules[name] = make_module(name)
            home, _, last = name.rpartition(".")
            if home:
                setattr(sys.modules[home], last, made)
    if "torch_neuronx" not in real:
        from graphgen.runtime.aws_tnx.shim_neuron_names import classes, operations

        torch.ops.__dict__.setdefault("neuron", operations())
        torch.classes.__dict__.setdefault("neuron", classes())
    give_older_names()
    return used


def uninstall() -> None:
    """Take the stand-ins away again."""
    import torch

    for name in MODULES:
        if is_stand_in(name):
            del sys.modules[name]
    for space in (torch.ops, torch.classes):
        if type(space.__dict__.get("neuron")).__name__ == "NeuronNamespace":
            del space.__dict__["neuron"]
    take_older_names()


def is_stand_in(name: str) -> bool:
    """Test whether a module that is loaded is one of these."""
    found = sys.modules.get(name)
    return found is not None and "__graphgen_stand_in__" in found.__dict__


def real_packages() -> frozenset[str]:
    """Installed packages of AWS, among the packages with stand-ins."""
    return frozenset(name for name in ROOTS if not is_stand_in(name) and _found(name))


def _found(name: str) -> bool:
    if name in sys.modules:
        return True
    return find_spec(name) is not None
