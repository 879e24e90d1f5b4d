"""The quantized modules of a configuration whose weights are not there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, Value
from graphgen.name_pattern import name_pattern
from graphgen.passes.quantization.quantizable_products import names

# Keys of a quantization_config: patterns of modules, and exceptions.
MODULES: Final = "quantized_modules"
SKIPPED: Final = "unquantized_modules"
# Keys of exceptions: of transformers, compressed-tensors, vLLM, modelopt and bitsandbytes.
_EXCEPTIONS: Final = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
)
_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)")
_PRODUCTS: Final = frozenset({"dot_general", "experts"})
_MOVES: Final = frozenset({"transpose", "reshape", "slice", "convert", "broadcast_in_dim"})


def unlisted_modules(
    module: Module, config: Mapping[str, object], among: Sequence[str] = ()
) -> dict[str, list[str]]:
    """The modules whose weight only products read, without the exceptions that are stated.

    As transformers converts a model: all linear layers but that of the logits, which GPTQ's
    ``lm_head`` adds. An exception is a run of the dotted name, with wildcards as in a shell;
    ``re:`` begins a regular expression.

    Args:
        module: a logical module, built from ``config``.
        config: a ``config.json`` with a ``quantization_config``.
        among: patterns of those that the scheme can have; all if it is empty.

    Returns:
        As :func:`stated_modules`, of names ``X`` of weights ``X.weight``.

    Raises:
        GraphgenError: GG0502 for a pattern that is not read.
    """
    stated = config.get("quantization_config", config.get("compression_config"))
    settings = cast("dict[str, object]", stated if isinstance(stated, dict) else {})
    exceptions = [name for key in _EXCEPTIONS for name in _listed(settings.get(key))]
    linear = dict(_linear(module))
    found = {
        base
        for base, dims in linear.items()
        if settings.get("lm_head") or not _gives_logits(base, dims, config)
        if not among or any(fnmatchcase(base, pattern) for pattern in among)
        if not any(_holds(name, base) for name in exceptions)
    }
    return stated_modules(found, linear)


def stated_modules(modules: Set[str], names: Iterable[str]) -> dict[str, list[str]]:
    """Patterns of these modules, and the exceptions from them, as keys of a configuration.

    Args:
        modules: those whose weight is quantized.
        names: all modules of the checkpoint.
    """
    patterns = sorted({_NUMBER.sub("*", name) for name in modules})
    known = set(patterns)
    skipped = [x for x in names if x not in modules and _NUMBER.sub("*", x) in known]
    return {MODULES: patterns, SKIPPED: skipped}


def _listed(stated: object) -> Iterator[str]:
    return map(str, cast("list[object]", stated if isinstance(stated, list) else []))


def _linear(module: Module) -> Iterator[tuple[str, Sequence[object]]]:
    """Name and shape of each matrix, or stack of them, that only products read."""
    for row in module.entries(Role.WEIGHT):
        base, _, last = row.name.rpartition(".")
        if last != "weight" or row.logical.rank not in (2, 3):
            continue
        args = [function.arg(row.name) for function in module.programs()]
        readers = {name for arg in args if arg is not None for name in _readers([arg])}
        if readers and readers <= _PRODUCTS:
            yield base, row.logical.dims


def _gives_logits(base: str, dims: Sequence[object], config: Mapping[str, object]) -> bool:
    """True for the module outside of the layers whose outputs, or inputs, are the vocabulary."""
    return _NUMBER.search(base) is None and config.get("vocab_size") in dims


def _readers(values: Iterable[Value]) -> Iterator[str]:
    """The ops that read these values, moves of elements aside."""
    for value in values:
        for user in value.users:
            if user.name in _MOVES:
                yield from _readers(user.results)
            else:
                yield user.name


def _holds(exception: str, base: str) -> bool:
    """True if an exception is a module, a part of its dotted name, or a pattern of either."""
    if not exception.startswith("re:"):
        return names(exception, base)
    try:
        return name_pattern(exception.removeprefix("re:")).match(base) is not None
    except ValueError as error:
        raise GraphgenError(
            "GG0502", f"quantization_config: the pattern '{exception}' is not read: {error}"
        ) from error
