"""ATen ops that read or write at computed places."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Value
from graphgen.ir.dtype import pred, s32, s64
from graphgen.lowering.aten.call import AtenCall, AtenResult, aten
from graphgen.lowering.aten.shape import ones_like
from graphgen.ops import Trait, has_trait


@aten("embedding.default")
def _embedding(c: AtenCall) -> AtenResult:
    """Rows of a table; torch refuses ids outside of it, so that none is below zero."""
    table, ids = c.value("weight"), c.value("indices")
    c.refuses_outside(ids, 0, table.shape[0] - 1)
    return c.b.embedding(table, c.b.convert(ids, s32))


@aten("index.Tensor")
def _index(c: AtenCall) -> AtenResult:
    """Elements at each place that the index tensors, repeated to one shape, name together."""
    x = c.value("self")
    dims, indices = _indices(c, x)
    for dim, index in zip(dims, indices, strict=True):
        c.refuses_outside(index, x.shape[dim] * -1, x.shape[dim] - 1)
    batch = ones_like(indices)
    vectors = _vectors(c, indices, batch, [x.shape[dim] for dim in dims])
    first = _first(dims)
    kept = x.type.rank - len(dims)
    offset = [i if i < first else i + len(batch) for i in range(kept)]
    return _gathered(c, x, vectors, dims, offset)


def _first(dims: Sequence[int]) -> int:
    """Return the first dimension of the batch: that of adjacent indexed dimensions, else 0."""
    neighbors = list(dims) == list(range(dims[0], dims[-1] + 1))
    return dims[0] if neighbors else 0


def _gathered(
    c: AtenCall, x: Value, vectors: Value, dims: Sequence[int], offset: Sequence[int]
) -> Value:
    return c.b.op(
        "gather",
        x,
        vectors,
        offset_dims=tuple(offset),
        collapsed_slice_dims=tuple(sorted(dims)),
        start_index_map=tuple(dims),
        index_vector_dim=vectors.type.rank - 1,
        slice_sizes=tuple(1 if i in dims else size for i, size in enumerate(x.shape)),
    )


def _indices(c: AtenCall, x: Value) -> tuple[list[int], list[Value]]:
    """The indexed dimensions, and the tensors that index them."""
    found = [(dim, item) for dim, item in enumerate(c.items("indices")) if isinstance(item, Value)]
    for _, item in found:
        if item.dtype is pred:
            raise GraphgenError(
                "GG0502",
                f"{c.op} of booleans: how large its result is depends on the data",
                help="use torch.where",
            )
    assert found, f"{c.op} of {x.type.text} without an index"
    return [dim for dim, _ in found], [item for _, item in found]


def _vectors(
    c: AtenCall, indices: Sequence[Value], batch: Sequence[Dim], sizes: Sequence[Dim]
) -> Value:
    """Index vectors [*batch, n], counted from the front."""
    columns: list[Value] = []
    for index, size in zip(indices, sizes, strict=True):
        column = c.spread(_from_front(c, c.b.convert(index, s64), size), batch)
        columns.append(c.b.reshape(column, (*batch, 1)))
    return columns[0] if len(columns) == 1 else c.b.concatenate(columns, len(batch))


def _from_front(c: AtenCall, index: Value, size: Dim) -> Value:
    """Indices below zero count from the end."""
    if _never_negative(index):
        return index
    negative = c.b.compare(index, c.b.full(0, index.type), "LT")
    return c.b.select(negative, c.b.add(index, c.full(size, index.dtype, index.shape)), index)


def _never_negative(value: Value) -> bool:
    """Test whether ``value`` counts from zero, or is a constant that is not negative."""
    op = value.op
    while op is not None and (has_trait(op, Trait.RELAYOUT) or op.name == "slice"):
        op = op.operands[0].op
    if op is None or op.name == "iota":
        return op is not None
    if op.name == "constant":
        return all(number >= 0 for number in op.attrs.literal("value").values())
    # A sum of what is not negative is not.
    return op.name in ("add", "multiply") and all(map(_never_negative, op.operands))


@aten("index_select.default")
def _index_select(c: AtenCall) -> AtenResult:
    x, index = c.value("self"), c.value("index")
    dim = c.dim("dim", x.type.rank)
    if not x.shape:
        return x
    c.refuses_outside(index, 0, x.shape[dim] - 1)
    index = c.b.reshape(index, (index.type.size,))
    vectors = _vectors(c, [index], index.shape, [x.shape[dim]])
    offset = [i for i in range(x.type.rank) if i != dim]
    return _gathered(c, x, vectors, [dim], offset)


@aten("gather.default")
def _gather(c: AtenCall) -> AtenResult:
    """``result[i, j] = self[index[i, j], j]`` for dimension 0, and so on."""
    x, index = c.value("self"), c.value("index")
    if not x.shape:
        return c.b.reshape(x, c.shape)
    dim = c.dim("dim", x.type.rank)
    c.refuses_outside(index, 0, x.shape[dim] - 1)
    vectors = _along(c, x, index, dim)
    return _gathered(c, x, vectors, range(x.type.rank), [])


def _along(c: AtenCall, x: Value, index: Value, dim: int) -> Value:
    """Index vectors of each element's own place, but for one dimension."""
    shape = index.shape
    own = [index if i == dim else c.b.iota(s64, shape, i) for i in range(x.type.rank)]
    return _vectors(c, own, shape, x.shape)


