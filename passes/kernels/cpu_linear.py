"""Match a product with a weight, the norm before it and the elementwise ops after it.

[norm ->] product [-> + bias] [-> activation] [-> convert]
[norm ->] product [-> + bias] -> + residual
[norm ->] product -> left half -> activation -> * right half [-> convert]

After the product, low-rank terms may be added (``terms_match.py``).
A norm is ``rms_norm`` or ``layer_norm``; a product is a ``dot_general``, or what
``narrow_match.py`` and ``integer_rows_match.py`` find around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.dtype import bf16, f16, f32, s4, s8, u4
from graphgen.passes.canonical.slice_algebra import bounds
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.cpu_narrow import (
    GroupedWeight,
    NarrowWeight,
    match_grouped,
    match_narrow,
)
from graphgen.passes.kernels.kernel_call import KernelCalls, appending, present
from graphgen.passes.kernels.packed_weight import (
    LANES,
    depth_of_step,
    pack,
    pack_slots,
    unpack,
    unpack_slots,
)
from graphgen.passes.lora.low_rank_term import LowRankTerm, gathered, match_term
from graphgen.passes.quantization.integer_blocks import LIMIT
from graphgen.passes.weights.derived import PreparedValues

# Sums of a group's numbers are exact in f32 up to here.
_DEEPEST: Final = 2**24 // 128


@dataclass(frozen=True, slots=True)
class IntegerRows:
    """The left operand of a product as integers of 8 bits.

    Attributes:
        quantize: gives the numbers, and a scale a block.
        widen: multiplies them.
        group: numbers of a row that share a scale.
    """

    quantize: Op
    widen: Op
    group: int

    @property
    def ops(self) -> list[Op]:
        """Both, in order."""
        return [self.quantize, self.widen]

    @property
    def x(self) -> Value:
        """The rows before they are rounded."""
        return self.quantize.operands[0]

    def only_op(self, prepared: PreparedValues) -> Op | None:
        """The op that rounds, if its numbers are read for one product alone."""
        readers = [prepared.only_reader(value) for value in self.quantize.results]
        alone = readers == [self.widen] * 2 and prepared.only_reader(self.widen.result) is not None
        return self.quantize if alone else None


def match_integer_rows(dot: Op, weight: NarrowWeight | GroupedWeight | None) -> IntegerRows | None:
    """The integers that the left operand of a product is, if the kernel computes with them.

    Args:
        dot: the product.
        weight: what the kernel widens of its right operand, if it does.
    """
    widen = dot.operands[0].producer("dequantize")
    quantize = widen.operands[0].producer("quantize") if widen is not None else None
    if widen is None or quantize is None or list(widen.operands) != list(quantize.results):
        return None
    if weight is None or weight.numbers.dtype not in (s8, s4, u4):
        return None
    block = widen.attrs.integers("block")
    plain = quantize.attrs.element("dtype") is s8 and quantize.attrs.number("limit") == LIMIT
    rows = all(size == 1 for size in block[:-1]) and quantize.attrs.integers("block") == block
    if not (plain and rows and quantize.operands[0].dtype is widen.result.dtype):
        return None
    depth = dot.operands[0].type.dims[-1]
    group = min(block[-1], depth)
    if isinstance(weight, GroupedWeight):
        fits = group == weight.group
    else:
        fits = group == depth or group % depth_of_step(s8) == 0
    return IntegerRows(quantize, widen, group) if fits and group <= _DEEPEST else None


# Most terms that the kernel takes.
MOST_TERMS: Final = 8


@dataclass(frozen=True, slots=True)
class AddedTerms:
    """Low-rank terms of a product, for some of its columns each.

    Attributes:
        add: the addition to the product.
        around: the ops that put the terms side by side.
        terms: by their first column.
        x: the values that the terms are of.
    """

    add: Op
    around: list[Op]
    terms: dict[int, LowRankTerm]
    x: Value

    @property
    def ids(self) -> Value:
        """s32 [B], the slots of the rows."""
        (first, *_) = self.terms.values()
        assert first.ids is not None
        return first.ids

    @property
    def ops(self) -> list[Op]:
        """Ops replaced by the kernel, in order, without the ops of the mask."""
        return [*self.inner, *self.around, self.add]

    @property
    def inner(self) -> list[Op]:
        """The products of the terms, and what is between them."""
        found: list[Op] = []
        for term in self.terms.values():
            narrow = [term.narrow] if term.narrow is not None else []
            found += [term.low, term.masked, *narrow, term.op]
        return found

    @property
    def tiles(self) -> str:
        """The tile of columns in which each term starts, as the kernel reads them."""
        return ",".join([str(start // LANES) for start in self.terms])

    def operands(self, b: Builder) -> dict[str, Value]:
        """The slots of the rows, then A [slots, r, in] and the packed B of each term."""
        found = {"ids": self.ids}
        for number, (start, term) in enumerate(self.terms.items()):
            lora_b = term.op.operands[1]
            rows = b.transpose(lora_b, (0, 2, 1)) if term.place == 1 else lora_b
            found[f"a{number}"] = term.low.operands[1]
            found[f"b{number}"] = pack_slots(b, rows, start % LANES)
        return found

    def meaning(self, b: Builder, cloner: Cloner, operands: dict[str, Value]) -> None:
        """Let a body compute the terms of the matrices of each row's slot.

        Args:
            b: appends to the body.
            cloner: maps values of the program to those of the body; ``x`` is there already.
            operands: of :meth:`operands`.
        """
        x, ids = cloner.mapping[self.x], cloner.mapping[self.ids]
        for number, (start, term) in enumerate(self.terms.items()):
            a, packed = [
                b.take(cloner.mapping[operands[f"{name}{number}"]], ids, 0) for name in "ab"
            ]
            columns, rank = term.op.result.type.dims[-1], a.type.dims[1]
            own = a, unpack_slots(b, packed, start % LANES, columns, rank)
            cloner.mapping[term.op.result] = gathered(b, x, own, term)


def match_terms(product: Value, x: Value, prepared: PreparedValues) -> AddedTerms | None:
    """The terms that the only reader of a product adds to it.

    Args:
        product: f32 [..., columns].
        x: its left operand, which has to be that of the terms.
        prepared: says what reads a value.
    """
    add = prepared.only_reader(product)
    if add is None or add.name != "add":
        return None
    first, second = add.operands
    other = second if first is product else first
    join = other.producer("concatenate")
    parts = join.operands if join is not None else (other,)
    around = [op for part in parts for op in zero_ops(part)]
    found = AddedTerms(add, around if join is None else [*around, join], {}, x)
    start = 0
    for part in parts:
        made = part.producer("dot_general")
        term = match_term(made) if made is not None else None
        if isinstance(term, LowRankTerm):
            found.terms[start] = term
        elif not zero_ops(part):
            return None
        start += part.type.dims[-1]
    return found if _fits(found) else None


def _fits(found: AddedTerms) -> bool:
    """True for terms of the product's left operand, in its type, with one input of slots."""
    terms, x = list(found.terms.values()), found.x
    depth = (x.type.rank - 1,)
    return 0 < len(terms) <= MOST_TERMS and all(
        term.low.operands[0] is x
        and term.low.attrs.integers("lhs_contracting_dims") == depth
        and term.ids is not None
        and term.ids is terms[0].ids
        and {term.low.operands[1].dtype, term.op.operands[1].dtype} == {x.dtype}
        for term in terms
    )


