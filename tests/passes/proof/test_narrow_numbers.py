"""Numbers that a caller asks to keep in narrow types are proved with right scales alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Module, TensorType, dtype
from graphgen.ir.attrs import EMPTY, attrs_of
from graphgen.ir.dims import symbol
from graphgen.ir.dtype import f8e4m3, f16, f32, s8
from graphgen.ir.types import tensor
from graphgen.passes.equiv.refute import with_counterexamples
from graphgen.passes.proof.choices import cases_of, equal_in_cases, within_choice
from graphgen.passes.proof.floats import range_text
from graphgen.passes.proof.indexing_rules import written
from graphgen.passes.proof.integers import choose
from graphgen.passes.proof.narrow_numbers import bound_of, covers, is_nonzero
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.rebuild import flat_function
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.sums import summed
from graphgen.passes.proof.terms import Node, Term
from graphgen.text import parse
from tests.passes.proof.normal_form_checks import ARRAYS, SIZES, TO, Drawn

DRAWS = 150
F8, S4 = dtype("f8e4m3fn"), dtype("s4")

# ---- programs ------------------------------------------------------------------------------------

MODEL = """
  %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[4,6]"""
SCALE = """
  %a = abs(%w) : f32[6,8]
  %m = reduce(%a) dimensions=[1] kind=maximum : f32[6]
  %c = constant() value=f32[](MOST) : f32[]
  %cb = broadcast_in_dim(%c) shape=[6] : f32[6]
  %q = divide(%m, %cb) : f32[6]
  %t = constant() value=f32[](1.1754944e-38) : f32[]
  %tb = broadcast_in_dim(%t) shape=[6] : f32[6]
  %s = maximum(%q, %tb) : f32[6]
  %sb = broadcast_in_dim(%s) shape=[6,8] dimensions=[0] : f32[6,8]
  %d = divide(%w, %sb) : f32[6,8]"""
WHOLE = """
  %r = round_nearest_even(%d) : f32[6,8]
  %k = convert(%r) dtype=TYPE : TYPE[6,8]"""
FLOAT = """
  %k = convert(%d) dtype=TYPE : TYPE[6,8]"""
SCALED = """
  %f = convert(%k) dtype=f32 : f32[6,8]
  %z = dot_general(%x, %f) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[4,6]
  %u = broadcast_in_dim(%s) shape=[4,6] dimensions=[1] : f32[4,6]
  %y = multiply(%z, %u) : f32[4,6]"""
CLAMPED = """
  %sb = constant() value=f32[](0.02) : f32[]
  %sd = broadcast_in_dim(%sb) shape=[6,8] : f32[6,8]
  %g = divide(%w, %sd) : f32[6,8]
  %lo = constant() value=f32[](-MOST) : f32[]
  %hi = constant() value=f32[](MOST) : f32[]
  %d = clamp(%lo, %g, %hi) : f32[6,8]"""
FIXED = """
  %f = convert(%k) dtype=f32 : f32[6,8]
  %v = multiply(%f, %sd) : f32[6,8]
  %y = dot_general(%x, %v) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[4,6]"""
MEASURED, STATIC = SCALE + WHOLE + SCALED, CLAMPED + WHOLE + FIXED
# A payload of w and one of x, each with the scale of its rows.
PAIR = """
  %z = constant() value=f32[](127.0) : f32[]
  %t = constant() value=f32[](1.1754944e-38) : f32[]
  %zw = broadcast_in_dim(%z) shape=[6] : f32[6]
  %tw = broadcast_in_dim(%t) shape=[6] : f32[6]
  %wa = abs(%w) : f32[6,8]
  %wm = reduce(%wa) dimensions=[1] kind=maximum : f32[6]
  %wq = divide(%wm, %zw) : f32[6]
  %ws = maximum(%wq, %tw) : f32[6]
  %wb = broadcast_in_dim(%ws) shape=[6,8] dimensions=[0] : f32[6,8]
  %wd = divide(%w, %wb) : f32[6,8]
  %wr = round_nearest_even(%wd) : f32[6,8]
  %wk = convert(%wr) dtype=s8 : s8[6,8]
  %zx = broadcast_in_dim(%z) shape=[4] : f32[4]
  %tx = broadcast_in_dim(%t) shape=[4] : f32[4]
  %xa = abs(%x) : f32[4,8]
  %xm = reduce(%xa) dimensions=[1] kind=maximum : f32[4]
  %xq = divide(%xm, %zx) : f32[4]
  %xs = maximum(%xq, %tx) : f32[4]
  %xb = broadcast_in_dim(%xs) shape=[4,8] dimensions=[0] : f32[4,8]
  %xd = divide(%x, %xb) : f32[4,8]
  %xr = round_nearest_even(%xd) : f32[4,8]
  %xk = convert(%xr) dtype=s8 : s8[4,8]"""
SUM = """
  %s = dot_general(%xk, %wk) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=ACC : ACC[4,6]
  %h = convert(%s) dtype=TYPE : TYPE[4,6]
  %f = convert(%h) dtype=f32 : f32[4,6]
  %u = broadcast_in_dim(%ws) shape=[4,6] dimensions=[1] : f32[4,6]
  %v = broadcast_in_dim(%xs) shape=[4,6] dimensions=[0] : f32[4,6]
  %g = multiply(%f, %u) : f32[4,6]
  %y = multiply(%g, %v) : f32[4,6]"""
FIRST = """
  %i = slice(%w) start_indices=[0,0] limit_indices=[4,8] : f32[4,8]
  %y = NAME(%x, %i) : f32[4,8]"""
PRODUCT = """
  %i = slice(%wk) start_indices=[0,0] limit_indices=[4,8] : s8[4,8]
  %xw = convert(%xk) dtype=TYPE : TYPE[4,8]
  %ww = convert(%i) dtype=TYPE : TYPE[4,8]
  %p = multiply(%xw, %ww) : TYPE[4,8]
  %f = convert(%p) dtype=f32 : f32[4,8]
  %o = slice(%wb) start_indices=[0,0] limit_indices=[4,8] : f32[4,8]
  %g = multiply(%f, %xb) : f32[4,8]
  %y = multiply(%g, %o) : f32[4,8]"""
CONVERTED = """
  %k = convert(%xk) dtype=TYPE : TYPE[4,8]
  %f = convert(%k) dtype=f32 : f32[4,8]
  %y = multiply(%f, %xb) : f32[4,8]"""
ITSELF = """
  %o = constant() value=f32[](1.0) : f32[]
  %u = broadcast_in_dim(%o) shape=[4,8] : f32[4,8]
  %y = multiply(%x, %u) : f32[4,8]"""
PLACE = """
  %n = constant() value=s32[](0) : s32[]
  %a = slice(%x) start_indices=[0,0] limit_indices=[1,1] : f32[1,1]
  %b = slice(%x) start_indices=[1,0] limit_indices=[2,1] : f32[1,1]LINES
  %i = convert(%k) dtype=s32 : s32[1,1]
  %j = reshape(%i) shape=[] : s32[]
  %y = dynamic_slice(%w, %n, %j) slice_sizes=[6,1] : f32[6,1]"""
ROUNDED_SUM = """
  %e = add(%a, %b) : f32[1,1]
  %r = round_nearest_even(%e) : f32[1,1]
  %k = convert(%r) dtype=s8 : s8[1,1]"""
SUM_OF_ROUNDED = """
  %c = round_nearest_even(%a) : f32[1,1]
  %d = round_nearest_even(%b) : f32[1,1]
  %e = convert(%c) dtype=s8 : s8[1,1]
  %f = convert(%d) dtype=s8 : s8[1,1]
  %k = add(%e, %f) : s8[1,1]"""
BYTES = """
  %n = bitcast_convert(%x) dtype=u8 : u8[4,8,4]
  %i = bitcast_convert(%w) dtype=u8 : u8[6,8,4]
  %p = concatenate(%n, %i) dimension=0 : u8[10,8,4]
  %l = slice(%p) start_indices=[4,0,0] limit_indices=[10,8,4] : u8[6,8,4]
  %b = bitcast_convert(LAST) dtype=f32 : f32[6,8]
  %y = dot_general(%x, %b) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[4,6]"""


ROWS_OF_MODEL = "  input %x : f32[4,8]\n  input %w : f32[6,8]\n  output %y : f32[4,6]\n"


def module(lines: str, interface: str = "", **words: str) -> Module:
    """A program with these lines, in which words are replaced."""
    for word, text in words.items():
        lines = lines.replace(word, text)
    args = "\n  arg %x : f32[4,8]\n  arg %w : f32[6,8]"
    text = f"func @f phase=decode {{{args}{lines}\n  return y = %y\n}}\n"
    return parse(f"module @m level=target {{\n{interface}}}\n\n{text}", "case")


def verdict(
    lines: str, narrow: Sequence[DType], of: str = MODEL, **words: str
) -> tuple[Status, Sequence[str]]:
    """The verdict on the output of a program, and what is assumed."""
    found = prove_refinement(module(of), module(lines, **words), narrow)
    (claim,) = found.claims
    return claim.status, found.assumptions


@pytest.mark.parametrize(
    ("lines", "kind", "most"),
    [
        (MEASURED, s8, "127.0"),
        (MEASURED, s8, "127.5"),
        (MEASURED, s8, "120.0"),
        (MEASURED, S4, "7.5"),
        (SCALE + FLOAT + SCALED, F8, "448.0"),
        (SCALE + FLOAT + SCALED, f8e4m3, "240.0"),
    ],
)
def test_a_scale_that_covers_the_largest_magnitude_needs_no_assumption(
    lines: str, kind: DType, most: str
) -> None:
    words = {"TYPE": kind.name, "MOST": most}
    assert verdict(lines, [kind], **words) == (Status.NARROW, ())
    # Who does not ask for the type is not told that both are equal.
    assert verdict(lines, [], **words)[0] is Status.UNDECIDED
    assert verdict(lines, [f16], **words)[0] is Status.UNDECIDED


@pytest.mark.parametrize(
    ("lines", "kind", "most"),
    [(STATIC, s8, "127.0"), (CLAMPED + FLOAT + FIXED, F8, "448.0")],
)
def test_a_clamp_to_the_range_of_a_fixed_scale_is_assumed_to_clip_nothing(
    lines: str, kind: DType, most: str
) -> None:
    status, assumed = verdict(lines, [kind], TYPE=kind.name, MOST=most)
    assert status is Status.NARROW
    assert [kind.name in text and "range" in text for text in assumed] == [True]


@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        # The largest weight is beyond the range.
        (MEASURED, s8, {"MOST": "128.0"}),
        (MEASURED, S4, {"MOST": "127.0"}),
        (SCALE + FLOAT + SCALED, F8, {"MOST": "449.0"}),
        (SCALE + FLOAT + SCALED, f8e4m3, {"MOST": "448.0"}),
        # The largest one of a part of the inputs, of the signed weights, or of other weights.
        (MEASURED, s8, {"MOST": "127.0", "reduce(%a)": "reduce(%w)"}),
        (MEASURED, s8, {"MOST": "127.0", "kind=maximum": "kind=minimum"}),
        # A payload with another scale, with none, or with the inverse of its own.
        (
            MEASURED,
            s8,
            {"MOST": "127.0", "broadcast_in_dim(%s) shape=[4": "broadcast_in_dim(%q) shape=[4"},
        ),
        (MEASURED, s8, {"MOST": "127.0", "multiply(%z, %u)": "add(%z, %z)"}),
        (MEASURED, s8, {"MOST": "127.0", "multiply(%z, %u)": "divide(%z, %u)"}),
        # Whole numbers below, or toward zero, which are up to a step away.
        (MEASURED, s8, {"MOST": "127.0", "round_nearest_even": "floor"}),
        (SCALE + FLOAT + SCALED, s8, {"MOST": "127.0"}),
        # A clamp to less than the range, which clips what is within it.
        (STATIC, s8, {"MOST": "7.0"}),
        (STATIC, s8, {"MOST": "126.0"}),
        (CLAMPED + FLOAT + FIXED, F8, {"MOST": "240.0"}),
        (STATIC, s8, {"MOST": "127.0", "multiply(%f, %sd)": "multiply(%f, %f)"}),
    ],
)
def test_wrong_scales_and_ranges_are_not_proved(
    lines: str, kind: DType, words: dict[str, str]
) -> None:
    assert verdict(lines, [kind], **words, TYPE=kind.name)[0] is Status.UNDECIDED


@pytest.mark.parametrize(("acc", "held"), [("s32", True), ("f32", True), ("s8", False)])
def test_a_type_holds_the_sum_of_payloads_or_it_is_not_proved(acc: str, held: bool) -> None:
    status, assumed = verdict(PAIR + SUM, [s8], ACC=acc, TYPE="f32")
    assert status is (Status.NARROW if held else Status.UNDECIDED)
    assert not assumed


@pytest.mark.parametrize(("kind", "held"), [("s32", True), ("s16", True), ("s8", False)])
def test_a_type_holds_the_product_of_payloads_or_it_is_not_proved(kind: str, held: bool) -> None:
    of = FIRST.replace("NAME", "multiply")
    status, _ = verdict(PAIR + PRODUCT, [s8], of, TYPE=kind)
    assert status is (Status.NARROW if held else Status.UNDECIDED)


@pytest.mark.parametrize(
    ("kind", "named", "held"),
    [
        *[(kind, False, True) for kind in ("s32", "s16", "bf16")],
        *[(kind, True, True) for kind in ("f16", "f8e4m3")],
        *[(kind, False, False) for kind in ("s4", "u8", "f8e3m4")],
        *[(kind, True, False) for kind in ("s4", "f8e3m4")],
    ],
)
def test_a_payload_is_converted_to_types_that_hold_it(kind: str, named: bool, held: bool) -> None:
    narrow = [s8, dtype(kind)] if named else [s8]
    status, _ = verdict(PAIR + CONVERTED, narrow, ITSELF, TYPE=kind)
    assert status is (Status.NARROW if held else Status.UNDECIDED)


@pytest.mark.parametrize("kind", ["s8", "s16", "f16"])
def test_a_sum_of_payloads_is_not_narrowed_below_its_range(kind: str) -> None:
    narrow = [s8, f16] if kind == "f16" else [s8]
    assert verdict(PAIR + SUM, narrow, ACC="s32", TYPE=kind)[0] is Status.UNDECIDED


def test_a_payload_that_is_an_index_is_rounded() -> None:
    of = PLACE.replace("LINES", SUM_OF_ROUNDED)
    assert verdict(PLACE, [s8], of, LINES=ROUNDED_SUM)[0] is Status.UNDECIDED
    assert verdict(PLACE, [s8], of, LINES=SUM_OF_ROUNDED)[0] is Status.PROVED


KEPT = """
  %lo = constant() value=f32[](-127.0) : f32[]
  %hi = constant() value=f32[](127.0) : f32[]
  %g = FIRST : f32[4,8]
  %r = round_nearest_even(%g) : f32[4,8]
  %k = convert(%r) dtype=s8 : s8[4,8]
  %f = convert(%k) dtype=f32 : f32[4,8]
  %o = constant() value=f32[](1.0) : f32[]
  %u = broadcast_in_dim(%o) shape=[4,8] : f32[4,8]
  %y = multiply(READ, %u) : f32[4,8]"""


@pytest.mark.parametrize(("read", "narrow"), [("%f", True), ("%g", False), ("%r", False)])
@pytest.mark.parametrize("first", ["clamp(%lo, %x, %hi)", "round_nearest_even(%x)"])
def test_what_is_rounded_or_clamped_for_more_than_a_conversion_is_not_itself(
    first: str, read: str, narrow: bool
) -> None:
    status, _ = verdict(KEPT, [s8], ITSELF, FIRST=first, READ=read)
    assert status is (Status.NARROW if narrow else Status.UNDECIDED)


@pytest.mark.parametrize("first", ["clamp(%lo, %x, %hi)", "round_nearest_even(%x)"])
def test_an_output_that_is_rounded_or_clamped_is_not_itself(first: str) -> None:
    lines = KEPT.replace("  %y = multiply(READ, %u) : f32[4,8]", "").replace("%g", "%y")
    assert verdict(lines, [s8], ITSELF, FIRST=first)[0] is Status.UNDECIDED


LEFT_OVER = """
  %r = round_nearest_even(%x) : f32[4,8]
  %k = convert(%r) dtype=s8 : s8[4,8]
  %f = convert(%k) dtype=f32 : f32[4,8]
  %l = subtract(FROM, %r) : f32[4,8]
  %c = constant() value=f32[](254.0) : f32[]
  %cb = broadcast_in_dim(%c) shape=[4,8] : f32[4,8]
  %m = multiply(%l, %cb) : f32[4,8]
  %n = round_nearest_even(%m) : f32[4,8]
  %o = convert(%n) dtype=s8 : s8[4,8]
  %p = convert(%o) dtype=f32 : f32[4,8]
  %i = constant() value=f32[](0.003937008) : f32[]
  %ib = broadcast_in_dim(%i) shape=[4,8] : f32[4,8]
  %q = multiply(READ, %ib) : f32[4,8]
  %y = add(%f, %q) : f32[4,8]"""


def test_what_rounding_leaves_over_is_kept_as_well_which_is_assumed() -> None:
    status, assumed = verdict(LEFT_OVER, [s8], ITSELF, FROM="%x", READ="%p")
    assert status is Status.NARROW
    assert any("leaves over" in text for text in assumed)
    # It is read by itself, or is that of another number.
    assert verdict(LEFT_OVER, [s8], ITSELF, FROM="%x", READ="%m")[0] is Status.UNDECIDED
    assert verdict(LEFT_OVER, [s8], ITSELF, FROM="%f", READ="%p")[0] is Status.UNDECIDED


MASK = """
  %c = constant() value=TYPE[](LOWEST) : TYPE[]
  %u = broadcast_in_dim(%c) shape=[4,8] : TYPE[4,8]
  %h = convert(%x) dtype=TYPE : TYPE[4,8]
  %i = abs(%x) : f32[4,8]
  %p = compare(%x, %i) direction=EQ : pred[4,8]
  %m = NAME(OPERANDS) : TYPE[4,8]
  %y = convert(%m) dtype=f32 : f32[4,8]"""


@pytest.mark.parametrize(
    ("name", "operands", "masks"),
    [
        *[("select", "%p, %h, %u", True), ("maximum", "%h, %u", True)],
        *[("add", "%h, %u", False), ("multiply", "%h, %u", False)],
    ],
)
def test_the_lowest_number_of_a_type_masks_where_it_is_chosen_alone(
    name: str, operands: str, masks: bool
) -> None:
    lines = MASK.replace("NAME", name).replace("OPERANDS", operands)
    of = lines.replace("TYPE", "f32").replace("LOWEST", "-3.4028235e38")
    status, assumed = verdict(lines, [f16], of, TYPE="f16", LOWEST="-65504.0")
    assert status is (Status.NARROW if masks else Status.UNDECIDED)
    assert any("is a mask" in text for text in assumed) is masks


def test_claims_on_narrow_numbers_are_tried_by_numbers_where_no_range_is_assumed() -> None:
    words = {"TYPE": "s8", "MOST": "127.0"}
    before, right = (module(x, ROWS_OF_MODEL, **words) for x in (MODEL, MEASURED))
    other = MEASURED.replace("multiply(%z, %u)", "add(%z, %u)")
    wrong = module(other, ROWS_OF_MODEL, **words)
    proof = prove_refinement(before, right, [s8])
    assert with_counterexamples(before, right, proof, narrow=[s8]) == proof
    # A proof of another program is not believed; with an assumption it is.
    (lost,) = with_counterexamples(before, wrong, proof, narrow=[s8]).claims
    assert lost.status is Status.UNDECIDED
    assert "against the proof" in lost.reason
    given = replace(proof, assumptions=(range_text(s8),))
    assert with_counterexamples(before, wrong, given, narrow=[s8]) == given
    (refuted,) = with_counterexamples(
        before, wrong, prove_refinement(before, wrong, [s8]), narrow=[s8]
    ).claims
    assert refuted.status is Status.REFUTED


def test_numbers_that_are_stored_as_bytes_are_themselves() -> None:
    assert verdict(BYTES, [], LAST="%l")[0] is Status.PROVED
    turned = BYTES.replace("  %b =", "  %o = reverse(%l) dimensions=[2] : u8[6,8,4]\n  %b =")
    assert verdict(turned, [], LAST="%o")[0] is Status.UNDECIDED
    other = BYTES.replace("start_indices=[4,0,0]", "start_indices=[3,0,0]")
    assert verdict(other.replace("[10,8,4] : u8[6", "[9,8,4] : u8[6"), [], LAST="%l")[0] is (
        Status.UNDECIDED
    )


@pytest.mark.parametrize("name", ["f32", "s16", "u8", "u4", "f8e8m0fnu", "pred"])
def test_a_type_that_is_wide_or_has_no_sign_cannot_be_asked_for(name: str) -> None:
    with pytest.raises(
        GraphgenError, match=f"{name} is not a type that numbers are narrowed to"
    ) as raised:
        verdict(MODEL, [dtype(name)])
    assert raised.value.code == "GG0302"


# ---- rules ---------------------------------------------------------------------------------------

# Rows of zeros, of numbers of one sign, and of both.
ROWS = np.array([[0, 0, 0, 0], [-3, 1, -1, 0], [2, 3, 1, 2]], np.float64)
TYPE: TensorType = tensor(f32, (3, 4))


class Narrow(Drawn):
    """Terms where numbers are kept in narrow types."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.terms.narrow, self.terms.quotients = frozenset((s8,)), True
        self.values.given = {**ARRAYS, "y": ROWS}

    def const(self, value: float) -> Node:
        """A number."""
        return self.terms.node("const", repr(value))

    def element(self, row: str, column: str) -> Node:
        """An element of y."""
        return self.terms.node("at", "y", TYPE, symbol(row), symbol(column))

    def largest(self, row: str, column: str) -> Term:
        """The largest magnitude of a row."""
        inner = self.terms.node("fn", "abs", None, EMPTY, self.element(row, column))
        return summed(self.terms, "maximum", None, [(column, SIZES[column])], inner)

    def scale(self, row: str, most: float) -> Node:
        """The scale of a row."""
        inverse = self.inverse(self.const(most))
        share = flat_function(self.terms, "multiply", TO, EMPTY, [self.largest(row, "d"), inverse])
        return self.terms.node("fn", "maximum", None, EMPTY, share, self.const(1e-30))

    def inverse(self, term: Term) -> Node:
        """One by a number."""
        return self.terms.node("fn", "divide", TO, EMPTY, self.const(1.0), term)

    def unless_zero(self, row: str, scale: Term) -> Term:
        """A scale, or zero where the largest magnitude is."""
        equal = attrs_of({"direction": "EQ"})
        top = self.largest(row, "d")
        same = self.terms.node("fn", "compare", None, equal, top, self.const(0.0))
        return choose(self.terms, self.terms.node("truth", same), self.const(0.0), scale)

    def factors(self) -> list[Term]:
        """Factors of which some may cancel."""
        row, scale = self.random.choice("ac"), self.scale(self.random.choice("ac"), 127.0)
        which, y = self.fact(), self.element(row, self.random.choice("bd"))
        pool: list[Term] = [
            *(self.const(0.0), self.const(1.0), self.const(2.5), y, scale, self.inverse(scale)),
            *(self.inverse(self.const(2.5)), self.unless_zero(self.random.choice("ac"), scale)),
            *(choose(self.terms, which, x, y) for x in (scale, self.inverse(scale))),
            choose(self.terms, which, self.const(4.0), scale),
        ]
        return self.random.sample(pool, self.random.randint(2, 5))


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_what_cancels_in_sums_and_products_changes_no_value(name: str) -> None:
    shorter = 0
    for number in range(DRAWS):
        d = Narrow(number)
        parts = d.factors()
        made = flat_function(d.terms, name, TO, EMPTY, parts)
        raw = d.terms.node("fn", name, TO, EMPTY, *parts)
        shorter += len(made.args) < len(raw.args)
        wrong = d.differ(made, lambda at, raw=raw, d=d: d.of(raw, at), *parts)
        assert not wrong, wrong
    assert shorter > DRAWS // 10


