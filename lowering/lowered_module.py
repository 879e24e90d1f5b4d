"""The module beside lowered programs: their interface and the preparation of their weights.

A file of HLO or StableHLO has neither. ``graphgen lower`` therefore writes the lowered module as IR
text: ``decode.pb.gg`` beside ``decode.pb``, ``lowered.gg`` in a folder of several programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from graphgen.analysis import called
from graphgen.atomic_write import write_whole
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Function, Module, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.lowering.open import open_module
from graphgen.lowering.program_file import FORMS
from graphgen.ops import verify
from graphgen.ops.control import renamed
from graphgen.read_file import is_file, is_folder, is_there, read_text_file
from graphgen.text import parse, print_module

MODULE = "lowered.gg"
TARGET, PASSES = "lowered.target", "lowered.passes"
_ENDINGS = tuple(ending for ending in FORMS if ending != ".gg")


def write_lowered(
    module: Module, programs: Sequence[str | Path], target: str, passes: Sequence[str]
) -> Path | None:
    """Write the module of lowered programs beside them.

    Args:
        module: what the programs were emitted from.
        programs: their files; several are in one folder.
        target: the device it was lowered for.
        passes: the passes that lowered it.

    Returns:
        The file; ``None`` beside a device or a pipe.
    """
    first = Path(programs[0])
    if is_there(first) and not is_file(first):
        return None
    home = first.parent / MODULE if len(programs) > 1 else first.with_name(f"{first.name}.gg")
    meta = {TARGET: target}
    if passes:
        meta[PASSES] = ",".join(passes)
    write_whole(home, print_module(with_meta(module, meta)).encode())
    return home


def with_meta(module: Module, meta: Mapping[str, str]) -> Module:
    """A module of the same functions that states more about itself."""
    functions, interface = module.functions, module.interface
    stated = {**module.meta, **meta}
    return Module(module.name, module.level, module.mesh, functions, interface, stated)


def is_lowered(path: str | Path) -> bool:
    """True for a file named as a lowered program, and for a folder that ``lower`` has written."""
    file = Path(path)
    return is_file(file / MODULE) if is_folder(file) else file.suffix in _ENDINGS


def module_beside(path: str | Path) -> Path | None:
    """The file of the lowered module of a program, or of a folder; the newest if there are two."""
    file = Path(path)
    if is_folder(file):
        near = [file / MODULE]
    else:
        near = [file.with_name(f"{file.name}.gg"), file.with_name(MODULE)]
    found = [each for each in near if is_file(each)]
    return max(found, key=lambda each: each.stat().st_mtime, default=None)


def open_lowered(path: str | Path) -> Module:
    """Read lowered programs into the module beside them.

    Args:
        path: the file of a program, or a folder with one for each program of its module.

    Returns:
        The lowered module. Its programs are what the files hold, with the names of its interface;
        those without a file are as they were lowered.

    Raises:
        GraphgenError: GG0705 ``path`` has none beside it, or the folder has no program; GG0205
            the file has other parameters or results than its program in the module.
    """
    file, home = Path(path), module_beside(path)
    if home is None:
        raise no_module(path)
    module = parse(read_text_file(home), str(home))
    for name, program in _programs(module, file, home).items():
        _replace(module, module.function(name), program)
    try:
        verify(module)
    except GraphgenError as error:
        error.where = f"{path}: {error.where}" if error.where else str(path)
        raise
    return module


def no_module(path: str | Path) -> GraphgenError:
    """The error of a program without its module (GG0705)."""
    file = Path(path)
    if is_folder(file):
        return GraphgenError(
            "GG0705",
            f"there is no {MODULE} in '{path}'",
            help=f"graphgen lower MODULE.gg --to hlo -o {path}/ writes it",
        )
    form = {".pb": "hlo", ".hlo": "hlo-text"}.get(file.suffix, "stablehlo")
    return GraphgenError(
        "GG0705",
        f"there is no {file.name}.gg beside '{path}', and no {MODULE}: "
        "the interface and the preparation of the weights are not known",
        help=f"graphgen lower MODULE.gg --to {form} -o {path} writes both",
    )


def _programs(module: Module, path: Path, home: Path) -> dict[str, Path]:
    """The files of the module's programs, by name."""
    names = [function.name for function in module.programs()] or list(module.functions)[-1:]
    if not is_folder(path):
        if home.name != MODULE:
            return {names[0]: path}
        if path.stem in names:
            return {path.stem: path}
        what = f"'{home}' has no program '{path.stem}'"
        raise GraphgenError("GG0705", what, help=f"it has {', '.join(names)}")
    found = {
        name: file
        for name in names
        for file in sorted(path.glob("*"))
        if file.stem == name and file.suffix in _ENDINGS
    }
    if not found:
        what = f"'{path}' has no file of {', '.join(names)}"
        raise GraphgenError("GG0705", what, help="graphgen lower -o FOLDER/ writes them")
    return found