def zero_ops(value: Value) -> list[Op]:
    """The constant 0 and its broadcast, if a value is nothing else."""
    spread = value.producer("broadcast_in_dim")
    constant = spread.operands[0].producer("constant") if spread is not None else None
    if spread is None or constant is None or constant.result.shape:
        return []
    return [constant, spread] if list(constant.attrs.literal("value").values()) == [0] else []


# Activations of the kernel by op and by the attribute ``approximate`` of gelu.
_GELU: Final[Mapping[str, str]] = {
    "none": "gelu",
    "tanh": "gelu_tanh",
    "sigmoid": "gelu_sigmoid",
}


@dataclass(slots=True)
class LinearMatch:
    """The ops that one call of the kernel ``linear`` computes.

    Attributes:
        dot: the product.
        narrow: its weight with a scale, if that is in 8 bits.
        grouped: its weight with a scale a group.
        rows: its left operand, if that is rounded to integers.
        norm: the norm of its left operand, if the product and its terms alone read it.
        terms: low-rank terms that are added to the product.
        after: the ops that follow the product, in order.
        bias: [N], what is added to each row of the product.
        residual: what is added to the product.
        activation: of the product, or of the left half of its columns.
        gated: whether the right half is multiplied with the activated left half.
    """

    dot: Op
    narrow: NarrowWeight | None = None
    grouped: GroupedWeight | None = None
    rows: IntegerRows | None = None
    norm: Op | None = None
    terms: AddedTerms | None = None
    after: list[Op] = field(default_factory=list[Op])
    bias: Value | None = None
    residual: Value | None = None
    activation: str = "none"
    gated: bool = False

    @property
    def ops(self) -> list[Op]:
        """All ops, in an order in which they can run."""
        before = [self.norm] if self.norm else []
        before += self.rows.ops if self.rows else []
        scaling = self.narrow.scaling if self.narrow else []
        widen = [weight.widen for weight in (self.narrow, self.grouped) if weight]
        terms = self.terms.ops if self.terms else []
        return [*before, *widen, self.dot, *scaling, *terms, *self.after]

    @property
    def end(self) -> Op:
        """The op with the result."""
        return self.ops[-1]

    @property
    def product(self) -> Value:
        """The product, scaled if its weight has a scale, with its low-rank terms."""
        if self.terms:
            return self.terms.add.result
        scaled = self.narrow is not None and self.narrow.scaling
        return scaled[-1].result if scaled else self.dot.result

    @property
    def x(self) -> Value:
        """The left operand, before the norm."""
        return self.norm.operands[0] if self.norm else self.normed

    @property
    def normed(self) -> Value:
        """The left operand after the norm, before it is rounded to integers."""
        return self.rows.x if self.rows else self.dot.operands[0]

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call; the packed weight is made before it, unpacked in its meaning."""
        norm = self.norm
        weight, scale, zero = self.grouped.packed(b) if self.grouped else self._packed(b)
        operands = present(
            x=self.x,
            weight=weight,
            norm=norm.operands[1] if norm else None,
            offset=norm.operands[2] if norm and norm.name == "layer_norm" else None,
            scale=scale,
            zero=zero,
            bias=self.bias,
            residual=self.residual,
        )
        added = self.terms.operands(b) if self.terms else {}
        operands = {**operands, **added}
        body, cloner = calls.body(operands)
        if self.grouped:
            self.grouped.meaning(appending(body), cloner, (weight, scale, zero))
        else:
            self._unpack(appending(body), cloner, weight)
        config: dict[str, object] = {
            "columns": self.end.result.type.dims[-1],
            "norm": norm is not None,
            "offset": "offset" in operands,
            "epsilon": norm.attrs.number("epsilon") if norm else 0.0,
            "scale": scale is not None,
            "group": self.grouped.group if self.grouped else 0,
            "x_group": self.rows.group if self.rows else 0,
            "zero": zero is not None,
            "bias": self.bias is not None,
            "residual": self.residual is not None,
            "activation": self.activation,
            "gated": self.gated,
        }
        ops = [op for op in self.ops if self.grouped is None or op is not self.grouped.widen]
        if self.terms is None:
            return calls.call("linear", config, body, cloner, operands, ops)
        if norm is not None:
            cloner.op(norm, body.block)
        self.terms.meaning(appending(body), cloner, added)
        made = {norm, *self.terms.inner}
        config["terms"] = self.terms.tiles
        rest = [op for op in ops if op not in made]
        return calls.call("adapted_linear", config, body, cloner, operands, rest)

    @property
    def _weight(self) -> tuple[Value, int]:
        """The right operand before it is widened, and the axis that is contracted."""
        (axis,) = self.dot.attrs.integers("rhs_contracting_dims")
        return self.dot.operands[1] if self.narrow is None else self.narrow.numbers, axis

    def _packed(self, b: Builder) -> tuple[Value, Value | None, None]:
        """The weight in the kernel's layout, and the scale of its columns."""
        weight, axis = self._weight
        packed = pack(b, weight if axis == 1 else b.transpose(weight, (1, 0)))
        return packed, self.narrow.scale if self.narrow else None, None

    def _unpack(self, b: Builder, cloner: Cloner, packed: Value) -> None:
        """Let a body compute the weight of what was packed."""
        weight, axis = self._weight
        columns, depth = weight.type.dims if axis == 1 else reversed(weight.type.dims)
        whole = unpack(b, cloner.mapping[packed], columns, depth)
        cloner.mapping[weight] = whole if axis == 1 else b.transpose(whole, (1, 0))


