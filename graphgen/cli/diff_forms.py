"""Comparison of two files as they were read, or in one form that both can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphgen.cli.console import note
from graphgen.cli.module_file import read_module
from graphgen.cli.open_sizes import with_sizes
from graphgen.ir import Module
from graphgen.read_file import is_file
from graphgen.report.diff import ModuleDifference, diff_modules


@dataclass(frozen=True, slots=True)
class FormComparison:
    """Two modules that were made comparable, and their differences.

    Attributes:
        first, second: the modules.
        found: their differences.
        uncarried: facts that one has and the form of the other does not carry.
        form: in which both were written to be compared; empty for the forms of the files.
    """

    first: Module
    second: Module
    found: ModuleDifference
    uncarried: list[str]
    form: str = ""

    @property
    def foreign(self) -> bool:
        """True where one of them is of another tool."""
        return any("format" in module.meta for module in (self.first, self.second))

    @property
    def size(self) -> int:
        """Number of differences."""
        found = self.found
        inner = sum(len(each.interface) + len(each.changes) for each in found.with_bodies)
        return len(found.unpaired) + len(found.module) + inner


def compare(left: str, right: str, program: str | None, dims: str) -> FormComparison:
    """Compare two files.

    StableHLO beside HLO, or as another version of JAX serialized it, is compared as it was read and
    as XLA's converter writes it in HLO. Of the two the comparison with fewer differences is given.

    Args:
        left, right: names of files.
        program: the only program to compare.
        dims: sizes of symbols; where only one of them leaves sizes open, it takes the other's.

    Raises:
        GraphgenError: of reading, and GG0705 for sizes and programs that are not there.
    """
    modules = read_module(left), read_module(right)
    sizes = dims or _open_in_one(modules)
    if sizes and not dims:
        note(f"{sizes}: sizes of the other module; --dims sets others")
    bound = _bound(modules, program, sizes)
    best = _compared(bound, program)
    kinds = [module.meta.get("format") for module in modules]
    if best.found.same or "stablehlo" not in kinds or None in kinds:
        return best
    # Comparing changes modules.
    again = _bound((read_module(left), read_module(right)), program, sizes)
    was_bound = [one is not other for one, other in zip(modules, bound, strict=True)]
    for other in _in_one_form((left, right), again, was_bound, program):
        if other.size < best.size:
            best = other
        if best.found.same:
            break
    return best


def _compared(
    modules: tuple[Module, Module], program: str | None, form: str = ""
) -> FormComparison:
    from graphgen.lowering.comparable import make_comparable

    foreign = any("format" in module.meta for module in modules)
    uncarried = make_comparable(*modules) if foreign else []
    return FormComparison(*modules, diff_modules(*modules, program), uncarried, form)


def _in_one_form(
    names: tuple[str, str],
    modules: tuple[Module, Module],
    bound: list[bool],
    program: str | None,
) -> Iterator[FormComparison]:
    """The comparisons in HLO, and in MLIR's generic form, that can be made of files."""
    from graphgen.lowering.one_form import in_generic_form, in_hlo, program_in_hlo
    from graphgen.lowering.open import source_of

    if program is not None or not all(is_file(Path(name)) for name in names):
        return
    sources = [source_of(name) for name in names]
    made = [
        program_in_hlo(module) if was_bound else in_hlo(source)
        for module, source, was_bound in zip(modules, sources, bound, strict=True)
    ]
    of_stablehlo = [module.meta.get("format") == "stablehlo" for module in modules]
    if all(each is not None or not is_ for each, is_ in zip(made, of_stablehlo, strict=True)):
        first, second = (a if a is not None else b for a, b in zip(made, modules, strict=True))
        yield _compared((first, second), None, "HLO, as XLA's converter writes StableHLO")
    if all(of_stablehlo) and not any(bound):
        generic = [in_generic_form(source) for source in sources]
        if generic[0] is not None and generic[1] is not None:
            yield _compared((generic[0], generic[1]), None, "MLIR's generic form")


def _bound(
    modules: tuple[Module, Module], program: str | None, sizes: str
) -> tuple[Module, Module]:
    """The modules with the sizes bound that their text leaves open."""
    from graphgen.lowering.stablehlo.bind_sizes import leaves_sizes_open

    if not sizes:
        return modules
    one, other = (
        with_sizes(module, program, sizes) if leaves_sizes_open(module) else module
        for module in modules
    )
    return one, other


def _open_in_one(modules: tuple[Module, Module]) -> str:
    """The sizes of one module where only the other leaves them open."""
    from graphgen.lowering.stablehlo.bind_sizes import leaves_sizes_open

    open_ = [leaves_sizes_open(module) for module in modules]
    if open_[0] == open_[1]:
        return ""
    return _sizes_of(modules[open_.index(True)], modules[open_.index(False)])


def _sizes_of(module: Module, other: Module) -> str:
    """The sizes of the arguments of a module's only program in another, as ``--dims`` has them."""
    from graphgen.lowering.stablehlo.bind_sizes import open_sizes, size_arguments

    programs = [*module.programs(), *other.programs()]
    if len(programs) != 2 or len(programs[0].args) != len(programs[1].args):
        return ""
    places = {value.name or "": place for place, value in enumerate(programs[0].args)}
    found: dict[str, int] = {}
    for symbol, (argument, dim) in open_sizes(programs[0]).items():
        shape = programs[1].args[places[argument]].type.shape
        size = shape[dim] if dim < len(shape) else None
        if not isinstance(size, int):
            return ""
        found[symbol] = size
    if size_arguments(programs[0]):
        return ""
    return ",".join(f"{symbol}={size}" for symbol, size in found.items())