class _Renamer(Cloner):
    """Copies functions whose names are taken."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.renames = names

    def attrs(self, op: Op) -> Attrs:
        """The attributes with the new names of what the op runs."""
        return renamed(op, self.renames)


def _replace(module: Module, old: Function, path: Path) -> None:
    """Put the program of a file in the place of ``old``."""
    read = open_module(path)
    if read.ranks not in (1, module.ranks):
        what = f"it is for {read.ranks} ranks, @{old.name} for {module.ranks}"
        raise _other(path, what)
    (program,) = read.programs()
    _check_types(path, "parameter", program.args, old.args)
    _check_types(path, "result", *([v for _, v in f.outputs] for f in (program, old)))
    order = list(module.functions)
    _drop(module, old)
    names = {f.name: f"{old.name}.{f.name}" for f in called(read, program)}
    made: dict[str, Function] = {}
    for function in called(read, program):
        made[names[function.name]] = Function(names[function.name])
        _Renamer(names).function(function, made[names[function.name]])
    new = made[old.name] = Function(old.name, old.phase, dict(old.dims))
    copier = _Renamer(names)
    for theirs, ours in zip(program.args, old.args, strict=True):
        copier.argument(theirs, new, ours.name)
    for op in program.block:
        copier.op(op, new.block)
    new.outputs = [
        (name, copier.mapping[value])
        for (name, _), (_, value) in zip(old.outputs, program.outputs, strict=True)
    ]
    _insert(module, order, old.name, made)


def _drop(module: Module, old: Function) -> None:
    """Take a program out, with what only it runs."""
    own = {function.name for function in called(module, old)}
    del module.functions[old.name]
    kept = {f.name for g in module.functions.values() for f in called(module, g)}
    packs = {name for entry in module.interface.values() for name in (entry.pack, entry.unpack)}
    for name in own - kept - packs:
        del module.functions[name]


def _insert(module: Module, order: Sequence[str], at: str, made: dict[str, Function]) -> None:
    """Put functions where ``at`` stood in ``order``: before all that came after it."""
    functions = dict(module.functions)
    module.functions.clear()
    for name in order:
        if name == at:
            module.functions.update(made)
        elif name in functions:
            module.functions[name] = functions[name]


def _check_types(path: Path, what: str, found: Sequence[Value], wanted: Sequence[Value]) -> None:
    if len(found) != len(wanted):
        raise _other(path, f"it has {len(found)} {what}s, the module {len(wanted)}")
    for number, (theirs, ours) in enumerate(zip(found, wanted, strict=True)):
        if theirs.type is not ours.type:
            name = f" %{ours.name}" if ours.name else ""
            types = f"{theirs.type.text}, in the module{name} {ours.type.text}"
            raise _other(path, f"{what} {number} is {types}")


def _other(path: Path, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0205",
        f"'{path}' is not the program of the module beside it: {what}",
        help="lower it again: graphgen lower MODULE.gg -o FILE writes both",
    )
