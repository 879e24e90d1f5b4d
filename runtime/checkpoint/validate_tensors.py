"""Validate the tensors of a checkpoint against the model by name and shape, reading none."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, dtype
from graphgen.models import family_of
from graphgen.models.first_layers import stated_layers
from graphgen.numbers import MOST_COUNT, is_digits, is_whole
from graphgen.runtime.checkpoint.interfaces import Checkpoint

_SHOWN: Final = 20
_HEADS: Final = ("num_attention_heads", "num_key_value_heads")
_LAYER: Final = re.compile(r"\.([0-9]+)\.")
# Sizes of a configuration. A weight has each as one of its sizes, most beside the width.
_SIZES: Final = ("hidden_size", "intermediate_size", "vocab_size", "head_dim", *_HEADS)
_FEW: Final = ("hidden_size", "head_dim", *_HEADS)
# A few layers too many are listed by name once the graph is built.
_REPEATED: Final = 4
# The product that joins a hidden state and an embedding in a layer that predicts a token more.
_JOIN: Final = "eh_proj.weight"


def check_checkpoint(checkpoint: Checkpoint, module: Module) -> str:
    """Compare the tensors of a checkpoint with the weights of a module, before reading any.

    Returns:
        A remark on tensors that the module does not read; empty for none.

    Raises:
        GraphgenError: GG0602 listing every tensor that is missing, extra, of another shape, or of
            a type that would change its numbers.
    """
    needed = {row.name: row.logical.dims for row in module.entries(Role.WEIGHT)}
    family = family_of(checkpoint.config)
    layers = prediction_layers(checkpoint)
    beside = {name for names in layers.values() for name in names}

    def ignorable(name: str) -> bool:
        # A tied head may be stored again.
        tied = name == "lm_head.weight" and name not in needed
        return (
            tied or name in beside or any(fnmatchcase(name, pattern) for pattern in family.buffers)
        )

    check_tensors(checkpoint, needed, ignorable, {"lm_head.weight", family.embedding})
    _check_types(checkpoint, module)
    if "lm_head.weight" not in needed and "lm_head.weight" in checkpoint.tensors():
        _check_tied(checkpoint, family.embedding)
    return prediction_remark(layers)


def check_sizes(checkpoint: Checkpoint) -> None:
    """Compare the sizes of the configuration with the tensors, before a graph is built of them.

    Building takes time and memory by these numbers; comparing them takes none. Each size has to fit
    into the bits of all tensors, which is a lower bound.

    Raises:
        GraphgenError: GG0602 for a size that the tensors cannot have.
    """
    config, found = checkpoint.config, checkpoint.tensors()
    family = family_of(config)
    bits = 8 * sum(prod(info.shape) * dtype(info.dtype).bytes for info in found.values())
    key, layers = stated_layers(family, config)
    numbered = {match[1] for name in found if (match := _LAYER.search(name))}
    if layers is not None and layers > max(len(numbered), 1) * _REPEATED:
        raise _too_large(checkpoint, f"{key} is {layers}, and {len(numbered)} layers are there")
    names = {name: other for other, name in family.aliases.items()}
    keys = {name: names.get(name, name) for name in _SIZES}
    sizes = {name: config.get(other, config.get(name)) for name, other in keys.items()}
    whole = {name: size for name, size in sizes.items() if is_whole(size, MOST_COUNT, 1)}
    width = cast(int, whole.get("hidden_size", 1))
    for name, size in whole.items():
        elements = cast(int, size) * (1 if name in _FEW else width)
        if elements > bits:
            what = f"{keys[name]} is {size}, and the tensors have {bits // 8} bytes"
            raise _too_large(checkpoint, what)


def _too_large(checkpoint: Checkpoint, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0602",
        f"the checkpoint's tensors do not fit the model: {what}",
        where=str(checkpoint.path),
        help="configuration and weights are not of one model: take both from the same place",
    )


def _check_types(checkpoint: Checkpoint, module: Module) -> None:
    """Refuse integers in the place of floats, as numbers without their scales are (GG0602).

    The reverse too, and another type in the place of numbers of 8 bits, which would be rounded.
    """
    found = checkpoint.tensors()
    pairs = [
        (row.name, dtype(found[row.name].dtype), row.logical.dtype)
        for row in module.entries(Role.WEIGHT)
    ]
    wrong = [
        f"'{name}' is {stored}, the model reads {read}"
        for name, stored, read in pairs
        if stored.is_float != read.is_float or (read.bits <= 8 and stored is not read)
    ]
    if wrong:
        raise GraphgenError(
            "GG0602",
            f"the checkpoint's tensors do not fit the model: {len(wrong)} of another type",
            where=str(checkpoint.path),
            note="\n".join(_listing("type", wrong)),
            help="narrow numbers need the scales and the types that quantization_config states",
        )


def check_arrays(checkpoint: Checkpoint, module: Module) -> list[str]:
    """Compare arrays with the weights of a lowered module, by the names of its interface.

    Returns:
        The arrays that the module does not read.

    Raises:
        GraphgenError: GG0602 listing every weight that is missing or of another shape.
    """
    needed = {row.name: row.logical.dims for row in module.entries(Role.WEIGHT)}
    check_tensors(checkpoint, needed, lambda name: True)
    return [name for name in checkpoint.tensors() if name not in needed]


def _check_tied(checkpoint: Checkpoint, embedding: str) -> None:
    """Require that a stored head equals the table ``embedding`` it is tied to (GG0602)."""
    head, table = checkpoint.read("lm_head.weight"), checkpoint.read(embedding)
    if table.shape != head.shape or not np.array_equal(table, head):
        raise GraphgenError(
            "GG0602",
            f"tie_word_embeddings is true, but 'lm_head.weight' differs from '{embedding}'",
            where=str(checkpoint.path),
            help="set tie_word_embeddings to false in config.json, or remove the head",
        )


def check_tensors(
    checkpoint: Checkpoint,
    expected: Mapping[str, tuple[int, ...]],
    ignore: Callable[[str], bool],
    tied: Collection[str] = (),
) -> None:
    """Require that the checkpoint has exactly the tensors of the model, in the model's shapes.

    Args:
        checkpoint: the open checkpoint.
        expected: the shape of every tensor the model reads, by its Hugging Face name.
        ignore: true for the name of a tensor that may be in the checkpoint although the model does
            not read it, such as a stored copy of a tied ``lm_head.weight``.
        tied: the names of embedding and head.

    Raises:
        GraphgenError: one GG0602 that lists all missing, unexpected and misshapen tensors.
    """
    found = checkpoint.tensors()
    absent = [name for name in expected if name not in found]
    missing = [f"'{name}' {_shape(expected[name])}" for name in absent]
    extra = [
        f"'{name}' {_shape(info.shape)}"
        for name, info in found.items()
        if name not in expected and not ignore(name)
    ]
    misshapen = [
        f"'{name}' is {_shape(found[name].shape)}, the model wants {_shape(shape)}"
        for name, shape in expected.items()
        if name in found and found[name].shape != tuple(shape)
    ]
    kinds = [("missing", missing), ("unexpected", extra), ("wrong shape", misshapen)]
    if not any(lines for _, lines in kinds):
        return
    listed = [line for kind, lines in kinds for line in _listing(kind, lines)]
    help = "configuration and weights are not of one model: take both from the same place"
    if absent and set(absent) <= set(tied):
        help = "set tie_word_embeddings to true in config.json if head and embedding are one table"
    counts = ", ".join(f"{len(lines)} {kind}" for kind, lines in kinds if lines)
    raise GraphgenError(
        "GG0602",
        f"the checkpoint's tensors do not fit the model: {counts}",
        where=str(checkpoint.path),
        note="\n".join([*_layers(found, expected), *listed]),
        help=help,
    )


def _layers(found: Iterable[str], expected: Iterable[str]) -> list[str]:
    """One line if the numbers of layers differ, the usual cause of all other differences."""
    has, wants = (
        len({match[1] for name in names if (match := _LAYER.search(name))})
        for names in (found, expected)
    )
    return [f"the checkpoint has {has} layers, the model wants {wants}"] if has != wants else []


def _shape(shape: Sequence[int]) -> str:
    return "[" + ",".join(str(size) for size in shape) + "]"


def _listing(kind: str, lines: Sequence[str]) -> list[str]:
    shown = [f"{kind}: {line}" for line in lines[:_SHOWN]]
    if len(lines) > _SHOWN:
        shown.append(f"{kind}: and {len(lines) - _SHOWN} more")
    return shown


def prediction_layers(checkpoint: Checkpoint) -> Mapping[int, tuple[str, ...]]:
    """The tensors of layers of multi-token prediction (arXiv 2412.19437), by the layer's number.

    Checkpoints number them on after the model's own layers. Programs do not read them.
    """
    family = family_of(checkpoint.config)
    _, count = stated_layers(family, checkpoint.config)
    before = f"{family.prefix}.layers."
    found: dict[int, list[str]] = {}
    for name in checkpoint.tensors():
        number, _, _ = name.removeprefix(before).partition(".")
        if name.startswith(before) and is_digits(number) and int(number) >= (count or 0):
            found.setdefault(int(number), []).append(name)
    return {
        layer: tuple(names)
        for layer, names in sorted(found.items())
        if f"{before}{layer}.{_JOIN}" in names
    }


def prediction_remark(layers: Mapping[int, tuple[str, ...]]) -> str:
    """A remark on layers that are not read; empty for none."""
    if not layers:
        return ""
    many = len(layers) > 1
    numbers = ", ".join(map(str, layers))
    tensors = sum(map(len, layers.values()))
    return (
        f"layer{'s' if many else ''} {numbers} ({tensors} tensors) predict{'' if many else 's'} "
        "further tokens (multi-token prediction) and "
        f"{'are' if many else 'is'} not read: answers are the same without"
    )
