"""Several flags of a command in place of one parameter of its function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = Callable[..., None]
Collect = Callable[[Mapping[str, object]], object]
T = TypeVar("T")


def flag(name: str, annotation: object, default: object) -> Parameter:
    """One flag: a parameter that typer reads."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options(*flags: Parameter) -> Mapping[str, Parameter]:
    """The flags by name."""
    return {item.name: item for item in flags}


def option(kind: object, *names: str, default: object = None, **settings: object) -> Parameter:
    """One flag, whose parameter has the first of its names.

    Args:
        kind: the type of its value.
        names: ``--max-len`` is the parameter ``max_len``.
        default: of the parameter.
        settings: of ``typer.Option``: ``help``, ``min``, ``metavar``, ...
    """
    described = typer.Option(*names, **settings)  # pyright: ignore[reportArgumentType]
    name = names[0].removeprefix("--").replace("-", "_")
    return flag(name, Annotated[kind, described], default)  # pyright: ignore[reportInvalidTypeForm]


def flag_field(default: T, help: str, *names: str, **settings: object) -> T:
    """Declare a field of a dataclass of flags, for :func:`takes_fields`.

    Args:
        default: its value where the flag is not given.
        help: of the flag.
        names: of the flag; by default the field's.
        settings: of ``typer.Option``: ``min``, ``metavar``, ...
    """
    return field(default=default, metadata={"names": names, "option": {"help": help, **settings}})


def takes_fields(parameter: str, kind: type[DataclassInstance]) -> Callable[[Command], Command]:
    """Give a command a flag for each field of a dataclass, in place of one parameter.

    Args:
        parameter: of the command's function; gets an instance of ``kind``.
        kind: all of its fields are of :func:`flag_field`.
    """
    hints = get_type_hints(kind)
    flags: dict[str, Parameter] = {}
    for item in fields(kind):
        names = item.metadata["names"] or [f"--{item.name.replace('_', '-')}"]
        described = typer.Option(*names, **item.metadata["option"])
        annotation = Annotated[hints[item.name], described]  # pyright: ignore[reportInvalidTypeForm]
        flags[item.name] = flag(item.name, annotation, item.default)
    return takes_flags(parameter, flags, lambda given: kind(**given))


def takes_flags(
    parameter: str, flags: Mapping[str, Parameter], collect: Collect
) -> Callable[[Command], Command]:
    """Give a command ``flags`` in place of the parameter ``parameter``.

    Args:
        parameter: of the command's function; gets the result of ``collect``.
        flags: by name.
        collect: makes the parameter of the values by name.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapper(**values: object) -> None:
            given = {name: values.pop(name) for name in flags}
            command(**values, **{parameter: collect(given)})

        own = signature(command, eval_str=True).parameters
        parameters = [
            made
            for item in own.values()
            for made in (flags.values() if item.name == parameter else (_keyword(item),))
        ]
        vars(wrapper)["__signature__"] = signature(command).replace(parameters=parameters)
        wrapper.__annotations__ = {item.name: item.annotation for item in parameters}
        return wrapper

    return decorate


def _keyword(item: Parameter) -> Parameter:
    """The parameter, by name alone: flags with a default may stand before it."""
    return item.replace(kind=Parameter.KEYWORD_ONLY)