def match_linear(dot: Op, prepared: PreparedValues) -> LinearMatch | NoMatch:
    """The largest group of ops around ``dot`` that the kernel computes."""
    narrow, grouped = match_narrow(dot, prepared), match_grouped(dot, prepared)
    if isinstance(grouped, NoMatch):
        return grouped
    found = LinearMatch(dot, narrow, grouped)
    why = _why_not(found, prepared)
    if why is not None:
        return why
    found.rows = match_integer_rows(dot, narrow or grouped)
    if found.rows is None:
        found.terms = match_terms(found.product, dot.operands[0], prepared)
    norm = found.normed.producer("rms_norm") or found.normed.producer("layer_norm")
    if norm is not None and _reads_alone(found, norm, prepared) and _norm_fits(norm, dot):
        found.norm = norm
    if not _add_gate(found, prepared):
        _add_bias(found, prepared)
        if not _add_activation(found, prepared):
            _add_residual(found, prepared)
        if found.residual is None:
            _add_rounding(found, prepared)
    return found


def _why_not(found: LinearMatch, prepared: PreparedValues) -> NoMatch | None:
    dot = found.dot
    lhs, rhs = dot.operands
    narrow = found.narrow or found.grouped
    if dot.attrs.integers("lhs_batch_dims"):
        return no_match("it has batch dimensions", lhs)
    if rhs.type.rank != 2 or not prepared.of_weights(narrow.numbers if narrow else rhs):
        return no_match("its right operand is not a matrix made of weights alone", rhs, depth=2)
    if lhs in prepared:
        return no_match("its left operand is made of weights itself", lhs, depth=3)
    if dot.attrs.integers("lhs_contracting_dims") != (lhs.type.rank - 1,):
        return no_match("the left side does not contract its last dimension", lhs, depth=4)
    if rhs.dtype not in (bf16, f16, f32) or lhs.dtype is not rhs.dtype:
        return no_match(f"the kernel has no products of {lhs.dtype} and {rhs.dtype}", rhs, depth=5)
    if dot.result.dtype not in (rhs.dtype, f32):
        return no_match(f"the kernel gives no {dot.result.dtype} here", dot.result, depth=6)
    if not all((*lhs.type.dims, *rhs.type.dims)):
        return no_match("it has no elements", lhs, depth=7)
    return None


