"""Exporting a model of torch's for inference, as the reader likes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def export(model: object, args: object, kwargs: object = None) -> ExportedProgram:
    """The program of ``model(*args, **kwargs)``, without gradients and dropout.

    Raises:
        GraphgenError: GG0705 for what is no model with a tuple of arguments.
    """
    import warnings

    import torch

    kind = type(args).__name__

    if not isinstance(model, torch.nn.Module) or not isinstance(args, tuple):
        raise GraphgenError(
            "GG0705",
            f"a {type(model).__name__} and a {kind} are no model and its arguments",
            help="return (model, (input_ids,)), or (model, (), {'input_ids': input_ids})",
        )
    given = cast("tuple[object, ...]", args)
    named = dict(cast("Mapping[str, object]", kwargs)) if isinstance(kwargs, Mapping) else {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.export.export(model.eval(), given, named, strict=False)