def test_a_largest_magnitude_covers_its_own_elements_alone() -> None:
    d = Narrow(0)
    row = d.largest("a", "d")
    part = summed(
        d.terms,
        "maximum",
        None,
        [("e", 3)],
        d.terms.node(
            "fn",
            "abs",
            None,
            EMPTY,
            d.terms.node("at", "y", TYPE, symbol("a"), d.terms.variable("e", 3)),
        ),
    )
    assert isinstance(row, Node)
    assert isinstance(part, Node)
    assert covers(d.terms, row, d.element("a", "b"))
    for other in (d.element("c", "b"), d.read("x"), d.inverse(d.element("a", "b"))):
        assert not covers(d.terms, row, other)
    # Three of four elements: those of a variable of four may be another one.
    assert not covers(d.terms, part, d.element("a", "b"))
    assert covers(d.terms, part, d.terms.node("at", "y", TYPE, symbol("a"), 2))
    assert not covers(d.terms, part, d.terms.node("at", "y", TYPE, symbol("a"), 3))
    # An index of the whole dimension is one of its own, whatever is known of a table that gives it.
    table = d.terms.atom(d.read("x"))
    assert covers(d.terms, row, d.terms.node("at", "y", TYPE, symbol("a"), table))
    assert not covers(d.terms, part, d.terms.node("at", "y", TYPE, symbol("a"), table))


