"""Einstein sums: an equation as diagonals, sums, products of pairs and a transposition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphgen.build.argument_checks import check_values, located
from graphgen.build.source_location import user_loc
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Value

if TYPE_CHECKING:
    from graphgen.build.array_methods import ArrayMethods

_HELP = "an equation is like 'bij,bjk->bik': a letter a dimension, ... for leading ones"
_LABELS = r"[A-Za-z]*(?:\.\.\.)?[A-Za-z]*"


@dataclass(frozen=True)
class _Term:
    """A value with a label for each dimension: a letter, or a number of an ellipsis."""

    value: Value
    labels: tuple[str, ...]


def einsum(b: ArrayMethods, equation: str, operands: Sequence[Value]) -> Value:
    """The sum of products that the equation states, from left to right.

    Raises:
        GraphgenError: GG0105 for an equation that is none, or does not fit the operands.
    """
    check_values("einsum: operand ", operands, user_loc(""))
    inputs, output = _parsed(equation, operands)
    terms = [_Term(value, labels) for value, labels in zip(operands, inputs, strict=True)]
    sizes = _sizes(equation, terms)
    terms = [_narrowed(b, _diagonal(b, equation, term), sizes) for term in terms]
    left, *rest = terms
    while rest:
        right, *rest = rest
        later = {*output, *[label for term in rest for label in term.labels]}
        left = _product(b, left, right, later)
    left = _summed(b, left, set(output))
    missing = [label for label in output if label not in left.labels]
    if missing:
        raise _refused(equation, f"the label {missing[0]} of the result is in no operand")
    return b.transpose(left.value, [left.labels.index(label) for label in output])


def _refused(equation: object, what: str) -> GraphgenError:
    return located(GraphgenError("GG0105", f"einsum '{equation}': {what}", help=_HELP))


def _parsed(
    equation: str, operands: Sequence[Value]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The labels of each operand and of the result."""
    left, arrow, right = str(equation).replace(" ", "").partition("->")
    parts = left.split(",")
    if not all(re.fullmatch(_LABELS, part) for part in [*parts, right]):
        raise _refused(equation, "it has more than letters, commas, one ... a term and one ->")
    if len(parts) != len(operands):
        raise _refused(equation, f"it is of {len(parts)} operands, {len(operands)} are given")
    inputs: list[tuple[str, ...]] = []
    for part, value in zip(parts, operands, strict=True):
        open_dims = len(value.shape) - len(part.replace("...", ""))
        if open_dims < 0 or (open_dims and "..." not in part):
            raise _refused(equation, f"'{part}' does not name the dimensions of {value.type.text}")
        inputs.append(_spread(part, open_dims))
    most = max(len([label for label in labels if label.isdigit()]) for labels in inputs)
    if not arrow:
        counts = Counter(left.replace(",", "").replace(".", ""))
        right = "..." + "".join(sorted(label for label in counts if counts[label] == 1))
    if most and "..." not in right:
        raise _refused(equation, "its result leaves out the dimensions of ...")
    output = _spread(right, most)
    if len(set(output)) < len(output):
        raise _refused(equation, "its result has a label twice")
    return inputs, output


def _spread(part: str, count: int) -> tuple[str, ...]:
    """The labels of a term; dimensions of its ellipsis are numbered from the last one on."""
    before, dots, after = part.partition("...")
    return (*before, *[str(n) for n in reversed(range(count if dots else 0))], *after)


def _sizes(equation: str, terms: Sequence[_Term]) -> dict[str, Dim]:
    """The size of each label; 1 gives way to other sizes."""
    sizes: dict[str, Dim] = {}
    for term in terms:
        for label, size in zip(term.labels, term.value.shape, strict=True):
            known = sizes.get(label, 1)
            if 1 not in (known, size) and known != size:
                what = "..." if label.isdigit() else label
                raise _refused(equation, f"{what} is {known} in one operand, {size} in another")
            sizes[label] = size if known == 1 else known
    return sizes


def _diagonal(b: ArrayMethods, equation: str, term: _Term) -> _Term:
    """The term with every label once: the elements whose places along equal labels are equal."""
    while len(set(term.labels)) < len(term.labels):
        label = next(each for each in term.labels if term.labels.count(each) > 1)
        first = term.labels.index(label)
        pair = first, term.labels.index(label, first + 1)
        size, other = (term.value.shape[dim] for dim in pair)
        if size != other or not isinstance(size, int) or size < 1:
            raise _refused(equation, f"no diagonal of sizes {size} and {other}, {label}")
        kept = [dim for dim in range(len(term.labels)) if dim not in pair]
        moved = b.transpose(term.value, [*kept, *pair])
        flat = b.reshape(moved, (*moved.shape[:-2], size * size))
        found = b.index(flat, (..., slice(None, None, size + 1)))
        term = _Term(found, (*[term.labels[dim] for dim in kept], label))
    return term


def _narrowed(b: ArrayMethods, term: _Term, sizes: dict[str, Dim]) -> _Term:
    """The term without dimensions of size 1 that are larger in another one."""
    pairs = list(zip(term.labels, term.value.shape, strict=True))
    kept = [(label, size) for label, size in pairs if size != 1 or sizes[label] == 1]
    value = b.reshape(term.value, [size for _, size in kept])
    return _Term(value, tuple([label for label, _ in kept]))


def _summed(b: ArrayMethods, term: _Term, kept: set[str]) -> _Term:
    """The term summed over all labels but ``kept``."""
    gone = [dim for dim, label in enumerate(term.labels) if label not in kept]
    if not gone:
        return term
    labels = tuple([label for label in term.labels if label in kept])
    return _Term(b.reduce(term.value, gone, "add"), labels)


def _product(b: ArrayMethods, x: _Term, y: _Term, later: set[str]) -> _Term:
    """The product of two terms, summed over what is not needed ``later``."""
    x = _summed(b, x, later | set(y.labels))
    y = _summed(b, y, later | set(x.labels))
    shared = [label for label in x.labels if label in y.labels]
    batch = [label for label in shared if label in later]
    contracted = [label for label in shared if label not in later]
    free = [label for label in (*x.labels, *y.labels) if label not in shared]
    labels = (*batch, *free)
    if not contracted:
        sizes = dict(zip((*x.labels, *y.labels), (*x.value.shape, *y.value.shape), strict=True))
        shape = [sizes[label] for label in labels]
        return _Term(b.multiply(*[_laid_out(b, term, labels, shape) for term in (x, y)]), labels)

    def places(group: list[str]) -> tuple[list[int], list[int]]:
        left, right = ([term.labels.index(label) for label in group] for term in (x, y))
        return left, right

    product = b.dot_general(x.value, y.value, places(contracted), places(batch))
    return _Term(product, labels)


def _laid_out(b: ArrayMethods, term: _Term, labels: Sequence[str], shape: Sequence[Dim]) -> Value:
    """The term with these labels in this order, repeated along those that it has not."""
    if term.labels == tuple(labels):
        return term.value
    return b.broadcast_in_dim(term.value, shape, [labels.index(label) for label in term.labels])