@aten("index_put.default")
def _index_put(c: AtenCall) -> AtenResult:
    """``self`` with the values written, or added, at the places that the index tensors name."""
    x = c.value("self")
    dims, indices = _indices(c, x)
    batch = ones_like(indices)
    first = _first(dims)
    kept = [i for i in range(x.type.rank) if i not in dims]
    window = [x.shape[i] for i in kept]
    updates = c.spread(
        c.cast(c.value("values"), x.dtype), [*window[:first], *batch, *window[first:]]
    )
    vectors = _vectors(c, indices, batch, [x.shape[dim] for dim in dims])
    window_dims = [i if i < first else i + len(batch) for i in range(len(kept))]
    return _scattered(c, x, vectors, updates, dims, window_dims, added=c.flag("accumulate"))


def _scattered(
    c: AtenCall,
    x: Value,
    vectors: Value,
    updates: Value,
    dims: Sequence[int],
    window: Sequence[int],
    *,
    added: bool = False,
) -> Value:
    return c.b.op(
        "scatter",
        x,
        vectors,
        updates,
        update_window_dims=tuple(window),
        inserted_window_dims=tuple(sorted(dims)),
        scatter_dims_to_operand_dims=tuple(dims),
        index_vector_dim=vectors.type.rank - 1,
        kind="add" if added else "assign",
    )


@aten("index_copy.default", "index_add.default")
def _index_copy(c: AtenCall) -> AtenResult:
    x, index, source = c.value("self"), c.value("index"), c.value("source")
    dim = c.dim("dim", x.type.rank)
    vectors = _vectors(
        c, [c.b.reshape(index, (index.type.size,))], (index.type.size,), [x.shape[dim]]
    )
    window = [i for i in range(x.type.rank) if i != dim]
    added = c.op.startswith("index_add")
    if added and c.number("alpha", 1) != 1:
        source = c.b.multiply(source, c.full(c.number("alpha", 1), source.dtype, source.shape))
    return _scattered(c, x, vectors, source, [dim], window, added=added)


@aten("scatter.src", "scatter.value", "scatter_add.default")
def _scatter(c: AtenCall) -> AtenResult:
    """``self[index[i, j], j] = src[i, j]`` for dimension 0, and so on."""
    x, index = c.value("self"), c.value("index")
    vectors = _along(c, x, index, c.dim("dim", x.type.rank))
    src = c.maybe("src")
    if src is None:
        updates = c.full(c.operand("value"), x.dtype, index.shape)
    else:
        # Only as much of ``src`` is read as there are indices.
        updates = (
            src if src.shape == index.shape else c.b.slice(src, [0] * x.type.rank, index.shape)
        )
    added = c.op.startswith("scatter_add")
    return _scattered(c, x, vectors, updates, range(x.type.rank), [], added=added)
