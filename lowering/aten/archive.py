"""Exported programs in files: the archives that ``torch.export.save`` writes (``.pt2``)."""

from __future__ import annotations

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
from graphgen.foreign_calls import ForeignCalls
from graphgen.json_value import parse_json
from graphgen.limits import EXPORT_BYTES

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from graphgen.lowering.aten.program import Exported

_FIRST = re.compile(rb"[^/]+/(data/(weights|constants|sample_inputs)/.+|models/.+|archive_\w+)")
# Members that are read without running anything: raw elements, and JSON.
_PLAIN = re.compile(
    r"(data/(weights/weight_\d+|constants/tensor_\d+|(weights|constants)/\w+_config\.json"
    r"|sample_inputs/\w+\.pt)|models/\w+\.json|archive_\w+|byteorder|version|\.data/\w+|extra/.+)"
)
# Programs of whole models have an object for each argument of each op.
_MOST_OBJECTS = 1 << 24
# torch does not compress.
_MOST_RATIO = 16
# torch passes the sizes in a file to SymPy, which evaluates them.
_TRANSFORMERS = re.compile(rb'"(transformers(?:\.\w+)+)\.\w+\\?"')
_EXPRESSION = re.compile(r"[A-Za-z0-9_ ,+\-*/()<>=.]*")


def looks_like_archive(head: bytes) -> bool:
    """Test the first bytes of a file: an archive of exported programs."""
    length = int.from_bytes(head[26:28], "little")
    return head.startswith(b"PK\3\4") and bool(_FIRST.fullmatch(head[30 : 30 + length]))


def read_archive(data: bytes, name: str) -> Exported:
    """Read the program in an archive without running anything in it.

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

    logged = _LoggedReason()
    log = logging.getLogger("torch.export")
    quiet, log.propagate = log.propagate, False
    log.addHandler(logged)

    def refused(reason: str) -> GraphgenError:
        return GraphgenError(
            "GG0201",
            f"torch {torch.__version__} cannot read this program: {logged.reason or reason}",
            where=name,
            help="save it with the torch that reads it, or let FILE.py:function give it",
        )

    try:
        # torch raises any kind of error for a damaged file, or one of another version.
        with ForeignCalls(refused):
            return torch.export.load(BytesIO(data))
    finally:
        log.removeHandler(logged)
        log.propagate = quiet


class _LoggedReason(logging.Handler):
    """Handler that keeps the reason torch logs before it raises another error."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the logged exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.reason = str(record.exc_info[1])


def _know_outputs(text: bytes) -> None:
    """Import the output classes of transformers' models, which torch has to construct."""
    for module in sorted(set(_TRANSFORMERS.findall(text))):
        with suppress(ImportError):
            import_module(module.decode())


def _check_harmless(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse members that torch would unpickle or evaluate, and those that unpack to more."""
    members = archive.infolist()
    packed = sum([member.compress_size for member in members])
    unpacked = sum([member.file_size for member in members])
    if unpacked > _MOST_RATIO * packed + (1 << 20):
        raise _unsafe(name, f"it has {packed} bytes, which unpack to {unpacked}")
    for member in archive.namelist():
        inner = member.partition("/")[2]
        if not _PLAIN.fullmatch(inner):
            raise _unsafe(name, f"'{member}' is not plain data of an exported program")
        if inner.startswith("data/sample_inputs/"):
            _check_pickle(archive.read(member), name, member)
        elif inner.endswith(".json"):
            text = archive.read(member)
            try:
                content = parse_json(text, most=EXPORT_BYTES, objects=_MOST_OBJECTS)
            except ValueError as error:
                raise _unsafe(name, f"'{member}' is not plain JSON: {error}") from error
            _check_json(content, name, member)
            _know_outputs(text)


def _check_pickle(data: bytes, name: str, member: str) -> None:
    """Refuse a pickle of more than tensors: torch would load it without ``weights_only``."""
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
    except (UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, KeyError) as error:
        raise _unsafe(name, f"'{member}' holds more than tensors") from error


def _check_json(tree: object, name: str, member: str) -> None:
    for key, value in _pairs(tree):
        if key == "use_pickle" and value:
            raise _unsafe(name, f"'{member}' names a tensor that is pickled")
        if key == "expr_str" and not _is_expression(value):
            raise _unsafe(name, f"'{member}' has a size that is not a formula: {str(value)[:60]}")


def _is_expression(text: object) -> bool:
    plain = isinstance(text, str) and "__" not in text and _EXPRESSION.fullmatch(text)
    # A point is one of a number, and does not lead to an attribute.
    return bool(plain) and not re.search(r"\.\s*[A-Za-z_]", str(text))


def _pairs(tree: object) -> Iterator[tuple[str, object]]:
    """List the keys of a JSON tree with their values."""
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
