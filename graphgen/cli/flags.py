"""Command-line flags made of the fields of a compilation's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import TypedField, fields_of
from graphgen.config.option_groups import QUANTIZATION
from graphgen.config.rank_config import AUTO, CHOSEN_FIELDS, check_one_rank
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CommandFunction = Callable[..., None]
Collect = Callable[[Mapping[str, object]], object]


def flag(name: str, annotation: object, default: object) -> Parameter:
    """One flag: a parameter that typer reads."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options(*flags: Parameter, group: str = "") -> Mapping[str, Parameter]:
    """The flags by name.

    Args:
        flags: in order.
        group: of :mod:`graphgen.config.option_groups`, the section of help that shows them.
    """
    return {item.name: grouped(item, group) for item in flags}


def grouped(item: Parameter, group: str) -> Parameter:
    """The flag, shown in a group of help if it has none of its own; empty for the first section."""
    for part in get_args(item.annotation)[1:]:
        if isinstance(part, OptionInfo):
            part.rich_help_panel = part.rich_help_panel or group or None
    return item


def named_flag(kind: object, *names: str, default: object = None, **settings: object) -> Parameter:
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


def with_field_flags(
    parameter: str, kind: type[DataclassInstance], group: str = ""
) -> Callable[[CommandFunction], CommandFunction]:
    """Give a command a flag for each field of a dataclass, in place of one parameter.

    Args:
        parameter: of the command's function; gets an instance of ``kind``.
        kind: what its fields are declared with besides is for ``typer.Option``: ``metavar``, ...
        group: of :mod:`graphgen.config.option_groups`.
    """
    hints = get_type_hints(kind)
    made = [
        flag(name, _annotation(item, hints[name], item.doc, item.extra), item.default)
        for name, item in fields_of(kind).items()
    ]
    flags = options(*made, group=group)
    return with_flags(parameter, flags, lambda given: kind(**given))


def _annotation(
    item: TypedField[object],
    kind: object,
    help: str,
    settings: Mapping[str, object],
    names: Sequence[str] = (),
) -> object:
    """``Annotated[type, typer.Option(...)]``; the type of a few words is a :class:`Literal`.

    Args:
        item: the field.
        kind: the type of its values.
        help: of the flag.
        settings: of ``typer.Option``, beside the range.
        names: of the flag, where they are not that of the field.
    """
    choices = item.type.choices
    if choices and get_origin(kind) is not Literal:
        kind = Literal[choices] if type(None) not in get_args(kind) else Literal[choices] | None  # pyright: ignore
    ends = dict(zip(("min", "max"), item.type.bounds, strict=True))
    # A bool without a second name has no --no-NAME.
    names = names or (item.flag,)
    described = typer.Option(*names, help=help, **ends, **settings)  # pyright: ignore[reportArgumentType]
    return Annotated[kind, described]  # pyright: ignore[reportInvalidTypeForm]


def with_flags(
    parameter: str, flags: Mapping[str, Parameter], collect: Collect
) -> Callable[[CommandFunction], CommandFunction]:
    """Give a command ``flags`` in place of the parameter ``parameter``.

    Args:
        parameter: of the command's function; gets the result of ``collect``.
        flags: by name.
        collect: makes the parameter of the values by name.
    """

    def decorate(command: CommandFunction) -> CommandFunction:
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


Quantized = Annotated[bool, typer.Option("--quantized", help="Keep weights in 8 or 4 bits.")]
QuantizationType = Annotated[
    str | None,
    typer.Option(
        "--quantization-type",
        help="per_channel_symmetric (default), per_tensor_symmetric, or group (int4): what has a "
        "scale.",
    ),
]
QuantizationDtype = Annotated[
    str | None,
    typer.Option("--quantization-dtype", help="int8 (default), f8e4m3, f8e5m2 or int4."),
]
GroupSize = Annotated[
    int | None,
    typer.Option("--group-size", min=2, help="Inputs that share a scale in groups; default: 64."),
]
ModulesToNotConvert = Annotated[
    list[str] | None,
    typer.Option(
        "--modules-to-not-convert",
        help="Parts of names that keep their type, such as layers.0.mlp; default: lm_head.",
    ),
]


