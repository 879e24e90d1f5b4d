"""Interpret the pickle of a PyTorch file without running any code in it.

A pickle is a program that may call any function of any installed package. This interpreter cannot
call one: it implements the instructions that build lists, dictionaries and tensors, and treats the
names of PyTorch's rebuilding functions as symbols. It refuses any other name. The instructions are
those of Python's ``pickletools``.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from graphgen.errors import GraphgenError
from graphgen.limits import DIMS
from graphgen.runtime.checkpoint.mapped_file import unreadable

STORAGE_TYPES: Final[Mapping[str, str]] = {
    "torch.DoubleStorage": "float64",
    "torch.FloatStorage": "float32",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
"""PyTorch's name of the element type that a class of storages holds."""

TORCH_DTYPES: Final[Mapping[str, str]] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "s64",
    "int32": "s32",
    "int16": "s16",
    "int8": "s8",
    "uint8": "u8",
    "bool": "pred",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}
"""Our name of each of PyTorch's element types that is read."""

_ORDERED_DICT: Final = "collections.OrderedDict"
# Sets of strings, as in the configurations that NxD keeps beside an adapter's tensors.
_SETS: Final = ("__builtin__.set", "builtins.set")
# Versions that spell the module torch.tensor or torch wrote older formats, which are not read.
_REBUILD_V2: Final = "torch._utils._rebuild_tensor_v2"
_REBUILD_V3: Final = "torch._utils._rebuild_tensor_v3"
_REBUILD_PARAMETER: Final = "torch._utils._rebuild_parameter"
_REBUILD_QUANTIZED: Final = "torch._utils._rebuild_qtensor"
_WORD: Final = re.compile(
    r"torch\.(\w+Storage|storage\.(Untyped|Typed)Storage"
    r"|(float|bfloat|int|uint|qint|quint|complex|bits|bool)\w*)"
)
_SAFE: Final = (
    "nothing of the file was run; get the weights as safetensors, or have someone who trusts it "
    "save the tensors alone: torch.save(model.state_dict(), 'pytorch_model.bin')"
)


@dataclass(frozen=True, slots=True)
class Word:
    """A name in the pickle, such as ``torch.FloatStorage``; a symbol, never resolved."""

    name: str


@dataclass(frozen=True, slots=True)
class Storage:
    """The stored elements of one tensor or of several.

    Attributes:
        key: name of its entry under ``data/``.
        kind: name of its class.
        count: elements, or bytes where the class is untyped.
    """

    key: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A view of a storage.

    Attributes:
        storage: the storage that holds its elements.
        type: PyTorch's name of the element type, such as ``bfloat16``.
        offset: its first element, counted in elements from the start of the storage.
        shape: the sizes.
        stride: elements from one to the next along each dimension.
    """

    storage: Storage
    type: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_pickle(data: bytes | BinaryIO, path: Path, start: int) -> object:
    """The value a pickle describes: containers, numbers, strings, words and tensors.

    Args:
        data: the pickle, or an opened file, which is read from its position to the pickle's end.
        path: of the file it is in, for messages.
        start: the first byte of ``data`` in that file.

    Raises:
        GraphgenError: GG0604 if it calls a function or names anything that tensors do not need,
            GG0601 if it is damaged.
    """
    machine = _PickleMachine(path)
    at = 0
    try:
        for opcode, argument, position in pickletools.genops(data):
            at = position or 0
            rule = _RULES.get(opcode.name)
            if rule is None:
                raise machine.refuse(f"uses the instruction {opcode.name}")
            rule(machine, argument)
        return machine.stack.pop()
    except GraphgenError as error:
        error.where = f"{path}, byte {start + at}"
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise unreadable(path, "the pickle in it is damaged", offset=start + at) from error


class _PickleMachine:
    """A pickle's stack, marks and memo."""

    __slots__ = ("marks", "memo", "path", "stack")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def refuse(self, what: str) -> GraphgenError:
        """GG0604: the pickle does something that a file of weights does not need."""
        return GraphgenError(
            "GG0604", f"the pickle in {self.path.name} {what}; it is refused", help=_SAFE
        )

    def quantized(self) -> GraphgenError:
        """GG0601: the file has tensors of PyTorch's quantized types, such as ``qint8``."""
        name = self.path.name
        return GraphgenError(
            "GG0601",
            f"{name} holds quantized tensors of PyTorch (qint8), which are not read",
            help="dequantize them, then quantize with --quantized: "
            f"import torch; state = torch.load('{name}', map_location='cpu', weights_only=True); "
            "torch.save({key: value.dequantize() for key, value in state.items()}, "
            "'pytorch_model.bin')",
        )

    def above(self) -> list[object]:
        """Pop the values above the last mark, and the mark."""
        first = self.marks.pop()
        items = self.stack[first:]
        del self.stack[first:]
        return items

    def last(self, count: int) -> tuple[object, ...]:
        """Pop the last ``count`` values."""
        if count > len(self.stack):
            raise IndexError(count)
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return items

    def name(self, module: str, name: str) -> None:
        """Push the name of an import as a word, or refuse it (GG0604)."""
        full = f"{module}.{name}"
        if full == _REBUILD_QUANTIZED:
            raise self.quantized()
        if full not in _CALLS and not _WORD.fullmatch(full):
            raise self.refuse(f"wants to run '{full}'")
        self.stack.append(Word(full))

    def call(self) -> None:
        """Apply one of the few calls that make tensors, or refuse it (GG0604)."""
        called, arguments = self.last(2)
        rule = _CALLS.get(called.name) if isinstance(called, Word) else None
        if rule is None:
            shown = f"'{called.name}'" if isinstance(called, Word) else "a value"
            raise self.refuse(f"wants to run {shown}")
        self.stack.append(rule(_tuple(arguments)))

    def build(self) -> None:
        """Drop the state of a dictionary, such as ``_metadata``; refuse any other (GG0604)."""
        self.last(1)
        if not isinstance(self.stack[-1], dict):
            raise self.refuse("wants to set the state of an object")

    def set_items(self, items: list[object]) -> None:
        """Add (key, value) pairs to the dictionary on top."""
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise TypeError(type(target))  # pyright: ignore[reportUnknownArgumentType]
        _fill(cast("dict[object, object]", target), list(zip(items[::2], items[1::2], strict=True)))

    def append(self, items: list[object]) -> None:
        """Extend the list on top."""
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError(target)
        cast("list[object]", target).extend(items)


