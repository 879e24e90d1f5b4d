"""``graphgen equiv``: compare two modules numerically; name the first op that differs."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.backend_option import AUTO, checked_name
from graphgen.cli.command_table import Command
from graphgen.cli.compiled_file import chosen_backend, file_for, note_all_compiled
from graphgen.cli.console import emit, note
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import open_module_file, read_module
from graphgen.cli.open_sizes import open_names, with_sizes
from graphgen.cli.shared_options import AsJson, Dims, ScriptOption, parse_sizes
from graphgen.cli.workload_options import rounding_backend
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.json_value import Json
from graphgen.lowering.backends.backend_names import NUMPY

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.exec.backend import Backend
    from graphgen.lowering.backends.program_files import ReadFile
    from graphgen.passes.equiv.equiv import Equivalence
    from graphgen.passes.equiv.find_divergence import Divergence
    from graphgen.passes.equiv.paired_run import CompareOptions
    from graphgen.passes.validate.drawn_equiv import DrawnEquivalence
    from graphgen.passes.workload.short_script import Script

COMMAND: Final = Command("debug", "Compare two modules by numbers.", error_status=2)


class ComparedModule:
    """A module to compare.

    Args:
        name: of a file, or of a folder of lowered programs.
        on: the name of the backend that runs it.

    Attributes:
        name: as given.
        beside: the file of the module that the programs were lowered from, if there is one.
        module: what is compared.
        origin: the file, where a backend compiles files.
    """

    def __init__(self, name: str, on: str = NUMPY) -> None:
        from graphgen.lowering.lowered_module import is_lowered, module_beside, open_lowered
        from graphgen.lowering.manual_sharding import note_result_shardings
        from graphgen.lowering.runnable import runnable

        self.name = name
        self.is_program = name != STANDARD and is_lowered(name)
        self.beside = module_beside(name) if self.is_program else None
        if self.beside is not None:
            note(f"interface and weight preparation of {name} from {self.beside}")
        self.origin: ReadFile | None = None
        if self.beside is None:
            source, read, _ = open_module_file(name)
            self.origin = file_for(on, source, read)
            note_result_shardings(read)
            read = runnable(read)
        else:
            read = open_lowered(name)
        self.module = read
        self._changed = False

    def bind(self, dims: Mapping[str, int], other: Module, arrays: Mapping[str, Array]) -> None:
        """Bind the sizes that the program leaves open.

        Args:
            dims: by symbol; those of the other module are left out.
            other: the other module, of whose arguments the sizes hold where nothing else says some.
            arrays: inputs by name.
        """
        given = {name: size for name, size in dims.items() if name in open_names(self.module)}
        arrays = {**_of_the_sizes(self.module, other), **arrays}
        text = ",".join(f"{name}={size}" for name, size in given.items())
        bound = with_sizes(self.module, None, text, arrays, default=True)
        self._changed |= bound is not self.module
        self.module = bound

    def backend(self, on: str) -> Backend | None:
        """A backend that compiles this file as it stands, if it takes it; ``None`` for NumPy."""
        from graphgen.lowering.backends.program_files import ProgramFiles

        files = ProgramFiles()
        if self.origin is not None:
            for function in self.module.programs():
                files.add(self.origin, self.module, function, changed=self._changed)
        return rounding_backend(on, files)

    def as_lowered(self) -> Module:
        """The module beside the programs, with its own programs."""
        return read_module(str(self.beside))


@contextmanager
def missing_module_named(*sides: ComparedModule) -> Generator[None]:
    """Add to an error of other interfaces that a lowered program has no module beside it."""
    from graphgen.lowering.lowered_module import no_module

    try:
        yield
    except GraphgenError as error:
        alone = [side.name for side in sides if side.is_program and side.beside is None]
        foreign = all(side.is_program for side in sides)
        if error.code != "GG0205" or foreign or not alone:
            raise
        missing = no_module(alone[0])
        text = "\n".join(part for part in (error.note, missing.what) if part)
        other = f"; otherwise: {error.help}" if error.help else ""
        help_ = f"if graphgen lowered it, {missing.help}{other}"
        raise GraphgenError(error.code, error.what, note=text, help=help_) from error


def _of_the_sizes(module: Module, other: Module) -> dict[str, Array]:
    """For each argument of a program an array of the sizes of its counterpart, if these are known.

    They are paired in order where both have the same number of them, of the same types.
    """
    import numpy as np

    if len(module.programs()) != 1 or len(other.programs()) != 1:
        return {}
    mine, theirs = module.programs()[0].args, other.programs()[0].args
    pairs = list(zip(mine, theirs, strict=False))
    alike = all(a.dtype is b.dtype and a.type.rank == b.type.rank for a, b in pairs)
    if len(mine) != len(theirs) or not alike:
        return {}
    # Of views, so that large arguments take no memory; a scalar's value is not known.
    return {
        a.name or "": np.broadcast_to(np.zeros(()), b.type.dims)
        for a, b in pairs
        if b.type.static and b.type.rank
    }


# Of numbers to which constants of f32 lead.
_ROUNDED = 1e-6

Left = Annotated[
    str, typer.Argument(metavar="A", help="A module of any form, or a folder that lower wrote.")
]
Right = Annotated[str, typer.Argument(metavar="B", help="Another; - is standard input.")]
Relations = Annotated[
    list[str] | None,
    typer.Option(
        "--relation", metavar="NAME=RELATION", help="Relation of B's value to A's; see below."
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option("--inputs", metavar="FILE.npz", help="Arrays by name; the rest is random."),
]
Program = Annotated[
    str | None,
    typer.Option("--program", metavar="NAME", help="The program, if the module has several."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of random weights, inputs.")]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        min=0.0,
        help="Largest relative difference; 1e-9, 1e-6 if XLA optimized one, on the cpu by type.",
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="BACKEND",
        callback=checked_name,
        help="NumPy in float64; or cpu (XLA), xla, iree, pjrt:PLATFORM in the programs' own types; "
        "auto takes NumPy, and XLA for what NumPy has not.",
    ),
]


def equiv(
    left: Left,
    right: Right,
    relation: Relations = None,
    inputs: Inputs = None,
    program: Program = None,
    seed: Seed = 0,
    script: ScriptOption = "auto",
    tolerance: Tolerance = None,
    on: On = AUTO,
    dims: Dims = "",
    as_json: AsJson = False,
) -> None:
    """Compare two modules by numbers, whatever levels, ranks and buckets they have.

    Modules with the same interface are run over one script and compared in logical types. Of any
    others one program each is compared, on the same inputs: values of one name go together, the
    rest in order among those of one type. Where they differ, the first value of B is named that
    disagrees with its counterpart in A while what it reads agrees. Where they agree, they are
    compared on boundary values of inputs, weights and states, too, as rewrites are by 'validate'.
    A module that XLA has split over partitions takes whole arrays here, cut by its shardings.
    Open sizes are the other's, or of --dims. Exit status: 0 equal, 1 different, 2 an error.

    Of a program that 'graphgen lower' wrote, interface and weight preparation are read from the
    module beside it, decode.pb.gg or lowered.gg; a folder that it wrote stands for all programs.
    Where it differs, the file is compared with that module too: either the file is at fault, and
    the op is named, or the passes before it are.

    \b
    Relations, from A's value to B's; A|B is one after the other:
      NAME=take{dim=1,map=[0,0,2,-1]}     along dim 1 element i is A's element map[i]; -1 is zero
      NAME=shard{-,tp}                    each rank has its part; an axis of B's mesh, or -, a dim
      NAME=partial{tp}                    A's value is the sum over the axis
      NAME=quantized{scale=0.5}           A's value is about B's times scale; also scale=[..],
                                          FILE.npz:NAME or a value of B, with dims=[0]
      NAME=dont_care{mask=[0,0,1]}        equal where the mask is 0; also FILE.npz:NAME
    @ is the only axis of the mesh.

    \b
    Examples:
      graphgen build smollm2 --mini -o a.gg && graphgen build smollm2 --mini --tp 2 -o b.gg
      graphgen equiv jitted.mlir mine.mlir --inputs case.npz --json
      graphgen equiv whole.mlir split.mlir --relation 'w=shard{@,-}' --relation 'y=partial{@}'
      graphgen lower a.gg --target trn2 --to hlo -o programs/ && graphgen equiv a.gg programs/
    """
    from graphgen.passes.validate.drawn_equiv import equivalent_throughout

    plain = _terms(relation or [], inputs, program, seed, tolerance, script)
    first, second = _compared(left, right, on, dims, plain)
    terms = _on_backends(plain, first, second, chosen_backend(on, first.module, second.module))
    with missing_module_named(first, second):
        whole = equivalent_throughout(first.module, second.module, terms)
    compiled = note_all_compiled({left: terms.evaluator, right: terms.second})
    found = whole.found
    inner = {} if found.equal else _emissions((first, second), terms)
    if found.empty:
        note(f"nothing to compare in {', '.join(found.empty)}: no finite element; try --inputs")
    emit(as_json, lambda: _facts(whole, inner, compiled), lambda: _text(whole, left, right, inner))
    if not found.equal:
        raise typer.Exit(1)


def _compared(
    left: str, right: str, on: str, dims: str, terms: CompareOptions
) -> tuple[ComparedModule, ComparedModule]:
    """Both modules; one that XLA has split takes whole arrays, as the one before it does."""
    from graphgen.lowering.whole_program import is_split, of_whole_arrays

    first, second = ComparedModule(left, on), ComparedModule(right, on)
    _bind_sizes(first, second, parse_sizes(dims), terms.inputs)
    if terms.relations or is_split(first.module) == is_split(second.module):
        return first, second
    sides = (first, second) if is_split(first.module) else (second, first)
    made = of_whole_arrays(sides[0].module, sides[1].module)
    if made is not None:
        sides[0].module = made.module
        note(f"{sides[0].name} is split over partitions: whole arrays are cut by its shardings")
        for text in made.assumed:
            note(f"no file states how it is split, its sizes do: {text}")
    return first, second


def _bind_sizes(
    first: ComparedModule,
    second: ComparedModule,
    dims: Mapping[str, int],
    arrays: Mapping[str, Array],
) -> None:
    """Bind open sizes of both modules, those of the first one first (GG0705 for an unknown one)."""
    names = [*open_names(first.module), *open_names(second.module)]
    unknown = dims.keys() - set(names)
    if unknown:
        what = f"--dims: no module leaves a size '{min(unknown)}' open"
        raise GraphgenError("GG0705", what, help=f"they have {', '.join(names) or 'none'}")
    first.bind(dims, second.module, arrays)
    second.bind(dims, first.module, arrays)


def _on_backends(
    terms: CompareOptions, first: ComparedModule, second: ComparedModule, on: str
) -> CompareOptions:
    """The options with a backend for each module, and the tolerance that they need."""
    own = replace(terms, evaluator=first.backend(on), second=second.backend(on))
    return _as_optimized(own, first.module, second.module)


def _emissions(
    sides: Sequence[ComparedModule], terms: CompareOptions
) -> dict[ComparedModule, Equivalence]:
    """The comparison of each lowered file with the module beside it."""
    from graphgen.passes.equiv.equiv import equivalent

    lowered = [side for side in sides if side.beside is not None]
    return {side: equivalent(side.as_lowered(), side.module, terms) for side in lowered}


def _facts(
    found: DrawnEquivalence,
    inner: Mapping[ComparedModule, Equivalence],
    compiled: Mapping[str, Json],
) -> dict[str, Json]:
    from graphgen.passes.inspect.result_json import equivalence_json
    from graphgen.passes.workload.coverage_report import coverage_json

    own: dict[str, Json] = {side.name: equivalence_json(each) for side, each in inner.items()}
    drawn: dict[str, Json] = {
        "values": found.values or None,
        "agreed": [*found.agreed],
        "undecided": dict(found.undecided),
        "coverage": coverage_json(found.coverage) if found.coverage is not None else None,
    }
    facts = equivalence_json(found.found)
    return {**facts, "emission": own, **drawn, "compiled": dict(compiled)}


def _as_optimized(terms: CompareOptions, first: Module, second: Module) -> CompareOptions:
    """The options for two modules of which XLA has optimized one.

    It multiplies by reciprocals, for one, and rounds such constants to the program's types. It
    writes out functions of complex numbers, which then have other infinities and NaN. It sorts bf16
    by the bits, which numbers of float64 do not have.
    """
    from graphgen.lowering.hlo.module_annotations import SCHEDULED

    optimized = SCHEDULED in first.meta, SCHEDULED in second.meta
    if terms.evaluator is not None or optimized[0] == optimized[1]:
        return terms
    if _has_complex(first) or _has_complex(second):
        note(
            "one is optimized, with functions of complex numbers written out: "
            "compared on finite numbers"
        )
        terms = replace(terms, finite=True)
    narrow = _read_as_bits(first) ^ _read_as_bits(second)
    if narrow:
        note(f"one reads the bits of {', '.join(sorted(narrow))}: compared in their own types")
        return _in_own_types(terms, first, second)
    if terms.tolerance is not None:
        return terms
    note(f"one is optimized, with rounded constants: compared within {_ROUNDED:.0e}")
    return replace(terms, tolerance=_ROUNDED)


def _in_own_types(terms: CompareOptions, first: Module, second: Module) -> CompareOptions:
    from graphgen.exec.backend import NumpyBackend
    from graphgen.lowering.cpu.backend import compiled_noise

    noise = max(compiled_noise(first), compiled_noise(second))
    tolerance = noise if terms.tolerance is None else terms.tolerance
    return replace(terms, evaluator=NumpyBackend(), tolerance=tolerance)


def _has_complex(module: Module) -> bool:
    ops = [op for function in module.functions.values() for op in function.block]
    return any(result.dtype.is_complex for op in ops for result in op.results)


def _read_as_bits(module: Module) -> set[str]:
    """Names of the types of floats below 32 bits whose bits the program reads."""
    ops = [op for function in module.functions.values() for op in function.block]
    return {
        op.operands[0].dtype.name
        for op in ops
        if op.name == "bitcast_convert"
        and op.operands[0].dtype.is_float
        and op.operands[0].dtype.bits < 32
        and op.result.dtype.is_integer
    }


def _terms(
    relations: list[str],
    inputs: str | None,
    program: str | None,
    seed: int,
    tolerance: float | None,
    script: Script,
) -> CompareOptions:
    from graphgen.exec.inputs import read_arrays
    from graphgen.passes.equiv.paired_run import CompareOptions
    from graphgen.passes.equiv.relation_text import parse_relation

    parsed = dict(parse_relation(text, _array) for text in relations)
    arrays = read_arrays(inputs) if inputs is not None else {}
    return CompareOptions(seed, tolerance, parsed, arrays, program, script=script)


def _array(file: str, name: str) -> Array:
    from graphgen.exec.inputs import read_arrays

    arrays = read_arrays(file)
    if name not in arrays:
        known = ", ".join(arrays) or "nothing"
        raise GraphgenError("GG0705", f"'{file}' has no array '{name}'", help=f"it has {known}")
    return arrays[name]


def _text(
    found: DrawnEquivalence, left: str, right: str, inner: Mapping[ComparedModule, Equivalence]
) -> str:
    emissions = "".join(_emission(each, side) for side, each in inner.items())
    return _comparison(found.found, left, right) + emissions + _reached(found)


def _reached(found: DrawnEquivalence) -> str:
    """The values on which the modules differ or agree, and what the calls exercised."""
    from graphgen.passes.workload.coverage_report import summary

    if found.values:
        return f"on drawn values ({found.values}); over the calls of the workload they agree\n"
    if not found.found.equal or found.coverage is None:
        return ""
    tried = len(found.agreed) + len(found.undecided)
    lines = [f"drawn values: {len(found.agreed)} of {tried} agree\n"] if tried else []
    lines += [f"  {name}: undecided, {why}\n" for name, why in found.undecided.items()]
    return "".join([*lines, summary([("", found.coverage)])])


def _comparison(found: Equivalence, left: str, right: str) -> str:
    worst = found.difference
    if found.equal:
        return f"equal: worst relative difference {worst.relative:.1e}\n"
    head = (
        f"different: {worst.name} of call {worst.call}, relative {worst.relative:.1e}, "
        f"absolute {worst.max_abs:.1e}\n"
    )
    why = worst.beyond(found.tolerance)
    head += f"  {why}\n" if why else ""
    if found.first is None:
        makers = f"  {left}: {found.left!r}\n  {right}: {found.right!r}\n"
        return f"{head}{makers}op by op they agree, as far as ops have counterparts\n"
    return head + _first(found.first, left, right)


def _emission(found: Equivalence, side: ComparedModule) -> str:
    """Text on whether a file computes what its program did when it was lowered."""
    if found.equal:
        return f"{side.name} is the program of {side.beside}: the passes before it differ\n"
    head = f"{side.name} is not the program of {side.beside}"
    return head + (
        "\n" if found.first is None else f"; {_first(found.first, str(side.beside), side.name)}"
    )


def _first(first: Divergence, left: str, right: str) -> str:
    from graphgen.eval.element_kinds import element_text

    shape = ",".join(map(str, first.shape))
    index = ",".join(map(str, first.index))
    width = max(len(left), len(right))
    lines = [f"first difference, at [{index}] of [{shape}]:"]
    for name, side in ((left, first.left), (right, first.right)):
        lines.append(f"  {name:<{width}}  {element_text(side.number, 9)}")
        lines.append(f"  {'':<{width}}    {side.text}")
        if side.loc.line:
            lines.append(f"  {'':<{width}}    {side.loc!r}")
    for operand, agrees, reads in first.crossed:
        lines.append(f"B reads {operand}, which is A's {agrees}; A reads {reads} there")
    if first.between:
        many = f"{first.between} value{'s' if first.between > 1 else ''}"
        lines.append(f"B's reads {many} without a counterpart, made of what agrees")
    elif first.joined:
        lines.append("put together over the ranks it agrees")
    elif not first.crossed:
        lines.append("its operands agree")
    return "\n".join(lines) + "\n"