NO_OPTIONS: Final = CompileConfig()
_PARAMETER = "compile_options"
# The fields of quantized caches.
CACHE_FIELDS = ("kv_cache_quant", "kv_cache_dtype", "kv_cache_scale", "kv_cache_ranges")
# AWS's flags and one of ours, which together make one field.
_QUANTIZATION: Mapping[str, tuple[object, object]] = {
    "quantized": (Quantized, False),
    "quantization_type": (QuantizationType, None),
    "quantization_dtype": (QuantizationDtype, None),
    "modules_to_not_convert": (ModulesToNotConvert, None),
    "group_size": (GroupSize, None),
}


def with_compile_flags(
    *names: str,
    without: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
    config: type[CompileConfig] = CompileConfig,
    served: bool = False,
) -> Callable[[CommandFunction], CommandFunction]:
    """Give a command one flag per field, in place of its parameter ``compile_options``.

    The command gets a configuration in which the flags are given that are not at ``None``.

    Args:
        names: the fields; none for all that have a flag. ``quantization`` stands for the five
            flags of weights, checked as ``quantization_pass`` does.
        without: fields to leave out.
        defaults: values that differ from those of the fields.
        config: the class that declares the fields.
        served: flags have the names of vLLM's server too.
    """
    names = names or (*flag_fields(config), "quantization")
    flags = _flags(config, names, without, defaults or {}, served=served)
    return with_flags(_PARAMETER, flags, lambda given: config().updated(_collected(given)))


def flag_fields(cls: type[DataclassInstance]) -> Mapping[str, TypedField[object]]:
    """The fields of a class of options that commands have as flags, by name."""
    return {name: item for name, item in fields_of(cls).items() if item.flag}


def _flags(
    config: type[CompileConfig],
    names: Sequence[str],
    without: Sequence[str],
    defaults: Mapping[str, object],
    *,
    served: bool,
) -> Mapping[str, Parameter]:
    """The parameters by name, in the order of ``names``."""
    found, hints = flag_fields(config), get_type_hints(config)
    flags: dict[str, Parameter] = {}
    for name in names:
        if name in without:
            continue
        if name == "quantization":
            made = [flag(key, *value) for key, value in _QUANTIZATION.items()]
            flags |= options(*made, group=QUANTIZATION)
        else:
            item, kind = found[name], hints[name]
            requested = item.extra.get("requested") or kind is bool
            default = defaults.get(name, item.default if requested else None)
            kind = kind if default is not None else kind | None
            help = str(item.extra.get("flag", item.doc))
            names_of = (*item.served, item.flag) if served else (item.flag,)
            made = flag(name, _annotation(item, kind, help, {}, names_of), default)
            flags[name] = grouped(made, str(item.extra.get("group", "")))
    return flags


def _collected(given: Mapping[str, object]) -> Mapping[str, object]:
    """Values by field name: the flags of quantized weights as one."""
    values = {name: value for name, value in given.items() if name not in _QUANTIZATION}
    if any(given.get(name) not in (None, False) for name in _QUANTIZATION):
        from graphgen.passes.quantization.quantize_flags import quantization_pass

        values["quantization"] = quantization_pass(*[given[name] for name in _QUANTIZATION])  # pyright: ignore[reportArgumentType]
    _check_cache_options(values)
    _check_parallelism(values)
    check_one_rank(values, values.get("tp"))
    # A flag that is not given is at None or False: nothing is requested.
    return {name: value for name, value in values.items() if _is_given(value)}


def _is_given(value: object) -> bool:
    """False for what a flag is at that is not given; 0 is a value."""
    return value is not None and value is not False


def _check_cache_options(values: Mapping[str, object]) -> None:
    """Refuse options of quantized caches without --kv-cache-quant (GG0705)."""
    for name in CACHE_FIELDS[1:]:
        if values.get(name) is not None and not values.get("kv_cache_quant"):
            option = f"--{name.replace('_', '-')}"
            raise GraphgenError(
                "GG0705",
                f"{option} has no effect without --kv-cache-quant",
                help="add --kv-cache-quant",
            )


def _check_parallelism(values: Mapping[str, object]) -> None:
    """Refuse what --parallelism auto chooses itself (GG0705)."""
    if values.get("parallelism") != AUTO:
        return
    for name in CHOSEN_FIELDS:
        if _is_given(values.get(name)):
            option = f"--{name.replace('_', '-')}"
            what = f"{option} has no meaning with --parallelism auto, which chooses it"
            raise GraphgenError("GG0705", what, help="leave out one of them")
