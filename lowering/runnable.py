"""Modules of other tools in the form in which they are run."""

from __future__ import annotations

from graphgen.ir import Module


def runnable(module: Module) -> Module:
    """Make a module that was read ready to be run, in place; one of graphgen stays as it is.

    Parts that are written for one device are run by all ranks, and instructions of XLA's own
    compilers become the ops that they came from. It is not written in this form.

    Raises:
        GraphgenError: GG0203 for a file that contradicts itself, GG0205 for a sharding that does
            not say which part a device has.
    """
    if not module.meta.keys() & {"format", "invalid"}:
        # Readers of other forms are not loaded for a module of graphgen.
        return module
    from graphgen.lowering.contradictions import require_valid
    from graphgen.lowering.known_calls import with_known_calls
    from graphgen.lowering.manual_sharding import on_ranks

    require_valid(module)
    return with_known_calls(on_ranks(module)) if "format" in module.meta else module
