"""Where in the user's model a node of an exported graph comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphgen.build.source_location import source_name
from graphgen.ir import Loc, loc

_FRAME = re.compile(r'File "([^"<>]+)", line (\d+), in ')
# Its layers and functions, between the user's line and the op.
_OF_TORCH = re.compile(r"[/\\]torch[/\\](nn|_\w+|functional\.py|export|utils)\b")


def place_of(meta: Mapping[str, object]) -> Loc:
    """The innermost line of the model's own code, and the module whose forward it is in.

    Args:
        meta: of a node; ``stack_trace`` is Python's text of the frames outside of torch, and
            ``nn_module_stack`` has a pair of path and class for each module, outermost first.
    """
    frames = _FRAME.findall(str(meta.get("stack_trace") or ""))
    own = [frame for frame in frames if not _OF_TORCH.search(frame[0])] or frames
    file, line = own[-1] if own else ("?", "0")
    name = source_name(file).replace(" ", "_") if own else file
    return loc(name, int(line), _scope(meta.get("nn_module_stack")))


def _scope(stack: object) -> str:
    if not isinstance(stack, Mapping) or not stack:
        return ""
    inner: object = list(stack.values())[-1]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    path = str(inner[0]) if isinstance(inner, tuple) and inner else ""  # pyright: ignore[reportUnknownArgumentType]
    # A list of modules is indexed: ``model.layers.0``.
    return re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", path).replace(" ", "_")