def _reads_alone(found: LinearMatch, norm: Op, prepared: PreparedValues) -> bool:
    """True if the product and its low-rank terms alone read a norm."""
    if found.rows:
        rounded = found.rows.only_op(prepared)
        return rounded is not None and prepared.only_reader(norm.result) is rounded
    terms = found.terms.terms.values() if found.terms else ()
    readers = {found.dot, *[term.low for term in terms]}
    return set(norm.result.users) == readers and not prepared.function.returns(norm.result)


def _norm_fits(norm: Op, dot: Op) -> bool:
    """True where the kernel rounds as the norm does: to the type of the product's operands."""
    x, *vectors = norm.operands
    kinds = {norm.result.dtype, *[vector.dtype for vector in vectors]}
    return x.dtype is f32 and kinds == {dot.operands[1].dtype}


def _added(found: LinearMatch, prepared: PreparedValues) -> tuple[Op, Value] | None:
    """The addition that alone reads the last value so far, and what it adds."""
    value = found.end.result
    add = prepared.only_reader(value)
    if add is None or add.name != "add" or value.dtype is not f32:
        return None
    return add, add.operands[1] if add.operands[0] is value else add.operands[0]


def _add_bias(found: LinearMatch, prepared: PreparedValues) -> None:
    """Take in the addition of one row to all."""
    added = _added(found, prepared)
    if added is None:
        return
    add, other = added
    spread = other.producer("broadcast_in_dim")
    if spread is not None and spread.attrs.integers("dimensions") == (other.type.rank - 1,):
        bias = spread.operands[0]
        if bias.type.dims == other.type.dims[-1:]:
            found.after, found.bias = [spread, add], bias


