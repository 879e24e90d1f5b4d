"""One option of a compilation: a field with its default, its help and its choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def knob(
    default: T,
    help: str,
    *,
    choices: Sequence[str] | Callable[[], Sequence[str]] = (),
    flag: str | None = "",
    minimum: int | None = None,
    option: str = "",
    pipeline: bool = True,
) -> T:
    """Declare a field of :class:`~graphgen.config.compile_config.CompileConfig`.

    Args:
        default: its value where it is not given.
        help: one sentence for the pages of pipelines.
        choices: the words it may be, or a function that returns them; empty for any value.
        flag: help of the command-line flag; empty for ``help``, ``None`` for no flag.
        minimum: the least number that the flag accepts.
        option: the flag's name, if it is not the field's. Such a flag requests nothing by default.
        pipeline: whether ``default{...}`` has the option.
    """
    metadata = {
        "help": help,
        "among": choices,
        "flag": help if flag == "" else flag,
        "minimum": minimum,
        "option": option,
        "pipeline": pipeline,
    }
    return field(default=default, metadata=metadata)


def flag_fields(cls: type[DataclassInstance]) -> Mapping[str, Field[object]]:
    """The fields of a class of options that commands have as flags, by name."""
    return {item.name: item for item in fields(cls) if item.metadata.get("flag") is not None}
