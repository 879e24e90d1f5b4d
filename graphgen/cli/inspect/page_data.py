"""Collect the data of the page of ``graphgen inspect --html``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphgen.analysis.calls import called
from graphgen.analysis.liveness import LiveMemory, live_memory
from graphgen.analysis.overview import Overview, overview
from graphgen.cli.inspect.programs import program_facts
from graphgen.ir import Module
from graphgen.report.program_json import module_json

if TYPE_CHECKING:
    from graphgen.report.dump_data import DumpData


def page_data(module: Module, items: Sequence[Overview]) -> DumpData:
    """Programs with the shardings of their values, and the functions that loops and branches run.

    Args:
        module: of the programs.
        items: overviews of the programs.
    """
    from graphgen.lowering.hlo.preserved.partitioning import partitioning_of
    from graphgen.passes.inspect.layouts.value_layouts import value_layouts
    from graphgen.report.dump_data import DumpData

    partitioned = partitioning_of(module)
    facts = {"partitioning": partitioned.to_json() if partitioned is not None else None}
    data = DumpData({**module_json(module), **facts})
    seen = {item.function.name for item in items}
    for item in items:
        layouts = value_layouts(module, item.function)
        data.add(item, program_facts(item), layouts, _live(module, item))
    for item in items:
        for function in called(module, item.function):
            if function.name not in seen:
                seen.add(function.name)
                body = overview(module, function, 0)
                layouts = value_layouts(module, body.function)
                live = _live(module, body)
                data.add(body, program_facts(body), layouts, live, caller=item.function.name)
    return data


def _live(module: Module, item: Overview) -> LiveMemory | None:
    """The live memory of a program; ``None`` with unbound symbols."""
    return live_memory(module, item.function) if item.peak is not None else None