def _add_residual(found: LinearMatch, prepared: PreparedValues) -> None:
    """Take in the addition of a value of the same shape, if that is computed by the program."""
    added = _added(found, prepared)
    if added is None:
        return
    add, other = added
    if other not in prepared and other.producer("broadcast_in_dim") is None:
        found.after.append(add)
        found.residual = other


def _add_rounding(found: LinearMatch, prepared: PreparedValues) -> None:
    """Take in the conversion of an f32 value to 16 bits."""
    narrow = prepared.only_reader(found.end.result)
    if narrow is None or narrow.name != "convert" or found.end.result.dtype is not f32:
        return
    if narrow.result.dtype in (bf16, f16):
        found.after.append(narrow)


def _add_gate(found: LinearMatch, prepared: PreparedValues) -> bool:
    """Take in ``activation(left) * right`` of the two halves; False if there is none."""
    product = found.product
    half, odd = divmod(product.type.dims[-1], 2)
    if odd or half % LANES or product.dtype is not f32 or prepared.function.returns(product):
        return False
    slices = {_start(op, half): op for op in product.users if op.name == "slice"}
    left, right = slices.get(0), slices.get(half)
    if len(product.users) != 2 or left is None or right is None:
        return False
    active = prepared.only_reader(left.result)
    kind = _activation(active) if active is not None else ""
    if active is None or not kind:
        return False
    multiply = prepared.only_reader(active.result)
    if multiply is None or multiply is not prepared.only_reader(right.result):
        return False
    if multiply.name != "multiply":
        return False
    found.activation, found.after = kind, [left, active, right, multiply]
    found.gated = True
    _add_rounding(found, prepared)
    return True


def _add_activation(found: LinearMatch, prepared: PreparedValues) -> bool:
    """Take in the activation of the whole product; False if there is none."""
    value = found.end.result
    active = prepared.only_reader(value)
    if active is None or value.dtype is not f32:
        return False
    if active.name == "maximum":
        other = active.operands[1 if active.operands[0] is value else 0]
        zeros = zero_ops(other)
        if not zeros:
            return False
        found.activation, found.after = "relu", [*found.after, *zeros, active]
        return True
    kind = _activation(active)
    if kind:
        found.activation = kind
        found.after.append(active)
    return bool(kind)


def _start(op: Op, half: int) -> int:
    """The first column of a slice of half of the columns; -1 for any other slice."""
    *outer, columns = bounds(op)
    if outer != [(0, size, 1) for size in op.operands[0].shape[:-1]]:
        return -1
    return next((start for start in (0, half) if columns == (start, start + half, 1)), -1)


def _activation(op: Op) -> str:
    """The kernel's name of an activation; empty for any other op."""
    if op.name == "silu":
        return "silu"
    return _GELU.get(op.attrs.text("approximate"), "") if op.name == "gelu" else ""
