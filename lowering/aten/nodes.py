"""Nodes of an exported graph: op, arguments, inferred types, and source location."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol, cast

from graphgen.build.source_location import source_name
from graphgen.errors import GraphgenError
from graphgen.ir import Loc, TensorType, Value, loc, tensor
from graphgen.lowering.aten.call import Argument
from graphgen.lowering.aten.complex_value import PARTS, ComplexValue
from graphgen.lowering.aten.dtypes import dtype_of
from graphgen.lowering.aten.sizes import Names, dim_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

# Checks of conditions that held when the program was exported; they compute nothing.
_CHECKS = (
    "_assert_tensor_metadata.default",
    "_assert_scalar.default",
    "_assert_async.msg",
    "_assert_async.default",
    "sym_constrain_range.default",
    "sym_constrain_range_for_size.default",
)

_FRAME = re.compile(r'File "([^"<>]+)", line (\d+), in ')
# Its layers and functions, between the user's line and the op.
_OF_TORCH = re.compile(r"[/\\]torch[/\\](nn|_\w+|functional\.py|export|utils)\b")


class _Parameter(Protocol):
    """An argument of an op's schema."""

    name: str
    default_value: object


class _Schema(Protocol):
    arguments: Sequence[_Parameter]


class _FakeTensor(Protocol):
    """A tensor of torch without elements."""

    shape: Sequence[object]
    dtype: object


def is_op(node: Node) -> bool:
    """Test whether a node computes tensors; computations of sizes and checks do not."""
    if node.op != "call_function" or is_item(node) or op_name(node) in _CHECKS:
        return False
    made: object = node.meta.get("val")
    return made is None or isinstance(made, tuple | list) or _is_tensor(made)


def is_item(node: Node) -> bool:
    """Test whether a node selects one of several results."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def op_name(node: Node) -> str:
    """``add.Tensor``; an op of another library than ATen with that in front."""
    return str(node.target).removeprefix("aten.")


def types_of(node: Node, names: Names) -> tuple[TensorType, ...]:
    """The types of a node's results."""
    made: object = node.meta.get("val")
    items = cast("Sequence[object]", made) if isinstance(made, tuple | list) else [made]
    return tuple(type_of(item, names) for item in items if _is_tensor(item))


def type_of(fake: object, names: Names) -> TensorType:
    """The type of a tensor of torch without elements; of each part, if it is complex."""
    known = cast("_FakeTensor", fake)
    dtype = PARTS.get(str(known.dtype), known.dtype)
    return tensor(dtype_of(dtype), [dim_of(size, names) for size in known.shape])


def is_complex_tensor(fake: object) -> bool:
    """Test whether a tensor of torch is complex."""
    return str(getattr(fake, "dtype", "")) in PARTS


def makes_complex(node: Node) -> bool:
    """Test whether a result of a node is complex."""
    made: object = node.meta.get("val")
    items = cast("Sequence[object]", made) if isinstance(made, tuple | list) else [made]
    return any(map(is_complex_tensor, items))


def _is_tensor(item: object) -> bool:
    return hasattr(item, "shape") and hasattr(item, "dtype")


def input_shapes(program: ExportedProgram) -> list[Sequence[object]]:
    """The shapes of the program's inputs, as torch has them."""
    given = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    fakes: list[object] = [node.meta.get("val") for node in nodes if node.name in given]
    return [cast("_FakeTensor", fake).shape for fake in fakes if _is_tensor(fake)]


def arguments_of(
    node: Node, values: Callable[[Node], Value | ComplexValue], names: Names
) -> Mapping[str, Argument]:
    """A call's arguments by the names of the op's schema, with its defaults."""
    schema = cast("_Schema", getattr(node.target, "_schema"))  # noqa: B009
    given: dict[str, Argument] = {}
    for index, parameter in enumerate(schema.arguments):
        if index < len(node.args):
            item: object = node.args[index]
        else:
            item = node.kwargs.get(parameter.name, parameter.default_value)
        given[parameter.name] = _argument(item, values, names)
    return given


def _argument(
    item: object, values: Callable[[Node], Value | ComplexValue], names: Names
) -> Argument:
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if isinstance(item, tuple | list):
        return [_argument(part, values, names) for part in cast("Sequence[object]", item)]
    if hasattr(item, "meta"):
        node = cast("Node", item)
        made: object = node.meta.get("val")
        return values(node) if _is_tensor(made) else _size(made, names)
    kind = type(item).__name__
    if kind == "dtype":
        return dtype_of(item)
    if kind in ("device", "layout", "memory_format"):
        # Device and memory layout are not part of the graph.
        return None
    return _size(item, names)


def _size(made: object, names: Names) -> Argument:
    if isinstance(made, bool | int | float):
        return made
    if type(made).__name__ == "SymInt":
        return dim_of(made, names)
    raise GraphgenError("GG0104", f"an argument that is a {type(made).__name__} has no like here")


def place_of(meta: Mapping[str, object], library: str = "") -> Loc:
    """Locate a node: innermost line of the model's own code, and module path as scope.

    Args:
        meta: of a node; ``stack_trace`` is Python's text of the frames outside of torch, and
            ``nn_module_stack`` has a pair of path and class for each module, outermost first.
        library: a folder with layers that are not the model's own code, as torch's are.
    """
    frames = _FRAME.findall(str(meta.get("stack_trace") or ""))
    frames = [
        frame
        for frame in frames
        if not library or PurePath(library) not in PurePath(frame[0]).parents
    ] or frames
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
