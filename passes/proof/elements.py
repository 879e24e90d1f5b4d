"""Elements of values at symbolic indices: the walk over a program, and the table of rules.

A rule gives one element of an op's result from elements of its operands. An op without a rule is a
function of its whole operands: two such ops are equal where their operands are, element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from graphgen.composites import DECOMPOSITIONS, decompose
from graphgen.composites.error_function import error_function
from graphgen.composites.registry import Decomposition
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Dim, DType, Function, Module, Op, TensorType, Value
from graphgen.ir.clone import clone_function
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import Kind, f64, highest, lowest
from graphgen.ops import OPS
from graphgen.ops.control import callees, renamed
from graphgen.ops.traits import Trait
from graphgen.passes.proof.floats import (
    CHOOSING,
    PLAIN,
    ProofLevel,
    Rounding,
    in_wide_type,
    range_text,
    span,
)
from graphgen.passes.proof.integers import fit, range_of
from graphgen.passes.proof.rebuild import ANY_ORDER, FLAT, flat_function, function_term
from graphgen.passes.proof.terms import Node, Term, Terms, size_name
from graphgen.text.printer import print_function

Index = tuple[Dim, ...]
# (elements, op, index of the result's element) -> the element, or None for an op whose attributes
# or sizes the rule does not cover.
Rule = Callable[["Elements", Op, Index], Term | None]
RULES: dict[str, Rule] = {}
# Ops whose float results change little where their float operands do; for other ops the types of
# their operands count in real arithmetic, too.
_CONTINUOUS = frozenset(
    (
        *("abs", "add", "atan2", "cbrt", "clamp", "cosine", "divide", "erf", "exponential"),
        *("exponential_minus_one", "log", "log_plus_one", "logistic", "maximum", "minimum"),
        *("multiply", "negate", "power", "rsqrt", "sine", "sqrt", "subtract", "tan", "tanh"),
        *("all_gather", "all_reduce", "all_to_all", "collective_permute", "reduce_scatter"),
        *("cholesky", "convolution", "fft", "reduce", "reduce_window", "triangular_solve"),
        *("broadcast_in_dim", "dynamic_slice", "dynamic_update_slice", "gather", "pad", "reshape"),
        *(
            "bitcast_convert",
            "scatter",
            "select",
            "take",
            "dot_general",
            "attention",
            "attention_part",
            "cache_read",
        ),
        *("dequantize", "dequantize_rows", "embedding", "gelu", "kv_move", "kv_update", "rope"),
        *("last_token", "layer_norm", "rms_norm", "rope_table", "silu"),
    )
)
# Ops that sum over variables, or look for one.
SUMMING = (
    *(
        "all_reduce",
        "convolution",
        "custom_call",
        "dot_general",
        "reduce",
        "reduce_scatter",
        "scatter",
        "sort",
    ),
)

# Functions that have a formula, to the last digit of f64: its rounding is that of f32.
_FORMULAS: Mapping[str, Decomposition] = {
    "erf": lambda b, operands, attrs: [error_function(b, operands[0])],
}


# Ops that round floats to the nearest whole numbers.
ROUNDING = ("round_nearest_even", "round_nearest_afz")
# Rules of numbers that are kept in narrow types: payloads, and what is rounded to be one.
PAYLOADS: dict[str, Rule] = {}


def payload_rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some ops whose result is a payload, or is rounded to be one."""

    def wrap(rule: Rule) -> Rule:
        PAYLOADS.update(dict.fromkeys(names, rule))
        return rule

    return wrap


# Bits of a type that sums over a dimension of any size are taken in.
_ACCUMULATOR = 32


# Rules that only deep elements use.
DEEP: set[str] = set()


