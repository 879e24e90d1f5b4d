"""Exported programs in files: the archives that ``torch.export.save`` writes (``.pt2``)."""

from __future__ import annotations

import json
import logging
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from graphgen.lowering.aten.program import Exported

_FIRST = re.compile(rb"[^/]+/(data/(weights|constants|sample_inputs)/.+|models/.+|archive_\w+)")
# What is read without running anything: elements as they are, and JSON.
_PLAIN = re.compile(
    r"(data/(weights/weight_\d+|constants/tensor_\d+|(weights|constants)/\w+_config\.json"
    r"|sample_inputs/\w+\.pt)|models/\w+\.json|archive_\w+|byteorder|version|\.data/\w+|extra/.+)"
)
# torch gives the sizes in a file to SymPy, which evaluates what it is given.
_TRANSFORMERS = re.compile(rb'"(transformers(?:\.\w+)+)\.\w+\\?"')
_EXPRESSION = re.compile(r"[A-Za-z0-9_ ,+\-*/()<>=.]*")


def looks_like_archive(head: bytes) -> bool:
    """Whether a file that begins like this is an archive of exported programs."""
    length = int.from_bytes(head[26:28], "little")
    return head.startswith(b"PK\3\4") and bool(_FIRST.fullmatch(head[30 : 30 + length]))


def read_archive(data: bytes, name: str) -> Exported:
    """The program in an archive; nothing in it is run.

    Args:
        data: the whole file.
        name: what error messages call it.

    Raises:
        GraphgenError: GG0201 the file is damaged, GG0604 it wants to run code, GG0705 there is no
            torch to read it with, and those of
            :func:`~graphgen.lowering.aten.program.read_exported`.
    """
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            _check_harmless(archive, name)
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise GraphgenError("GG0201", f"the archive is damaged: {error}", where=name) from error
    from graphgen.lowering.aten.program import read_exported

    return read_exported(_load(data, name), Path(name).stem)


def _load(data: bytes, name: str) -> ExportedProgram:
    import torch

    told = _Told()
    log = logging.getLogger("torch.export")
    quiet, log.propagate = log.propagate, False
    log.addHandler(told)
    try:
        return torch.export.load(BytesIO(data))
    except Exception as error:
        # What torch raises for a file of another version, or a damaged one, is of any kind.
        what = told.reason or str(error)
        raise GraphgenError(
            "GG0201",
            f"torch {torch.__version__} cannot read this program: {what}",
            where=name,
            help="save it with the torch that reads it, or let FILE.py:function give it",
        ) from error
    finally:
        log.removeHandler(told)
        log.propagate = quiet


class _Told(logging.Handler):
    """Keeps the reason that torch writes down before it raises something else."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Take the error out of what is logged."""
        if record.exc_info and record.exc_info[1] is not None:
            self.reason = str(record.exc_info[1])


def _know_outputs(text: bytes) -> None:
    """Import what transformers' models return: torch has to know the classes it puts together."""
    for module in sorted(set(_TRANSFORMERS.findall(text))):
        with suppress(ImportError):
            import_module(module.decode())


def _check_harmless(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse what torch would unpickle or evaluate, before torch sees it."""
    for member in archive.namelist():
        inner = member.partition("/")[2]
        if not _PLAIN.fullmatch(inner):
            raise _unsafe(name, f"'{member}' is no plain part of an exported program")
        if inner.startswith("data/sample_inputs/"):
            _check_pickle(archive.read(member), name, member)
        elif inner.endswith(".json"):
            text = archive.read(member)
            _check_json(json.loads(text), name, member)
            _know_outputs(text)


def _check_pickle(data: bytes, name: str, member: str) -> None:
    """torch takes any pickle here that its careful reader refuses."""
    from pickle import UnpicklingError

    try:
        import torch
    except ModuleNotFoundError as error:
        raise GraphgenError(
            "GG0705",
            "reading a program of torch.export needs torch",
            where=name,
            help="pip install torch",
        ) from error
    try:
        torch.load(BytesIO(data), weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError) as error:
        raise _unsafe(name, f"'{member}' holds more than tensors") from error


def _check_json(tree: object, name: str, member: str) -> None:
    for key, value in _pairs(tree):
        if key == "use_pickle" and value:
            raise _unsafe(name, f"'{member}' names a tensor that is pickled")
        if key == "expr_str" and not _is_expression(value):
            raise _unsafe(name, f"'{member}' has a size that is no formula: {str(value)[:60]}")


def _is_expression(text: object) -> bool:
    plain = isinstance(text, str) and "__" not in text and _EXPRESSION.fullmatch(text)
    # A point is one of a number, and does not lead to an attribute.
    return bool(plain) and not re.search(r"\.\s*[A-Za-z_]", str(text))


def _pairs(tree: object) -> Iterator[tuple[str, object]]:
    """Every key of a tree of JSON, with what it has."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            mapping = cast("Mapping[str, object]", item)
            yield from mapping.items()
            waiting += mapping.values()
        elif isinstance(item, list):
            waiting += cast("Sequence[object]", item)


def _unsafe(name: str, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0604", what, where=name, help="let FILE.py:function give the program instead"
    )
