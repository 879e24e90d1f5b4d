"""The graph: values, ops and the block that lists the ops in program order.

The order of the list *is* the order of the program: nothing sorts it topologically. A block
is an intrusive doubly linked list: inserting and erasing are O(1), and iteration tolerates edits.
An op inserted before the current one is not visited, one inserted after it is, and the current op
may be erased.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphgen.ir.attrs import EMPTY, Attrs
from graphgen.ir.dims import Dim
from graphgen.ir.dtype import DType
from graphgen.ir.hooks import apply_index, apply_operator, check_truth, html_of, text_of
from graphgen.ir.loc import UNKNOWN, Loc
from graphgen.ir.sharding import Sharding
from graphgen.ir.types import TensorType


class Value:
    """One tensor of the program: a result of an op, or an argument of a block.

    Attributes:
        type: shape and element type.
        op: the op that defines it, ``None`` for a block argument.
        index: position among the results of ``op`` or the arguments of the block.
        name: the user's name for it; the printer makes names unique.
        sharding: its layout over the mesh, ``None`` if it has none yet.
        annotations: of a block argument, as :attr:`Op.annotations`.
    """

    __slots__ = ("_users", "annotations", "index", "name", "op", "sharding", "type")

    # Makes NumPy return NotImplemented for ``array * value``.
    __array_ufunc__ = None

    def __init__(self, type: TensorType, op: Op | None, index: int, name: str | None) -> None:
        self.type = type
        self.op = op
        self.index = index
        # Most values have one use: then the user itself is stored, without a dictionary.
        self._users: Op | dict[Op, int] | None = None
        self.name = name
        self.sharding: Sharding | None = None
        self.annotations: Attrs = EMPTY

    def __repr__(self) -> str:
        definition = f" = {self.op.name}(...)" if self.op else ""
        return f"%{self.name or '?'}{definition} : {self.type.text}"

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def users(self) -> Mapping[Op, int]:
        """Number of uses per user op, in order of first use."""
        users = self._users
        if users is None:
            return {}
        return users if isinstance(users, dict) else {users: 1}

    def is_read_by(self, op: Op) -> bool:
        """True if ``op`` is one of :attr:`users`."""
        users = self._users
        return users is op or (isinstance(users, dict) and op in users)

    @property
    def is_read(self) -> bool:
        """True if there are :attr:`users`."""
        return bool(self._users)

    def add_use(self, op: Op) -> None:
        """Add one use by ``op``."""
        users = self._users
        if users is None:
            self._users = op
        elif isinstance(users, dict):
            users[op] = users.get(op, 0) + 1
        else:
            self._users = {op: 2} if users is op else {users: 1, op: 1}

    def remove_use(self, op: Op) -> None:
        """Remove one use by ``op``."""
        users = self._users
        if not isinstance(users, dict):
            assert users is op, f"{self!r} is not read by {op!r}"
            self._users = None
        elif users[op] > 1:
            users[op] -= 1
        else:
            del users[op]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The dimensions."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    def producer(self, name: str) -> Op | None:
        """The op that defines this value if it is a ``name``, else ``None``."""
        return self.op if self.op is not None and self.op.name == name else None

    def __add__(self, other: Value | float) -> Value:
        return apply_operator("add", self, other)

    def __radd__(self, other: float) -> Value:
        return apply_operator("add", other, self)

    def __sub__(self, other: Value | float) -> Value:
        return apply_operator("subtract", self, other)

    def __rsub__(self, other: float) -> Value:
        return apply_operator("subtract", other, self)

    def __mul__(self, other: Value | float) -> Value:
        return apply_operator("multiply", self, other)

    def __rmul__(self, other: float) -> Value:
        return apply_operator("multiply", other, self)

    def __truediv__(self, other: Value | float) -> Value:
        return apply_operator("divide", self, other)

    def __rtruediv__(self, other: float) -> Value:
        return apply_operator("divide", other, self)

    def __neg__(self) -> Value:
        return apply_operator("negate", self)

    def __matmul__(self, other: Value) -> Value:
        return apply_operator("matmul", self, other)

    def __rmatmul__(self, other: float) -> Value:
        return apply_operator("matmul", other, self)

    def __pow__(self, other: Value | float) -> Value:
        return apply_operator("power", self, other)

    def __lt__(self, other: Value | float) -> Value:
        return apply_operator("compare.LT", self, other)

    def __le__(self, other: Value | float) -> Value:
        return apply_operator("compare.LE", self, other)

    def __gt__(self, other: Value | float) -> Value:
        return apply_operator("compare.GT", self, other)

    def __ge__(self, other: Value | float) -> Value:
        return apply_operator("compare.GE", self, other)

    def __getitem__(self, at: object) -> Value:
        return apply_index(self, at)

    # Without it x[i] would make every value a sequence that never ends.
    __iter__ = None

    def __bool__(self) -> bool:
        # 0 < x < 5 would otherwise be x < 5.
        return check_truth(self) if self.producer("compare") is not None else True


class Op:
    """One operation.

    Attributes:
        name: a key of the op table.
        operands: the values it reads.
        results: the values it defines.
        attrs: its static data.
        loc: its source location.
        block: the block it is listed in, ``None`` once erased.
        prev, next: its neighbors in that block.
        annotations: what the file it was read from says of it that no attribute models, such as
            ``hlo.sharding``: texts by name, kept by copies and written again.
    """

    __slots__ = (
        *("annotations", "attrs", "block", "loc", "name", "next", "operands", "prev", "results"),
    )

    def __init__(
        self,
        name: str,
        operands: tuple[Value, ...],
        types: Sequence[TensorType],
        attrs: Attrs = EMPTY,
        loc: Loc = UNKNOWN,
        names: Sequence[str | None] = (),
    ) -> None:
        self.name = name
        self.operands = operands
        self.attrs = attrs
        self.loc = loc
        self.annotations: Attrs = EMPTY
        self.block: Block | None = None
        self.prev: Op | None = None
        self.next: Op | None = None
        self.results: tuple[Value, ...]
        if len(types) == 1:
            self.results = (Value(types[0], self, 0, names[0] if names else None),)
        else:
            padded = list(names) or [None] * len(types)
            self.results = tuple(Value(t, self, i, padded[i]) for i, t in enumerate(types))
        for operand in operands:
            operand.add_use(self)

    def __repr__(self) -> str:
        return f"<{self.name} {', '.join(r.type.text for r in self.results)} at {self.loc!r}>"

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.name} has {len(self.results)} results"
        return self.results[0]

    def set_operands(self, operands: tuple[Value, ...]) -> None:
        """Replace the operands and update the use lists."""
        for operand in self.operands:
            operand.remove_use(self)
        self.operands = operands
        for operand in operands:
            operand.add_use(self)


class Block:
    """Arguments and the list of ops.

    Attributes:
        args: the block arguments in order.
        first, last: ends of the list, ``None`` when empty.
        size: number of ops.
    """

    __slots__ = ("_by_name", "args", "first", "last", "size")

    def __init__(self) -> None:
        self.args: list[Value] = []
        self._by_name: dict[str, Value] = {}
        self.first: Op | None = None
        self.last: Op | None = None
        self.size = 0

    def __iter__(self) -> Iterator[Op]:
        op = self.first
        while op is not None:
            yield op
            # An erased op keeps its successor, which may be erased as well.
            op = op.next
            while op is not None and op.block is None:
                op = op.next

    def __reversed__(self) -> Iterator[Op]:
        op = self.last
        while op is not None:
            before = op.prev
            yield op
            op = before

    def __len__(self) -> int:
        return self.size

    def add_arg(self, type: TensorType, name: str) -> Value:
        """Append an argument."""
        value = Value(type, None, len(self.args), name)
        self.args.append(value)
        self._by_name.setdefault(name, value)
        return value

    def arg(self, name: str) -> Value | None:
        """The argument called ``name``, if there is one."""
        return self._by_name.get(name)

    def first_user(self, value: Value) -> Op | None:
        """The first op here, in program order, that reads ``value``.

        ``Value.users`` is in the order in which uses were made: passes that take the first of it
        treat a module and its copy differently.
        """
        users = value.users
        if len(users) < 2:
            return next(iter(users), None)
        here = [op for op in users if op.block is self]
        first = here[0] if here else None
        for op in here[1:]:
            if first is not None and _precedes(op, first):
                first = op
        return first

    def keep_args(self, kept: list[Value]) -> None:
        """Drop the arguments that are not in ``kept``; they must have no uses."""
        self.args = kept
        self._by_name = {value.name or "": value for value in kept}
        for index, value in enumerate(kept):
            value.index = index

    def rename_args(self, names: Sequence[str]) -> None:
        """Give all arguments other names, in their order; they are found by these alone."""
        for value, name in zip(self.args, names, strict=True):
            value.name = name
        self.keep_args(self.args)

    def append(self, op: Op) -> None:
        """Put ``op`` at the end."""
        op.block = self
        op.prev = self.last
        if self.last is None:
            self.first = op
        else:
            self.last.next = op
        self.last = op
        self.size += 1

    def insert_before(self, op: Op, anchor: Op) -> None:
        """Put ``op`` just before ``anchor``."""
        op.block = self
        op.prev, op.next = anchor.prev, anchor
        if anchor.prev is None:
            self.first = op
        else:
            anchor.prev.next = op
        anchor.prev = op
        self.size += 1

    def move_after(self, op: Op, anchor: Op) -> None:
        """Put ``op``, which is in the block, just after ``anchor``."""
        if anchor.next is op:
            return
        self._take_out(op)
        if anchor.next is None:
            op.next = None
            self.append(op)
        else:
            self.insert_before(op, anchor.next)

    def erase(self, op: Op) -> None:
        """Remove ``op``; its results must have no uses."""
        for result in op.results:
            assert not result.is_read, f"{op!r} still has users"
        op.set_operands(())
        self._take_out(op)

    def _take_out(self, op: Op) -> None:
        if op.prev is None:
            self.first = op.next
        else:
            op.prev.next = op.next
        if op.next is None:
            self.last = op.prev
        else:
            op.next.prev = op.prev
        op.block = None
        self.size -= 1


def _precedes(op: Op, other: Op) -> bool:
    """True if ``op`` comes before ``other``, in the same block: as many steps as lie in between."""
    before, after = op.prev, op.next
    while before is not other:
        if after is other or before is None:
            return True
        before = before.prev
        after = after.next if after is not None else None
    return False