def element_rule(*names: str, deep: bool = False) -> Callable[[Rule], Rule]:
    """Register the rule of some ops."""

    def wrap(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
            if deep:
                DEEP.add(name)
        return rule

    return wrap


# The element of a value at an index on a rank, by other means than the op that makes it.
Related = Callable[["Elements", Index, Dim], Term]


@dataclass(slots=True)
class Ranks:
    """Relations of a program that runs on every rank.

    Attributes:
        count: the number of ranks.
        rank: the rank that elements are of.
        related: values of which elements are known otherwise: arguments that other values make, and
            values that are equal to a value of the model.
        sources: the values that arguments among these are made of, if any.
        arbitrary: pads with an undefined value, and the name of the state that is padded.
        prefix: of the names of variables of sums, another one for each program.
    """

    count: int = 1
    rank: Dim = 0
    related: dict[Value, Related] = field(default_factory=dict[Value, Related])
    sources: dict[Value, Value] = field(default_factory=dict[Value, Value])
    arbitrary: dict[Op, str] = field(default_factory=dict[Op, str])
    prefix: str = "sum"


@dataclass(slots=True)
class Elements:
    """Elements of the values of one program.

    Attributes:
        terms: shared by the programs that are compared.
        args: name of each argument; values of one name are equal in all of them.
        made: for arguments that another function makes, such as prepared weights, its value there.
        expand: whether composites are replaced by their decompositions.
        ranges: lowest and highest element of arguments by name, if known.
        level: how far rounding counts.
        typed: of elements in real arithmetic, those of which types count; integers and truth
            values are these, unless they are the bits of floats, or payloads.
        ranks: how values of ranks are related to others.
        result: number of the result of which a rule gives the element.
        bodies: text of each function that ops of the program may run.
        functions: these functions by name; without them such ops are compared by their texts.
        returned: values that are read by more than the ops that use them, as outputs are.
        deep: whether elements are followed through gathers, writes, sorts and collectives, and sums
            have the normal form of ``sums``. Terms of many ops are too large for that, unless
            values on the way are variables, as they are in ``refinement``.
    """

    terms: Terms
    args: Mapping[Value, str]
    made: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    expand: bool = False
    ranges: Mapping[str, tuple[Dim, Dim]] = field(default_factory=dict[str, tuple[Dim, Dim]])
    level: ProofLevel = ProofLevel.EXACT
    typed: Elements | None = None
    ranks: Ranks = field(default_factory=lambda: Ranks())
    result: int = 0
    bodies: Mapping[str, str] = field(default_factory=dict[str, str])
    deep: bool = False
    functions: Mapping[str, Function] = field(default_factory=dict[str, Function])
    returned: set[Value] = field(default_factory=set[Value])
    _known: dict[Value, dict[tuple[Index, Dim], Term]] = field(
        default_factory=dict[Value, dict[tuple[Index, Dim], Term]]
    )
    # Of expanded composites: what each result is, and what each argument of the body stands for.
    _bodies: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _inner: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _kept: list[Function] = field(default_factory=list[Function])
    # Functions that ops run, each with arguments of its own.
    _instances: dict[tuple[Op, str], Function] = field(
        default_factory=dict[tuple[Op, str], Function]
    )
    _heights: dict[Value, int] = field(default_factory=dict[Value, int])
    _bits: dict[Value, bool] = field(default_factory=dict[Value, bool])
    _payloads: dict[Value, tuple[int, int] | None] = field(
        default_factory=dict[Value, tuple[int, int] | None]
    )

    def in_real_arithmetic(self) -> Elements:
        """The elements of the same values with rounding left out."""
        typed = self._at_level(ProofLevel.TYPED)
        return typed._at_level(ProofLevel.REAL, typed)

    def _at_level(self, level: ProofLevel, typed: Elements | None = None) -> Elements:
        given = self.terms, self.args, self.made, self.expand, self.ranges
        out = Elements(*given, level, typed, self.ranks, bodies=self.bodies, deep=self.deep)
        out._bodies, out._inner, out._kept = self._bodies, self._inner, self._kept
        out.functions, out._instances = self.functions, self._instances
        out.returned = self.returned
        return out

    def at(self, value: Value, index: Index) -> Term:
        """The element of ``value`` at ``index``."""
        related = self.ranks.related.get(value)
        if related is not None:
            return related(self, index, self.ranks.rank)
        value = self._meaning(value)
        whole = not value.dtype.is_float and not self.is_bits(value)
        if self.typed is not None and whole and not self.is_payload(value):
            return self.typed.at(value, index)
        known, key = self._known.setdefault(value, {}), (index, self.ranks.rank)
        found = known.get(key)
        if found is None:
            found = known[key] = self._element(value, index)
        return found

    def on_rank(self, value: Value, index: Index, rank: Dim) -> Term:
        """The element of ``value`` at ``index`` on another rank."""
        before, self.ranks.rank = self.ranks.rank, rank
        try:
            return self.at(value, index)
        finally:
            self.ranks.rank = before

    def forget(self, value: Value | None = None) -> None:
        """Forget elements, of all values or one, after a value was related to another one."""
        if value is None:
            self._known.clear()
        else:
            self._known.pop(value, None)

    def integer(self, value: Value, index: Index) -> Dim:
        """The element of a value of an integer type; of a payload, as the type rounds it."""
        source = self.typed if self.typed is not None and self.is_payload(value) else self
        found = source.at(value, index)
        assert isinstance(found, int | Poly), found
        return found

    def source_of(self, value: Value) -> Value | None:
        """The value that an argument is made of, or that one is computed like, if any."""
        return self._inner.get(value) or self.made.get(value) or self.ranks.sources.get(value)

    def whole(self, value: Value) -> Node:
        """A value as a whole: its element at the index variables of its shape."""
        index = tuple(
            self.terms.variable(f"dim{axis}_{size_name(size)}", size)
            for axis, size in enumerate(value.shape)
        )
        return self.terms.node("whole", value.type.shape, self.at(value, index))

    def height(self, value: Value) -> int:
        """Number of nested sums that a value is computed by; it names their variables."""
        value = self._meaning(value)
        source = self.source_of(value)
        if source is not None:
            return self.height(source)
        found = self._heights.get(value)
        if found is None:
            op, below = value.op, 0
            inner = [f.outputs[value.index][1] for f in self._run_by(op)] if op is not None else []
            for operand in (*op.operands, *inner) if op is not None else ():
                below = max(below, self.height(operand))
            found = below + (op is not None and op.name in SUMMING)
            self._heights[value] = found
        return found

    def instance(self, op: Op, name: str, operands: Sequence[Value]) -> Function | None:
        """A copy of a function that an op runs, whose arguments are these operands.

        ``None`` if the function is not known.
        """
        key = op, name
        if key not in self._instances and name in self.functions:
            made = self._instances[key] = clone_function(self.functions[name])
            self.returned.update(value for _, value in made.outputs)
            for arg, operand in zip(made.args, operands, strict=True):
                self._inner[arg] = operand
        return self._instances.get(key)

    def _run_by(self, op: Op) -> list[Function]:
        """The functions that an op runs, as far as a rule follows them."""
        if not self.deep or op.name not in ("call", "conditional", "while"):
            return []
        if op.name == "conditional":
            first = op.attrs.integers("takes")[0]
            names = op.attrs.names("branches")
            parts = [op.operands[1 : 1 + first], op.operands[1 + first :]]
            if len(names) != len(parts):
                return []
        else:
            names = [op.attrs.text("to_apply" if op.name == "call" else "body")]
            parts = [op.operands]
        made = [self.instance(op, name, part) for name, part in zip(names, parts, strict=True)]
        return [function for function in made if function is not None]

    def is_bits(self, value: Value) -> bool:
        """True for integers that are the bits of floats, moved or not, as caches may be."""
        value = self._meaning(value)
        found = self._bits.get(value)
        if found is None:
            op, source = value.op, self.source_of(value)
            reads = [source] if source is not None else op.operands if op is not None else []
            if op is not None and op.name == "bitcast_convert":
                (inner,) = op.operands
                held = inner.dtype.is_float or self.is_payload(inner)
                found = held and not value.dtype.is_float
            elif op is None or op.name == "select" or OPS[op.name].has(Trait.DATA_MOVEMENT):
                found = any(x.dtype is value.dtype and self.is_bits(x) for x in reads)
            else:
                found = False
            self._bits[value] = found
        return found

    def is_payload(self, value: Value) -> bool:
        """True for integers that are numbers kept in a narrow type, moved, added or multiplied."""
        return self._payload_ends(value) is not None

    def _payload_ends(self, value: Value) -> tuple[int, int] | None:
        """The lowest and highest number of a payload; ``None`` for other values."""
        if self.typed is None or not self.terms.narrow or value.dtype.is_float:
            return None
        value = self._meaning(value)
        if value not in self._payloads:
            source = self.source_of(value)
            self._payloads[value] = (
                self._payload_ends(source) if source is not None else self._ends_made(value)
            )
        return self._payloads[value]

    def _ends_made(self, value: Value) -> tuple[int, int] | None:
        op = value.op
        if op is None or not value.dtype.is_integer:
            return None
        whole = int(lowest(value.dtype)), int(highest(value.dtype))
        if op.name == "bitcast_convert":
            kept = value.dtype in self.terms.narrow and self.is_bits(op.operands[0])
            return whole if kept else None
        if op.name == "convert" and op.operands[0].dtype.is_float:
            return whole if is_kept(value, self.terms.narrow) else None
        if op.name in ("add", "multiply", "subtract", "negate", "dot_general", "convert"):
            ends = [self._payload_ends(x) for x in op.operands]
            parts = [x for x in ends if x is not None]
            return self._computed_ends(op, parts, whole) if len(parts) == len(ends) else None
        moved = op.name == "select" or OPS[op.name].has(Trait.DATA_MOVEMENT)
        same = [self._payload_ends(x) for x in op.operands if x.dtype is value.dtype]
        if not moved or not any(same):
            return None
        # An element that is moved beside a payload is any number of the type.
        return (
            min(low for low, _ in (x or whole for x in same)),
            max(high for _, high in (x or whole for x in same)),
        )

    def _computed_ends(
        self, op: Op, parts: Sequence[tuple[int, int]], whole: tuple[int, int]
    ) -> tuple[int, int] | None:
        """The ends of what is computed of payloads; ``None`` where the type does not hold it.

        A sum over dimensions whose sizes have no known limit is assumed to be held by 32 bits.
        """
        low, high = ends_of(op.name, parts)
        if op.name != "dot_general":
            return (low, high) if whole[0] <= low and high <= whole[1] else None
        count: Dim = 1
        for axis in op.attrs.integers("lhs_contracting_dims"):
            count = count * op.operands[0].shape[axis]
        if isinstance(count, int):
            low, high = min(low * count, 0), max(high * count, 0)
            return (low, high) if whole[0] <= low and high <= whole[1] else None
        held = self.terms.at_most(count * high, whole[1])
        held = held and self.terms.at_least(count * low, whole[0])
        if not held and op.results[0].dtype.bits >= _ACCUMULATOR:
            self.terms.assumed.add(f"no sum of payloads in {op.results[0].dtype.name} overflows")
            held = True
        return whole if held else None

    def summed(self, op: Op, axis: int, size: Dim) -> Dim:
        """The variable of a sum over dimension ``axis`` of the op's sum."""
        name = f"{self.ranks.prefix}{self.height(op.results[0])}_{axis}_{size_name(size)}"
        return self.terms.variable(name, size)

    def _meaning(self, value: Value) -> Value:
        """The value, or what it is in the decomposition of its composite."""
        op = value.op
        if op is None or not self.expand or not self._is_expanded(op):
            return value
        if value not in self._bodies:
            self._decompose(op)
        return self._meaning(self._bodies[value])

    def _is_expanded(self, op: Op) -> bool:
        """True for a composite, and for a function that a formula has but for rounding."""
        if op.name in _FORMULAS:
            wide = op.operands[0].dtype is f64 or not op.operands[0].dtype.is_float
            return self.level is not ProofLevel.EXACT and not wide
        return OPS[op.name].composite

    def _decompose(self, op: Op) -> None:
        body = decompose(op, _FORMULAS.get(op.name) or DECOMPOSITIONS[op.name])
        self._kept.append(body)
        for result, (_, made) in zip(op.results, body.outputs, strict=True):
            self._bodies[result] = made
            self.returned.add(made)
        for arg, operand in zip(body.args, op.operands, strict=True):
            self._inner[arg] = operand

    def _element(self, value: Value, index: Index) -> Term:
        op = value.op
        if op is None:
            operand = self._inner.get(value) or self.made.get(value)
            return self._argument(value, index) if operand is None else self.at(operand, index)
        self.result = value.index
        found = self._narrow_element(op, value, index)
        if found is None:
            rule = RULES.get(op.name) if self.deep or op.name not in DEEP else None
            found = rule(self, op, index) if rule is not None else None
        self.terms.rules.add(f"opaque {op.name}" if found is None else f"element {op.name}")
        return self._opaque(op, value, index) if found is None else found

    def _narrow_element(self, op: Op, value: Value, index: Index) -> Term | None:
        """An element of a payload, or of what is rounded to be one."""
        if self.level is not ProofLevel.REAL or not self.terms.narrow or op.name not in PAYLOADS:
            return None
        rounds = value.dtype.is_float and op.name in (*ROUNDING, "clamp")
        if not rounds and not self.is_payload(value):
            return None
        return PAYLOADS[op.name](self, op, index)

    def _argument(self, value: Value, index: Index) -> Term:
        name = self.args.get(value)
        if name is None:
            raise GraphgenError("GG0302", f"{value!r} is not an argument of the programs compared")
        node = self.terms.node("at", name, value.type, *index)
        if name in self.ranges:
            return self.terms.atom(node, *self.ranges[name])
        return self.of_type(node, value.dtype)

    def _opaque(self, op: Op, value: Value, index: Index) -> Term:
        """An element of an op without a rule."""
        source = self if op.name in _CONTINUOUS or self.typed is None else self.typed
        if OPS[op.name].has(Trait.ELEMENTWISE):
            parts = [source.at(x, index if x.type.rank else ()) for x in op.operands]
            return self.of_type(self.apply(op, parts), value.dtype)
        operands = [source.whole(operand) for operand in op.operands]
        how = (
            self.attributes_of(op),
            value.index,
            *[source.rounding(x.dtype) for x in op.operands],
        )
        made = self.terms.node("op", op.name, self.rounding(value.dtype), how, *operands, *index)
        return self.of_type(self.made_by(made, op), value.dtype)

    def attributes_of(self, op: Op) -> Attrs:
        """The attributes of an op, which name functions by what they do."""
        names = callees(op)
        if not names:
            return op.attrs
        # A function of an unknown module is equal to no other one.
        return renamed(op, {name: self.bodies.get(name, f"{name} {id(op)}") for name in names})

    def apply(self, op: Op, parts: list[Term]) -> Node:
        """An elementwise op on elements."""
        # Of two zeros the larger one may be either.
        exact = self.level is ProofLevel.EXACT and op.results[0].dtype.is_float
        ordered = exact and op.name in CHOOSING
        if OPS[op.name].has(Trait.COMMUTATIVE) and not ordered:
            parts = sorted(parts, key=self.terms.order)
        made, given = op.results[0].dtype, op.operands[0].dtype
        chosen = op.name in CHOOSING and self.is_plain(made)
        decided = op.name in ("compare", "is_finite") and given.is_float
        to = None if chosen or decided else self.rounding(made)
        how: object = op.attrs
        if to is not None and made is not given and not (op.name == "convert" and given.is_float):
            how = (op.attrs, given)
        if chosen and OPS[op.name].has(Trait.COMMUTATIVE) and not ordered:
            how = ANY_ORDER
        if self.level is ProofLevel.REAL and op.name in ("divide", "subtract"):
            return self.made_by(function_term(self.terms, op.name, to, how, parts), op)
        if self.level is not ProofLevel.EXACT and op.name in FLAT:
            return self.made_by(flat_function(self.terms, op.name, to, how, parts), op)
        return self.made_by(self.terms.node("fn", op.name, to, how, *parts), op)

    def rounding(self, dtype: DType) -> Rounding:
        """Return the type, or the range, that an op with a result of this type rounds to."""
        if self.level is not ProofLevel.REAL or not dtype.is_float:
            return dtype
        if dtype in self.terms.narrow and span(dtype).dtype is dtype:
            self.terms.assumed.add(range_text(dtype))
        return span(in_wide_type(self.terms, dtype))

    def is_plain(self, dtype: DType) -> bool:
        """True for a type with the largest and smallest numbers of all others beside it."""
        narrow = self.level is ProofLevel.REAL and dtype in self.terms.narrow
        return dtype in PLAIN or narrow

    def made_by(self, node: Node, op: Op) -> Node:
        """The node, with the op as its maker if it is the first."""
        if node not in self.terms.makers:
            self.terms.makers[node] = place_of(op)
        return node

    def of_type(self, node: Node, dtype: DType) -> Term:
        """A node as an element of this type: an integer becomes an atom in the type's range."""
        if is_truth(dtype):
            return self.terms.node("truth", node)
        return self.terms.atom(node, *range_of(dtype)) if dtype.is_integer else node

    def fitted(self, value: Dim, type_: TensorType) -> Dim:
        """An integer result as its type holds it."""
        return fit(self.terms, value, type_.dtype)


def is_kept(value: Value, narrow: frozenset[DType]) -> bool:
    """True for a conversion of numbers that were rounded to whole ones, to a narrow type."""
    op = value.op
    if op is None or op.name != "convert" or value.dtype not in narrow:
        return False
    source = op.operands[0]
    while source.op is not None and source.op.name == "clamp":
        source = source.op.operands[1]
    return source.dtype.is_float and source.op is not None and source.op.name in ROUNDING


def bodies_of(module: Module) -> dict[str, str]:
    """The text of each function of a module that is not a program, without names."""
    out: dict[str, str] = {}
    called = {x for f in module.functions.values() for op in f.block for x in callees(op)}
    for name, function in module.functions.items():
        if function.phase or name not in called:
            continue
        copy = clone_function(function)
        copy.name = "body"
        for op in copy.block:
            # Functions stand before those that run them.
            op.attrs = renamed(
                op, {x: sha256(out.get(x, x).encode()).hexdigest() for x in callees(op)}
            )
        copy.outputs = [(f"r{n}", value) for n, (_, value) in enumerate(copy.outputs)]
        values = [*copy.args, *[result for op in copy.block for result in op.results]]
        numbers = {value: str(number) for number, value in enumerate(values)}
        out[name] = print_function(copy, locs=False, names=numbers)
    return out


def place_of(op: Op) -> str:
    """An op by name, result and source line."""
    name = f" %{op.results[0].name}" if op.results and op.results[0].name else ""
    line = f"{op.loc.file}:{op.loc.line}" if op.loc.line else ""
    where = " ".join(part for part in (line, op.loc.scope) if part)
    return f"{op.name}{name}{', ' + where if where else ''}"


def ends_of(name: str, parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The lowest and highest result of a function of integers in ranges; of ``dot``, of a term."""
    first, last = parts[0], parts[-1]
    match name:
        case "add":
            return first[0] + last[0], first[1] + last[1]
        case "subtract":
            return first[0] - last[1], first[1] - last[0]
        case "negate":
            return -first[1], -first[0]
        case "multiply" | "dot_general":
            products = [a * b for a in first for b in last]
            return min(products), max(products)
        case _:
            return first


def is_truth(dtype: DType) -> bool:
    """True for ``pred``."""
    return dtype.kind is Kind.PRED
