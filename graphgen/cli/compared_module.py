"""Modules that ``graphgen equiv`` compares: plain files, or lowered programs with their module."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import read_module
from graphgen.errors import GraphgenError
from graphgen.ir import Module


class ComparedModule:
    """A module to compare.

    Args:
        name: of a file, or of a folder of lowered programs.

    Attributes:
        name: as given.
        beside: the file of the module that the programs were lowered from, if there is one.
        module: what is compared.
    """

    def __init__(self, name: str) -> None:
        from graphgen.lowering.lowered_module import is_lowered, module_beside, open_lowered

        self.name = name
        self.is_program = name != STANDARD and is_lowered(name)
        self.beside = module_beside(name) if self.is_program else None
        if self.beside is not None:
            note(f"interface and weight preparation of {name} from {self.beside}")
        self.module = read_module(name) if self.beside is None else open_lowered(name)

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
