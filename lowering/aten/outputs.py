"""What the results of an exported program are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from graphgen.lowering.names import clean_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def output_names(program: ExportedProgram) -> list[str]:
    """A name for each result: its path in what the model's forward returns.

    ``logits`` of a dataclass or dictionary, ``0`` of a tuple as ``result.0``, one alone ``result``.
    """
    from torch.utils import _pytree as trees

    spec = program.call_spec.out_spec
    count = len(program.graph_signature.user_outputs)
    plain = ["result"] if count == 1 else [f"result.{index}" for index in range(count)]
    if spec is None or spec.num_leaves != count:
        return plain
    try:
        whole: object = trees.tree_unflatten(list(range(count)), spec)
        leaves, _ = trees.tree_flatten_with_path(whole)
    except (TypeError, ValueError, AttributeError, KeyError):
        # A class of the user's that does not take numbers in place of tensors.
        return plain
    paths = [cast("Sequence[object]", path) for path, _ in leaves]
    if len(paths) != count:
        return plain
    found = [clean_name(trees.keystr(path), "") for path in paths]  # pyright: ignore[reportArgumentType]
    return [name or default for name, default in zip(found, plain, strict=True)]