def _fill(target: dict[object, object], pairs: list[tuple[object, object]]) -> None:
    for key, value in pairs:
        if not isinstance(key, str | int):
            raise TypeError(key)
        target[key] = value


def _ordered_dict(arguments: tuple[object, ...]) -> object:
    made: dict[object, object] = {}
    for pairs in arguments:
        if not isinstance(pairs, list):
            raise TypeError(pairs)
        rows = [tuple(cast("list[object]", pair)) for pair in cast("list[object]", pairs)]
        _fill(made, [(key, value) for key, value in rows])
    return made


def _set(arguments: tuple[object, ...]) -> list[object]:
    """The members of a set, which are kept as a list."""
    (members,) = arguments or ([],)
    if not isinstance(members, list):
        raise TypeError(members)
    return cast("list[object]", members)


def _tensor_v2(arguments: tuple[object, ...]) -> StoredTensor:
    storage, offset, shape, stride, _, _, *metadata = arguments
    if not isinstance(storage, Storage) or any(metadata):
        raise TypeError(storage)
    kind = STORAGE_TYPES.get(storage.kind, storage.kind)
    return StoredTensor(storage, kind, _size(offset), _sizes(shape), _sizes(stride))


def _tensor_v3(arguments: tuple[object, ...]) -> StoredTensor:
    storage, offset, shape, stride, _, _, kind, *metadata = arguments
    if not isinstance(storage, Storage) or not isinstance(kind, Word) or any(metadata):
        raise TypeError(storage)
    name = kind.name.removeprefix("torch.")
    return StoredTensor(storage, name, _size(offset), _sizes(shape), _sizes(stride))


def _parameter(arguments: tuple[object, ...]) -> StoredTensor:
    tensor, _, _ = arguments
    if not isinstance(tensor, StoredTensor):
        raise TypeError(tensor)
    return tensor


def _storage(value: object) -> Storage:
    kind, storage, key, _, count, *view = _tuple(value)
    if any(view):
        raise ValueError(view)
    if kind != "storage" or not isinstance(storage, Word) or not isinstance(key, str):
        raise TypeError(kind)
    return Storage(key, storage.name, _size(count))


def _tuple(value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise TypeError(value)
    return cast("tuple[object, ...]", value)


def _sizes(value: object) -> tuple[int, ...]:
    sizes = _tuple(value)
    if len(sizes) > DIMS.most:
        raise ValueError(len(sizes))
    return tuple([_size(item) for item in sizes])


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**60:
        raise ValueError(value)
    return value


_CALLS: Final[Mapping[str, Callable[[tuple[object, ...]], object]]] = {
    _ORDERED_DICT: _ordered_dict,
    **dict.fromkeys(_SETS, _set),
    _REBUILD_V2: _tensor_v2,
    _REBUILD_V3: _tensor_v3,
    _REBUILD_PARAMETER: _parameter,
}

_Rule = Callable[[_PickleMachine, object], None]


def _push(machine: _PickleMachine, argument: object) -> None:
    machine.stack.append(argument)


def _remember(machine: _PickleMachine, argument: object) -> None:
    place = len(machine.memo) if argument is None else cast(int, argument)
    machine.memo[place] = machine.stack[-1]


def _recall(machine: _PickleMachine, argument: object) -> None:
    machine.stack.append(machine.memo[cast(int, argument)])


def _words(machine: _PickleMachine, argument: object) -> None:
    module, _, name = cast(str, argument).partition(" ")
    machine.name(module, name)


def _stacked_words(machine: _PickleMachine, _: object) -> None:
    module, name = machine.last(2)
    machine.name(str(module), str(name))


def _nothing(machine: _PickleMachine, argument: object) -> None:
    """Ignore an instruction that only frames the rest."""


_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    **dict.fromkeys(
        ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        _push,
    ),
    **dict.fromkeys(
        ("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING"), _push
    ),
    **dict.fromkeys(("SHORT_BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"), _push),
    "NONE": _push,
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.above())),
    "TUPLE1": lambda machine, _: machine.stack.append(machine.last(1)),
    "TUPLE2": lambda machine, _: machine.stack.append(machine.last(2)),
    "TUPLE3": lambda machine, _: machine.stack.append(machine.last(3)),
    "LIST": lambda machine, _: machine.stack.append(machine.above()),
    "APPEND": lambda machine, _: machine.append(list(machine.last(1))),
    "APPENDS": lambda machine, _: machine.append(machine.above()),
    "SETITEM": lambda machine, _: machine.set_items(list(machine.last(2))),
    "SETITEMS": lambda machine, _: machine.set_items(machine.above()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _recall),
    "GLOBAL": _words,
    "STACK_GLOBAL": _stacked_words,
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.stack.append(_storage(machine.last(1)[0])),
}
