"""Copies of a module, and of functions with their symbols bound."""

from __future__ import annotations

from graphgen.ir import Function, Module
from graphgen.ir.clone import Binder, bind_attrs

__all__ = ["Binder", "bind_attrs", "clone_module"]


def clone_module(module: Module) -> Module:
    """A copy that shares nothing that can change."""
    copy = Module(module.name, module.level, dict(module.mesh), {}, {}, dict(module.meta))
    copy.interface.update(module.interface)
    for function in module.functions.values():
        made = copy.add(Function(function.name, function.phase, dict(function.dims)))
        Binder({}).clone(function, made, "")
    return copy
