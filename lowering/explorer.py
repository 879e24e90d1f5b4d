"""The explorer: a page with the whole graph of modules, for a file or a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import MappingProxyType

from graphgen.analysis import free_symbols
from graphgen.analysis.calls import called
from graphgen.analysis.liveness import LiveMemory, live_memory
from graphgen.analysis.overview import Overview, overview
from graphgen.atomic_write import write_whole
from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.ir import Module, Value
from graphgen.json_value import Json
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.hlo.subcomputations import opcodes_inside
from graphgen.passes.inspect.value_layouts import value_layouts
from graphgen.passes.proof.value_verdicts import ORDER, ValueVerdict
from graphgen.report.diff import ProgramDifference, diff_modules
from graphgen.report.explore_data import ExploreData, ModuleColumns, OpTimes
from graphgen.report.html_page import explore_page
from graphgen.report.program_json import module_json, program_json

# Of symbols, where the user states none.
_SIZES, _SIZE = {"B": 1, "R": 1}, 128
# Largest tensors of a program in the tables.
_LARGEST = 5


@dataclass(frozen=True, slots=True)
class ExplorerPage:
    """A page of :func:`explore`: a cell of a notebook shows it, and :meth:`save` keeps it.

    Attributes:
        text: HTML that needs nothing else.
        height: of the frame in a notebook, in pixels.
    """

    text: str
    height: int = 640

    def save(self, path: str | Path) -> None:
        """Write the page to a file, which any browser opens (GG0704)."""
        write_whole(Path(path), self.text.encode())

    def _repr_html_(self) -> str:
        """A frame with the page, for a notebook."""
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe srcdoc="{escape(self.text)}" style="{style}" title="graphgen"></iframe>'


def explore(
    module: Module,
    other: Module | None = None,
    *,
    sizes: Mapping[str, int] = MappingProxyType({}),
    height: int = 640,
) -> ExplorerPage:
    """The graph of a module, or of two side by side, as ``graphgen explore`` draws it.

    Args:
        module: to draw.
        other: drawn beside it; ops that are the same in both are selected in step.
        sizes: of symbols, for which work is counted: rows are 1 by default, the others 128.
        height: of the frame in a notebook, in pixels.
    """
    data = ExploreData()
    modules = [module] if other is None else [module, other]
    for each in modules:
        functions = each.programs() or list(each.functions.values())
        with paused_collector():
            items = [overview(each, function, _LARGEST) for function in functions]
        add_module(data, each, items, each.name, sizes=default_sizes(each, sizes))
    if other is not None:
        data.compare(differences(module, other))
    title = " and ".join(f"@{each.name}" for each in modules)
    return ExplorerPage(explore_page(title, data.head(), data.blocks), height)


def add_module(
    data: ExploreData,
    module: Module,
    items: Sequence[Overview],
    title: str,
    buffers: Json = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
    times: OpTimes | None = None,
    verdicts: Mapping[Value, ValueVerdict] | None = None,
) -> None:
    """Add programs, and the functions that they run, to the data of a page.

    Args:
        data: of the page.
        module: of the programs.
        items: overviews of the programs.
        title: of the file.
        buffers: memory by XLA's schedule, where the file states one.
        sizes: of all symbols, for which work is counted.
        times: of its ops, where they were measured.
        verdicts: of a proof, on the module's values.
    """
    partitioned = partitioning_of(module)
    facts: dict[str, Json] = {"sizes": dict[str, Json](sizes)}
    facts["partitioning"] = partitioned.to_json() if partitioned is not None else None
    programs = [module.function(item.function.name) for item in items]
    layouts: dict[Value, str] = {}
    for program in programs:
        layouts |= value_layouts(module, program)
        for function in called(module, program):
            layouts |= value_layouts(module, function)
    layers = {op: name for item in items for op, name in item.layer_of.items()}
    shown = None
    if verdicts is not None:
        shown = {v: (ORDER.index(x.status) + 1, x.relation) for v, x in verdicts.items()}
    columns = ModuleColumns(module, programs, layouts, layers, sizes, times, shown)
    rows = [_program(item) for item in items]
    live = [_live(module, item) for item in items]
    data.add(title, {**module_json(module), **facts}, columns, rows, live, buffers)


def default_sizes(module: Module, given: Mapping[str, int]) -> dict[str, int]:
    """The sizes of all symbols of a module: rows are 1 by default, the others 128."""
    known = sorted(free_symbols(module.functions.values()))
    return {name: given.get(name, _SIZES.get(name, _SIZE)) for name in known}


def _program(item: Overview) -> Json:
    """The overview of a program, and the kind of each argument: inputs, weights, caches."""
    kinds = {value: part.kind for part in item.parts for value in part.values}
    return {
        "facts": program_json(item, opcodes_inside(item)),
        "kinds": [kinds[value] for value in item.function.args],
    }


def _live(module: Module, item: Overview) -> LiveMemory | None:
    """The live memory of a program; ``None`` with unbound symbols."""
    return live_memory(module, item.function) if item.peak is not None else None


def differences(
    first: Module, second: Module, program: str | None = None
) -> Sequence[ProgramDifference]:
    """The paired programs of two modules; empty where no names go together."""
    try:
        return diff_modules(first, second, program).programs
    except GraphgenError as error:
        if error.code != "GG0705":
            raise
        return []
