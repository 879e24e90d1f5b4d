"""Export of PyTorch models: ``torch.export`` with errors that name the line at fault."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\w+)\n\s*(.*)')
# Rotary frequencies that transformers computes again in each call, from the length of the sequence.
_DYNAMIC_ROPE = {"dynamic_frequency_update"}


def export(
    model: object, args: object, kwargs: object = None, dynamic_shapes: object = None
) -> ExportedProgram:
    """Export ``model(*args, **kwargs)`` without gradients and dropout.

    Args:
        model: a module of torch.
        args: a tuple of its arguments.
        kwargs: further ones by name.
        dynamic_shapes: those of ``torch.export``; by default all sizes are those of the arguments.

    Raises:
        GraphgenError: GG0705 unless given a model and a tuple of arguments, and for a model that
            branches on the value of a tensor.
    """
    import warnings

    import torch

    kind = type(args).__name__

    if not isinstance(model, torch.nn.Module) or not isinstance(args, tuple):
        raise GraphgenError(
            "GG0705",
            f"a {type(model).__name__} and a {kind} are not a model and its arguments",
            help="return (model, (input_ids,)), or (model, (), {'input_ids': input_ids})",
        )
    given = cast("tuple[object, ...]", args)
    named = dict(cast("Mapping[str, object]", kwargs)) if isinstance(kwargs, Mapping) else {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            with _quietly():
                return torch.export.export(
                    model.eval(),
                    given,
                    named,
                    dynamic_shapes=cast("dict[str, object] | None", dynamic_shapes),
                    strict=False,
                )
        except Exception as error:
            branch = _branch_on_data(error)
            if branch is None:
                raise
            raise branch from error


@contextmanager
def _quietly() -> Generator[None]:
    """Hold back what is printed, and drop it where the block raises: torch prints the graph."""
    before, printed = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.ERROR)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        logging.disable(before)


def _branch_on_data(error: Exception) -> GraphgenError | None:
    """The error of a Python branch on the value of a tensor; ``None`` for any other failure."""
    if type(error).__name__ != "GuardOnDataDependentSymNode":
        return None
    found = _PLACE.search(str(error))
    if found is None:
        return GraphgenError("GG0705", "the model branches on the value of a tensor", help=_HELP)
    file, line, function, text = found.groups()
    what = f"the model branches on the value of a tensor: {text.partition('  #')[0]}"
    where, help_ = f"{PurePath(file).name}:{line}", _HELP
    if function in _DYNAMIC_ROPE:
        what = "rope_type 'dynamic' computes its frequencies from the length of each sequence"
        help_ = "give the model fixed frequencies: rope_type yarn, linear, llama3 or default"
    return GraphgenError("GG0705", what, where=where, help=help_)


_HELP = "torch.export records one branch: let it depend on shapes, or use torch.cond or torch.where"