def test_no_number_is_beyond_the_bound_of_its_product() -> None:
    known = 0
    for number in range(DRAWS):
        d = Narrow(number)
        scale = d.scale(d.random.choice("ac"), d.random.choice((7.0, 127.0)))
        parts = [d.element(d.random.choice("ac"), d.random.choice("bd")), d.inverse(scale)]
        term = d.terms.node("fn", "multiply", TO, EMPTY, *parts)
        bound = bound_of(d.terms, term)
        if bound is not None:
            known += 1
            assert all(abs(d.of(term, at)) <= bound * (1 + 1e-12) for at in d.places(term))
    assert 0 < known < DRAWS


def test_what_is_said_not_to_be_zero_is_not() -> None:
    for number in range(DRAWS):
        d = Narrow(number)
        for part in d.factors():
            if is_nonzero(d.terms, part):
                assert all(d.of(part, at) != 0 for at in d.places(part))


def write(d: Drawn, here: Node, new: Term, old: Term) -> Term:
    """An element that is written where a condition holds."""
    return written(d.terms, [("a", 3)], here, new, old)


def old(d: Narrow) -> Term:
    """An element that does not depend on what is written."""
    return d.element("c", d.random.choice("bd"))


def test_a_function_of_writes_is_the_write_of_the_function() -> None:
    found = 0
    for number in range(DRAWS):
        d = Narrow(number)
        here, other = d.fact(), d.fact()
        parts = [
            write(d, d.random.choice((here, here, other)), d.real(1), old(d)) for _ in range(2)
        ]
        if not all(isinstance(x, Node) and x.kind == "write" for x in parts):
            continue
        nodes = [x for x in parts if isinstance(x, Node)]

        def product(x: list[Term], d: Narrow = d) -> Node:
            return d.terms.node("fn", "multiply", TO, EMPTY, *x)

        made = within_choice(d.terms, nodes, product)
        if made is None:
            continue
        found += 1
        raw = product(list(nodes))
        wrong = d.differ(made, lambda at, raw=raw, d=d: d.of(raw, at), raw)
        assert not wrong, wrong
    assert found > 10


