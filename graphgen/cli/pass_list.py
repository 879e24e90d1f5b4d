"""Every pass and every pipeline there is, as tables, pages and JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphgen.cli.console import Json, table

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from graphgen.passes.core import Pass


def load_passes() -> Mapping[str, type[Pass]]:
    """Every pass there is, ours and those of installed packages, by name."""
    from graphgen.passes.core.registry import all_passes

    return all_passes()


def options_json(item: type[DataclassInstance]) -> list[Json]:
    """Name, type, default, choices and meaning of each option."""
    from graphgen.passes.core.options import options_of
    from graphgen.passes.inspect.pass_docs import page_of

    docs = page_of(item).options
    return [
        {
            "name": option.name,
            "type": option.kind_text,
            "default": option.default,
            "choices": list(option.among),
            "doc": docs.get(option.name, ""),
        }
        for option in options_of(item).values()
    ]


def options_table(item: type[DataclassInstance]) -> str:
    """The same as a section of a page; empty where there are none."""
    from graphgen.passes.core.options import options_of
    from graphgen.passes.inspect.pass_docs import page_of

    docs = page_of(item).options
    rows = [
        [f"  {option.name}", option.kind_text, option.default or "-", docs.get(option.name, "")]
        for option in options_of(item).values()
    ]
    return f"\n{table(['Options:', 'type', 'default', ''], rows, sys.stdout)}" if rows else ""


def pasteable(name: str, item: type[DataclassInstance]) -> str:
    """How a pipeline names it, with every option at its default."""
    from graphgen.passes.core.options import options_of

    options = ",".join(f"{o.name}={o.default}" for o in options_of(item).values())
    return f"{name}{{{options}}}" if options else name


def levels_text(takes: Sequence[str], gives: str) -> str:
    """``logical | canonical -> target``; any level is an empty left side."""
    from graphgen.ops import IR_STAGES

    before = "any level" if set(takes) >= set(IR_STAGES) else " | ".join(takes)
    return f"{before} -> {gives}" if gives else before


def rounding_text(rounding: float) -> str:
    """What a pass promises about the bits of the results."""
    return f"up to {rounding:.0e} of the largest value" if rounding else "none: bit for bit"
