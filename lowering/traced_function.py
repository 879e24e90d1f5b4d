"""Frontend of user functions that return a program lowered by JAX or exported by torch."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.read_file import is_there

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from graphgen.eval import Array


@runtime_checkable
class _Lowered(Protocol):
    """The result of ``jax.jit(f).lower(...)``."""

    def as_text(self, *, debug_info: bool) -> str: ...


@runtime_checkable
class _JaxExported(Protocol):
    """The result of ``jax.export.export(jax.jit(f))(...)``."""

    mlir_module_serialized: bytes

    def mlir_module(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Traced:
    """The program of a user function.

    Attributes:
        module: the program, not verified.
        values: of its weights and first states by name, as far as it holds them.
    """

    module: Module
    values: Mapping[str, Array]


def is_function(name: str) -> bool:
    """Recognize ``FILE.py:function`` and ``package.module:function``."""
    place, colon, function = name.rpartition(":")
    return bool(colon) and function.isidentifier() and bool(place)


def takes(name: str, sizes: Iterable[str]) -> bool:
    """True if the function ``name`` has parameters of these names."""
    place, _, function = name.rpartition(":")
    try:
        with _neighbors(place):
            parameters = signature(getattr(_load(place), function)).parameters
    except Exception:
        return False
    return all(size in parameters for size in sizes)


def traced(name: str, sizes: Mapping[str, int] | None = None) -> Traced:
    """Load the program that ``name`` is, or that it returns when called.

    Args:
        name: ``FILE.py:function`` or ``package.module:function``. It returns
            ``jax.jit(f).lower(...)``, a ``jax.export.Exported``, a
            ``torch.export.ExportedProgram``, or a model of torch and a tuple of its arguments
            (and a dictionary of those by name), which is exported here.
        sizes: its keyword arguments; by default none.

    Raises:
        GraphgenError: GG0705 if there is no such function, it fails, or it returns something else;
            the errors of reading an exported program.
    """
    place, _, function = name.rpartition(":")
    try:
        with _neighbors(place):
            found: object = getattr(_load(place), function)
            called = callable(found) and not _is_exported(found)
            given: object = found(**(sizes or {})) if called and callable(found) else found
            program = _exported(given)
    except GraphgenError:
        raise
    except Exception as error:
        what = f"{name} fails: {type(error).__name__}: {error}"
        raise GraphgenError("GG0705", what, where=_line(error, place)) from error
    from graphgen.lowering.stablehlo.read import read_stablehlo

    if program is not None:
        from graphgen.lowering.aten.program import read_exported

        read = read_exported(program, function)
        return Traced(read.module, {**read.weights, **read.states})
    if isinstance(given, _JaxExported):
        return Traced(read_stablehlo(given.mlir_module(), name), {})
    if not isinstance(given, _Lowered):
        raise GraphgenError(
            "GG0705",
            f"{name} gives a {type(given).__name__}",
            help="let it return jax.jit(f).lower(...), jax.export.export(jax.jit(f))(...), "
            "torch.export.export(...) or (model, args)",
        )
    return Traced(read_stablehlo(given.as_text(debug_info=True), name), {})


def _exported(given: object) -> ExportedProgram | None:
    """The exported program ``given``, or the export of the model ``given``, else ``None``."""
    if _is_exported(given):
        return cast("ExportedProgram", given)
    parts = list(cast("tuple[object, ...]", given)) if isinstance(given, tuple) else []
    if len(parts) not in (2, 3) or "torch" not in sys.modules:
        return None
    from graphgen.lowering.aten.export_model import export

    return export(*parts)


def _is_exported(given: object) -> bool:
    """True for an exported program; torch is not imported for the test."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.export.ExportedProgram)


@contextmanager
def _neighbors(place: str) -> Generator[None]:
    """Let a file import those beside it, as Python does for a script.

    They are forgotten afterwards: a file of another folder has neighbors of its own.
    """
    if not place.endswith(".py"):
        yield
        return
    folder = Path(place).resolve().parent
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        new = set(sys.modules) - before
        beside = {name for name in new if _folder(sys.modules[name]) == folder}
        for name in new:
            if name.partition(".")[0] in beside:
                del sys.modules[name]


def _folder(module: ModuleType) -> Path | None:
    """The folder that holds a module's file, or its package."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(file).resolve()
    return path.parent.parent if path.name == "__init__.py" else path.parent


def _load(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return import_module(place)
    path = Path(place)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not is_there(path):
        raise FileNotFoundError(f"there is no file {place}")
    module = module_from_spec(spec)
    # Dataclasses and imports of the file look it up here.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _line(error: BaseException, place: str) -> str:
    """The last line of the user's file in the traceback."""
    trace = error.__traceback__
    found = ""
    while trace is not None:
        frame = cast("object", trace.tb_frame.f_code.co_filename)
        if str(frame).endswith(place):
            found = f"{place}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
