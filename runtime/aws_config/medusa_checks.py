"""The attributes of Medusa: heads of the model, and the tree of their guesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.speculation.medusa_tree import MedusaTree, medusa_tree


def medusa_heads(config: NeuronConfig) -> int:
    """The number of heads of Medusa that the attributes request; 0 without ``is_medusa``."""
    return cast(int, config.value("num_medusa_heads")) if config.value("is_medusa") else 0


def tree_of(config: NeuronConfig) -> MedusaTree:
    """The tree of ``medusa_tree``.

    Raises:
        GraphgenError: GG0903 for a tree that is none, that needs more heads than there are, or that
            has more nodes with the last token of a row than ``medusa_speculation_length``.
    """
    given = config.value("medusa_tree")
    paths = [*cast("Sequence[object]", given)] if isinstance(given, tuple) else given
    try:
        tree = medusa_tree(paths, medusa_heads(config))
    except GraphgenError as error:
        raise GraphgenError("GG0903", error.what, help=error.help) from None
    length = cast(int, config.value("medusa_speculation_length"))
    if tree.nodes > length:
        raise GraphgenError(
            "GG0903",
            f"medusa_tree has {len(tree.paths)} paths, {tree.nodes} nodes with the last token of a "
            f"row, and medusa_speculation_length is {length}",
            help=f"set medusa_speculation_length={tree.nodes}",
        )
    return tree