def test_terms_that_are_equal_in_each_case_have_one_value() -> None:
    found = 0
    for number in range(DRAWS * 2):
        d = Narrow(number)
        here, other = d.fact(), d.fact()
        new, before = d.read("y"), old(d)
        times = d.random.choice((here, here, other))
        twice = d.terms.node("fn", "add", TO, EMPTY, new, new)
        both = d.terms.node("fn", "add", TO, EMPTY, before, d.random.choice((before, new)))
        one = write(d, here, new, before)
        a = d.terms.node("fn", "add", TO, EMPTY, one, one)
        b = write(d, times, twice, both)
        if d.random.random() < 0.3:
            a, b = choose(d.terms, here, a, twice), choose(d.terms, here, b, twice)
        if a is not b and equal_in_cases(d.terms, a, b, lambda x, y: x is y):
            found += 1
            wrong = d.differ(a, lambda at, b=b, d=d: d.of(b, at), a, b)
            assert not wrong, wrong
    assert found > 10


def test_cases_of_another_condition_are_left_as_they_are() -> None:
    d = Narrow(1)
    one, two = d.terms.node("truth", d.read("p")), d.terms.node("le0", symbol("b") + -1)
    y, zero = d.element("a", "b"), d.const(0.0)
    first, second = choose(d.terms, one, y, zero), choose(d.terms, two, y, zero)
    assert isinstance(first, Node)
    found = cases_of(d.terms, first, [first, second])
    assert found == (one, [y, second], [zero, second])
