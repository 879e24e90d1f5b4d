"""Join a model and its draft: one module with the programs, weights and states of both."""

from __future__ import annotations

from dataclasses import replace

from graphgen.errors import GraphgenError
from graphgen.exec.speculative_step import DRAFT, DRAFT_PHASE
from graphgen.ir import Entry, Function, Module, Role
from graphgen.ir.clone import clone_module
from graphgen.ir.loc import loc
from graphgen.ops import verify
from graphgen.ops.control import renamed


def join_modules(target: Module, draft: Module) -> Module:
    """A module with the programs of both; those of ``draft`` are called ``draft.*``.

    Both have gone through the pipeline up to its phase ``shard``. The inputs of a call and the rank
    are shared. A draft of one rank runs on every rank of the model, with whole weights and caches.

    Args:
        target: the model; unchanged.
        draft: unchanged.

    Raises:
        GraphgenError: GG0304 for modules that do not fit together.
    """
    _check(target, draft)
    joined, other = clone_module(target), clone_module(draft)
    shared = {row.name for row in other.entries(Role.INPUT)}
    functions = {name: f"{DRAFT}{name}" for name in other.functions}
    for row in other.interface.values():
        if row.name not in shared:
            joined.interface[f"{DRAFT}{row.name}"] = _renamed(row, functions)
    for function in other.functions.values():
        _rename(function, shared, functions, set(other.interface))
        joined.add(function)
    joined.meta |= {f"{DRAFT}{key}": text for key, text in other.meta.items()}
    _outputs_last(joined)
    verify(joined)
    return joined


def _check(target: Module, draft: Module) -> None:
    """Refuse modules that cannot be one (GG0304)."""
    if draft.ranks not in (1, target.ranks):
        raise GraphgenError(
            "GG0304",
            f"a draft on {draft.ranks} ranks does not fit a model on {target.ranks}",
            help=f"split the draft over {target.ranks} ranks, or leave it whole",
        )
    if draft.ranks > 1 and draft.mesh != target.mesh:
        raise GraphgenError("GG0304", f"the draft's mesh is {draft.mesh}, not {target.mesh}")
    layouts = [row.name for row in draft.entries(Role.LAYOUT)]
    if layouts:
        raise GraphgenError(
            "GG0304",
            f"the draft keeps its caches by the layout {layouts[0]}, which would be a second one",
            help="compile both without page_cache, or speculate from the host",
        )
    for row in draft.entries(Role.INPUT):
        other = target.interface.get(row.name)
        if other is None or other.logical is not row.logical:
            given = "no such input" if other is None else other.logical.text
            raise GraphgenError(
                "GG0304",
                f"the draft's input {row.name} is {row.logical.text}, and the model has {given}",
                help="compile both for tokens, and the draft without sampling",
            )


def _renamed(row: Entry, functions: dict[str, str]) -> Entry:
    """A row of the draft in the joined interface."""
    pack, unpack = (functions.get(name, name) for name in (row.pack, row.unpack))
    return replace(row, name=f"{DRAFT}{row.name}", pack=pack, unpack=unpack)


def _rename(
    function: Function, shared: set[str], functions: dict[str, str], interface: set[str]
) -> None:
    """Give a function of the draft its names in the joined module."""
    own = interface - shared
    if function.phase:
        function.phase = f"{DRAFT_PHASE}{function.phase}"
        names = [value.name or "" for value in function.args]
        function.block.rename_args([f"{DRAFT}{n}" if n in own else n for n in names])
        pairs = [(f"{DRAFT}{n}" if n in own else n, value) for n, value in function.outputs]
        function.outputs = pairs
    function.name = functions[function.name]
    for op in function.block:
        op.attrs = renamed(op, functions)
        here = op.loc
        op.loc = loc(here.file, here.line, f"{DRAFT}{here.scope}".rstrip("."), here.via)


def _outputs_last(joined: Module) -> None:
    """Order the interface: what programs take, then what they give."""
    rows = sorted(joined.interface.values(), key=lambda row: row.role is Role.OUTPUT)
    joined.interface.clear()
    joined.interface.update({row.name: row for row in rows})
