"""Small programs for the rule of each op: within its conditions, on the boundary, and outside.

A rule is compared with NumPy at every index of every program here; ``outside`` are those where it
has to decline.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """A program whose last op is checked.

    Attributes:
        args: names and types, as in IR text, each with the lowest and highest integer if any.
        lines: ops; the last one makes ``%y``.
        outside: the rule does not cover it, and must decline.
        ranks: that run it.
        functions: that its ops run.
    """

    args: str
    lines: str
    outside: bool = False
    ranks: int = 1
    functions: str = ""


def _pairs(name: str, more: str = "") -> tuple[Case, ...]:
    """An op on two integers of several types, and on floats, which it does not cover."""
    types = ("s8", "u8", "s16", "s32")
    covered = [
        Case(f"a:{t}[2,3] b:{t}[2,3]", f"%y = {name}(%a, %b){more} : {t}[2,3]") for t in types
    ]
    return (*covered, Case("a:f32[2] b:f32[2]", f"%y = {name}(%a, %b){more} : f32[2]", True))


def _by(name: str, dtype: str, number: int, *, outside: bool = False) -> Case:
    """An op on an integer and a number."""
    lines = (
        f"%c = constant() value={dtype}[]({number}) : {dtype}[]\n"
        f"%b = broadcast_in_dim(%c) shape=[6] : {dtype}[6]\n"
        f"%y = {name}(%a, %b) : {dtype}[6]"
    )
    return Case(f"a:{dtype}[6]", lines, outside)


def _compared(direction: str) -> Case:
    how = f"%y = compare(%a, %b) direction={direction} : pred[3,4]"
    return Case("a:s8[3,4]:-2:2 b:s8[3,4]:-2:2", how)


def _gathered(more: str, sizes: str, result: str, args: str, *, outside: bool = False) -> Case:
    line = f"%y = gather(%x, %i) {more} slice_sizes={sizes} : f32{result}"
    return Case(args, line, outside)


_ROWS = "offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=1"
_PART = "%y = scatter(%x, %i, %u) kind={kind} update_window_dims=[1] inserted_window_dims=[0]"
_OPAQUE = '%y = hlo.opaque(%x) opcode="{0}" results=[{1}] : {1}'
_PLACES = " scatter_dims_to_operand_dims=[0] index_vector_dim=1 : f32[4,3]"
_DOT = "lhs_contracting_dims=[{}] rhs_contracting_dims=[{}]"
_CONV = '%y = convolution(%x, %w) dim_labels="b0f_0io->b0f"'
_TWO, _FOUR = "replica_groups=[[0,1]]", "replica_groups=[[0,2],[1,3]]"

_TWICE = "func @twice {\n  arg %a : f32[3]\n  %b = add(%a, %a) : f32[3]\n  return r = %b\n}\n"
_SAME = "func @same {\n  arg %a : f32[3]\n  return r = %a\n}\n"
_CALL = "%y = call(%x) to_apply=twice results=[f32[3]] : f32[3]"
_BRANCHES = (
    "%y = conditional(%p, %x, %z) branches=[twice,same] takes=[1,1] results=[f32[3]] : f32[3]"
)


_BELOW_THREE = (
    "%c = constant() value=s32[](3) : s32[]\n  %p = compare(%i, %c) direction={} : pred[]"
)


def _loop(
    end: str = _BELOW_THREE.format("LT"),
    step: str = "1",
    update: str = "%t",
    start: str = "0",
    *,
    outside: bool = False,
) -> Case:
    """A loop that writes rows: row n is twice row n of x, for three rows."""
    args = "  arg %i : s32[]\n  arg %v : f32[4,2]\n  arg %x : f32[3,2]\n"
    more = f"func @more {{\n{args}  {end}\n  return p = %p\n}}\n"
    body = (
        f"func @step {{\n{args}  %z = constant() value=s32[](0) : s32[]\n"
        "  %r = dynamic_slice(%x, %i, %z) slice_sizes=[1,2] : f32[1,2]\n"
        "  %s = slice(%v) start_indices=[0,0] limit_indices=[1,2] : f32[1,2]\n"
        "  %t = add(%r, %r) : f32[1,2]\n  %u = add(%r, %s) : f32[1,2]\n"
        f"  %w = dynamic_update_slice(%v, {update}, %i, %z) : f32[4,2]\n"
        f"  %k = constant() value=s32[]({step}) : s32[]\n  %n = add(%i, %k) : s32[]\n"
        "  return n = %n\n  return w = %w\n  return x = %x\n}\n"
    )
    lines = (
        f"%i = constant() value=s32[]({start}) : s32[]\n"
        "%n, %y, %m = while(%i, %v, %x) condition=more body=step : s32[], f32[4,2], f32[3,2]"
    )
    return Case("v:f32[4,2] x:f32[3,2]", lines, outside, functions=more + body)


CASES: dict[str, tuple[Case, ...]] = {
    "add": _pairs("add"),
    "subtract": _pairs("subtract"),
    "multiply": _pairs("multiply"),
    "negate": (
        Case("a:s8[5]", "%y = negate(%a) : s8[5]"),
        Case("a:u8[5]", "%y = negate(%a) : u8[5]"),
        Case("a:f32[5]", "%y = negate(%a) : f32[5]", outside=True),
    ),
    "divide": (
        *[_by("divide", "s8", n) for n in (1, 3, 127)],
        *[_by("divide", "s8", n, outside=True) for n in (0, -1, -3)],
        _by("divide", "u8", 200),
        Case("a:s8[3] b:s8[3]:1:3", "%y = divide(%a, %b) : s8[3]", outside=True),
    ),
    "remainder": (
        *[_by("remainder", "s8", n) for n in (1, 4, 127)],
        *[_by("remainder", "s8", n, outside=True) for n in (0, -2)],
    ),
    "minimum": _pairs("minimum"),
    "maximum": _pairs("maximum"),
    "clamp": (
        Case("l:s8[] a:s8[6] h:s8[]", "%y = clamp(%l, %a, %h) : s8[6]"),
        Case("l:s8[6] a:s8[6] h:s8[6]", "%y = clamp(%l, %a, %h) : s8[6]"),
        Case("l:f32[] a:f32[3] h:f32[]", "%y = clamp(%l, %a, %h) : f32[3]", outside=True),
    ),
    "shift_left": (
        *[_by("shift_left", "s8", n) for n in (0, 3, 7)],
        *[_by("shift_left", "s8", n, outside=True) for n in (8, -1)],
    ),
    "shift_right_arithmetic": (
        *[_by("shift_right_arithmetic", "s8", n) for n in (0, 2, 7)],
        *[_by("shift_right_arithmetic", "s8", n, outside=True) for n in (8, -1)],
    ),
    "shift_right_logical": (
        *[_by("shift_right_logical", "u8", n) for n in (0, 2, 7)],
        _by("shift_right_logical", "u8", 8, outside=True),
        # Of a number that may be negative the highest bit counts.
        _by("shift_right_logical", "s8", 1, outside=True),
    ),
    "and": (
        Case("a:pred[6] b:pred[6]", "%y = and(%a, %b) : pred[6]"),
        *[_by("and", "s8", n) for n in (0, 1, 7, 127)],
        *[_by("and", "s8", n, outside=True) for n in (2, 6, -1)],
    ),
    "or": (
        Case("a:pred[6] b:pred[6]", "%y = or(%a, %b) : pred[6]"),
        _by("or", "s8", 7, outside=True),
    ),
    "not": (
        Case("a:pred[6]", "%y = not(%a) : pred[6]"),
        Case("a:s8[3]", "%y = not(%a) : s8[3]", outside=True),
    ),
    "compare": (
        *[_compared(direction) for direction in ("EQ", "NE", "LT", "LE", "GT", "GE")],
        Case("a:f32[3] b:f32[3]", "%y = compare(%a, %b) direction=LT : pred[3]", outside=True),
    ),
    "select": (
        Case("p:pred[6] a:f32[6] b:f32[6]", "%y = select(%p, %a, %b) : f32[6]"),
        Case("p:pred[6] a:s8[6] b:s8[6]", "%y = select(%p, %a, %b) : s8[6]"),
        Case("p:pred[6] a:pred[6] b:pred[6]", "%y = select(%p, %a, %b) : pred[6]"),
    ),
    "convert": (
        *[
            Case(f"a:{a}[6]", f"%y = convert(%a) dtype={b} : {b}[6]")
            for a, b in (
                *(("s32", "s8"), ("s8", "u8"), ("u8", "s8"), ("s8", "s32"), ("pred", "s8")),
                *(("pred", "f32"), ("s8", "f32"), ("s8", "pred"), ("f32", "f64")),
            )
        ],
        Case("a:f32[6]", "%y = convert(%a) dtype=s32 : s32[6]", outside=True),
    ),
    "dot_general": (
        Case(
            "a:f32[2,3] b:f32[3,4]",
            f"%y = dot_general(%a, %b) {_DOT.format(1, 0)} dtype=f32 : f32[2,4]",
        ),
        Case(
            "a:f32[2,3,2] b:f32[2,3,2]",
            "%y = dot_general(%a, %b) lhs_contracting_dims=[1,2] rhs_contracting_dims=[1,2] "
            "lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[2]",
        ),
        Case(
            "a:f32[3] b:f32[3]", f"%y = dot_general(%a, %b) {_DOT.format(0, 0)} dtype=f32 : f32[]"
        ),
        Case(
            "a:s8[2,3] b:s8[3,4]",
            f"%y = dot_general(%a, %b) {_DOT.format(1, 0)} dtype=s32 : s32[2,4]",
            outside=True,
        ),
    ),
    "reduce": (
        *[
            Case("x:f32[2,3,2]", f"%y = reduce(%x) dimensions=[0,2] kind={kind} : f32[3]")
            for kind in ("add", "maximum", "minimum")
        ],
        *[
            Case("x:pred[2,3]", f"%y = reduce(%x) dimensions=[1] kind={kind} : pred[2]")
            for kind in ("and", "or")
        ],
        Case("x:f32[1,3]", "%y = reduce(%x) dimensions=[0] kind=add : f32[3]"),
        *[
            Case("x:s8[2,3]", f"%y = reduce(%x) dimensions=[1] kind={kind} : s8[2]")
            for kind in ("maximum", "minimum")
        ],
        Case("x:s8[2,3]", "%y = reduce(%x) dimensions=[1] kind=add : s8[2]"),
        Case("x:s32[2,3]:-9:9", "%y = reduce(%x) dimensions=[0,1] kind=add : s32[]"),
        Case("x:s8[2,3]", "%y = reduce(%x) dimensions=[1] kind=multiply : s8[2]", outside=True),
    ),
    "convolution": (
        Case("x:f32[1,4,2] w:f32[3,2,2]", f"{_CONV} low=[1] high=[1] dtype=f32 : f32[1,4,2]"),
        Case("x:f32[2,5,1] w:f32[2,1,2]", f"{_CONV} window_strides=[2] dtype=f32 : f32[2,2,2]"),
        Case("x:f32[1,5,1] w:f32[2,1,1]", f"{_CONV} rhs_dilation=[3] dtype=f32 : f32[1,2,1]"),
        Case("x:f32[1,4,1] w:f32[2,1,1]", f"{_CONV} low=[-1] high=[2] dtype=f32 : f32[1,4,1]"),
        Case(
            "x:f32[1,3,1] w:f32[2,1,1]",
            f"{_CONV} lhs_dilation=[2] dtype=f32 : f32[1,4,1]",
            outside=True,
        ),
        Case(
            "x:f32[1,3,1] w:f32[2,1,1]",
            f"{_CONV} window_reversal=[1] dtype=f32 : f32[1,2,1]",
            outside=True,
        ),
        Case(
            "x:f32[1,3,2] w:f32[2,1,2]",
            f"{_CONV} feature_group_count=2 dtype=f32 : f32[1,2,2]",
            outside=True,
        ),
    ),
    "all_reduce": (
        Case("x:f32[3]", f"%y = all_reduce(%x) kind=add {_TWO} : f32[3]", ranks=2),
        Case("x:f32[3]", f"%y = all_reduce(%x) kind=maximum {_FOUR} : f32[3]", ranks=4),
        Case("x:f32[3]", "%y = all_reduce(%x) kind=add replica_groups=[[0],[1]] : f32[3]", ranks=2),
        Case(
            "x:f32[2]",
            "%y = all_reduce(%x) kind=add replica_groups=[[0,3],[1,2]] : f32[2]",
            outside=True,
            ranks=4,
        ),
        Case("x:s8[3]", f"%y = all_reduce(%x) kind=add {_TWO} : s8[3]", outside=True, ranks=2),
    ),
    "reduce_scatter": (
        Case(
            "x:f32[4,3]",
            f"%y = reduce_scatter(%x) kind=add dimension=0 {_FOUR} : f32[2,3]",
            ranks=4,
        ),
        Case(
            "x:f32[2,4]",
            "%y = reduce_scatter(%x) kind=add dimension=1 replica_groups=[[1,0]] : f32[2,2]",
            outside=True,
            ranks=2,
        ),
    ),
    "all_gather": (
        Case("x:f32[2,3]", f"%y = all_gather(%x) dimension=1 {_TWO} : f32[2,6]", ranks=2),
        Case("x:s8[2]", f"%y = all_gather(%x) dimension=0 {_FOUR} : s8[4]", ranks=4),
        Case(
            "x:f32[2]",
            "%y = all_gather(%x) dimension=0 replica_groups=[[1,0]] : f32[4]",
            outside=True,
            ranks=2,
        ),
    ),
    "all_to_all": (
        Case(
            "x:f32[4,3]",
            f"%y = all_to_all(%x) split_dimension=0 concat_dimension=1 {_TWO} : f32[2,6]",
            ranks=2,
        ),
        Case(
            "x:f32[4]",
            f"%y = all_to_all(%x) split_dimension=0 concat_dimension=0 {_FOUR} : f32[4]",
            ranks=4,
        ),
        Case(
            "x:f32[4]",
            "%y = all_to_all(%x) split_dimension=0 concat_dimension=0 "
            "replica_groups=[[1,0]] : f32[4]",
            outside=True,
            ranks=2,
        ),
    ),
    "collective_permute": (
        Case(
            "x:f32[3]",
            "%y = collective_permute(%x) source_target_pairs=[[0,1],[1,2]] : f32[3]",
            ranks=3,
        ),
        Case(
            "x:s8[3]",
            "%y = collective_permute(%x) source_target_pairs=[[0,1]] : s8[3]",
            outside=True,
            ranks=2,
        ),
    ),
    "broadcast_in_dim": (
        Case("x:f32[3]", "%y = broadcast_in_dim(%x) shape=[2,3] dimensions=[1] : f32[2,3]"),
        Case("x:f32[1,3]", "%y = broadcast_in_dim(%x) shape=[2,3] dimensions=[0,1] : f32[2,3]"),
        Case("x:s8[]", "%y = broadcast_in_dim(%x) shape=[2] : s8[2]"),
    ),
    "transpose": (
        Case("x:f32[2,3,4]", "%y = transpose(%x) permutation=[2,0,1] : f32[4,2,3]"),
        Case("x:f32[2,3,4]", "%y = transpose(%x) permutation=[1,2,0] : f32[3,4,2]"),
    ),
    "reverse": (
        Case("x:f32[2,3]", "%y = reverse(%x) dimensions=[1] : f32[2,3]"),
        Case("x:s8[2,3]", "%y = reverse(%x) dimensions=[0,1] : s8[2,3]"),
    ),
    "call": (Case("x:f32[3]", _CALL, functions=_TWICE),),
    "conditional": (Case("p:pred[] x:f32[3] z:f32[3]", _BRANCHES, functions=_TWICE + _SAME),),
    "while": (
        _loop(),
        _loop(step="2", outside=True),
        _loop(start="1", outside=True),
        # The row is made of another row that the loop writes.
        _loop(update="%u", outside=True),
        _loop(_BELOW_THREE.format("LE"), outside=True),
        _loop("%p = constant() value=pred[](false) : pred[]", outside=True),
    ),
    "hlo.opaque": (
        Case("x:f32[2,3]", _OPAQUE.format("opt-barrier", "f32[2,3]")),
        Case("x:s8[2,3]", _OPAQUE.format("opt-barrier", "s8[2,3]")),
        Case("x:f32[2,3]", _OPAQUE.format("erf-inv", "f32[2,3]"), outside=True),
    ),
    "reshape": (
        Case("x:f32[2,6]", "%y = reshape(%x) shape=[3,4] : f32[3,4]"),
        Case("x:f32[4,3]", "%y = reshape(%x) shape=[2,2,3] : f32[2,2,3]"),
        Case("x:f32[2,2,3]", "%y = reshape(%x) shape=[4,1,3] : f32[4,1,3]"),
        Case("x:f32[1,1]", "%y = reshape(%x) shape=[] : f32[]"),
        Case("x:f32[]", "%y = reshape(%x) shape=[1,1] : f32[1,1]"),
    ),
    "slice": (
        Case("x:f32[5,3]", "%y = slice(%x) start_indices=[1,0] limit_indices=[4,2] : f32[3,2]"),
        Case("x:f32[7]", "%y = slice(%x) start_indices=[1] limit_indices=[7] strides=[3] : f32[2]"),
    ),
    "concatenate": (
        Case(
            "a:f32[2,2] b:f32[1,2] c:f32[2,2]",
            "%y = concatenate(%a, %b, %c) dimension=0 : f32[5,2]",
        ),
        Case("a:s8[2,1] b:s8[2,3]", "%y = concatenate(%a, %b) dimension=1 : s8[2,4]"),
    ),
    "pad": (
        Case("x:f32[3] v:f32[]", "%y = pad(%x, %v) low=[1] high=[2] : f32[6]"),
        Case("x:f32[4,2] v:f32[]", "%y = pad(%x, %v) low=[-1,0] high=[-1,1] : f32[2,3]"),
        Case("x:f32[3] v:f32[]", "%y = pad(%x, %v) low=[0] high=[0] interior=[1] : f32[5]", True),
    ),
    "take": (
        Case("x:f32[4,2] i:s32[5]:-2:5", "%y = take(%x, %i) dimension=0 : f32[5,2]"),
        Case("x:f32[2,6] i:s32[2]:-1:3", "%y = take(%x, %i) dimension=1 block=2 : f32[2,4]"),
    ),
    "dynamic_slice": (
        Case("x:f32[5] i:s32[]:-2:6", "%y = dynamic_slice(%x, %i) slice_sizes=[2] : f32[2]"),
        Case(
            "x:f32[3,4] i:s32[]:-1:3 j:s32[]:0:5",
            "%y = dynamic_slice(%x, %i, %j) slice_sizes=[1,4] : f32[1,4]",
        ),
    ),
    "dynamic_update_slice": (
        Case("x:f32[5] u:f32[2] i:s32[]:-2:6", "%y = dynamic_update_slice(%x, %u, %i) : f32[5]"),
        Case(
            "x:f32[3,4] u:f32[2,4] i:s32[]:-1:3 j:s32[]:-1:1",
            "%y = dynamic_update_slice(%x, %u, %i, %j) : f32[3,4]",
        ),
    ),
    "constant": (
        Case("", "%y = constant() value=s32[5](3,5,7,9,11) : s32[5]"),
        Case("", "%y = constant() value=s32[6](0,0,1,1,2,2) : s32[6]"),
        Case("", "%y = constant() value=s32[6](0,1,2,-1,-1,-1) : s32[6]"),
        Case("", "%y = constant() value=s32[5](4,4,4,5,6) : s32[5]"),
        Case("", "%y = constant() value=s8[7](3,-1,4,1,-5,9,2) : s8[7]"),
        Case("", "%y = constant() value=f32[2,2](0.5,1.0,2.0,-3.0) : f32[2,2]"),
        Case("", "%y = constant() value=f32[3](0.25,0.25,0.25) : f32[3]"),
        Case("", "%y = constant() value=pred[3](true,false,true) : pred[3]"),
    ),
    "iota": (
        Case("", "%y = iota() shape=[2,5] dimension=1 dtype=s32 : s32[2,5]"),
        Case("", "%y = iota() shape=[4] dimension=0 dtype=f32 : f32[4]"),
    ),
    "gather": (
        _gathered(_ROWS, "[1,3]", "[2,3]", "x:f32[4,3] i:s32[2,1]:-2:5"),
        _gathered(
            "offset_dims=[0] collapsed_slice_dims=[] start_index_map=[0] index_vector_dim=0",
            "[2]",
            "[2]",
            "x:f32[5] i:s32[1]:-2:6",
        ),
        _gathered(
            "offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0,1] index_vector_dim=1",
            "[1,2]",
            "[3,2]",
            "x:f32[3,4] i:s32[3,2]:-1:5",
        ),
    ),
    "scatter": (
        Case("x:f32[4,3] i:s32[2,1]:-1:4 u:f32[2,3]", _PART.format(kind="assign") + _PLACES),
        Case("x:f32[4,3] i:s32[1,1]:-1:4 u:f32[1,3]", _PART.format(kind="assign") + _PLACES),
        Case(
            "x:f32[4,3] i:s32[2,1]:0:3 u:f32[2,3]",
            _PART.format(kind="add") + _PLACES,
            outside=True,
        ),
        # A window that does not cover its dimension.
        Case(
            "x:f32[4,3] i:s32[2,1]:0:3 u:f32[2,2]",
            _PART.format(kind="assign") + _PLACES,
            outside=True,
        ),
    ),
    "bitcast_convert": (
        Case("x:f32[4]", "%y = bitcast_convert(%x) dtype=s32 : s32[4]"),
        Case("x:s8[4]", "%y = bitcast_convert(%x) dtype=u8 : u8[4]"),
        Case("x:f32[4]", "%y = bitcast_convert(%x) dtype=f32 : f32[4]"),
        Case("x:s32[2]", "%y = bitcast_convert(%x) dtype=s8 : s8[2,4]"),
        Case(
            "x:f32[2]",
            "%b = bitcast_convert(%x) dtype=u8 : u8[2,4]\n"
            "%y = bitcast_convert(%b) dtype=f32 : f32[2]",
        ),
        Case(
            "x:f32[3] z:f32[3] p:pred[3]",
            "%a = bitcast_convert(%x) dtype=u8 : u8[3,4]\n"
            "%b = bitcast_convert(%z) dtype=u8 : u8[3,4]\n"
            "%q = broadcast_in_dim(%p) shape=[3,4] dimensions=[0] : pred[3,4]\n"
            "%c = select(%q, %a, %b) : u8[3,4]\n"
            "%y = bitcast_convert(%c) dtype=f32 : f32[3]",
        ),
        # Bytes of several numbers, in another order, and those of an argument.
        Case(
            "x:f32[2]",
            "%b = bitcast_convert(%x) dtype=u8 : u8[2,4]\n"
            "%c = reverse(%b) dimensions=[1] : u8[2,4]\n"
            "%y = bitcast_convert(%c) dtype=f32 : f32[2]",
            outside=True,
        ),
        Case(
            "x:f32[2] z:f32[2] p:pred[2,4]",
            "%a = bitcast_convert(%x) dtype=u8 : u8[2,4]\n"
            "%b = bitcast_convert(%z) dtype=u8 : u8[2,4]\n"
            "%c = select(%p, %a, %b) : u8[2,4]\n"
            "%y = bitcast_convert(%c) dtype=f32 : f32[2]",
            outside=True,
        ),
        Case("x:u8[2,4]", "%y = bitcast_convert(%x) dtype=s32 : s32[2]", outside=True),
    ),
    "sort": (
        Case("x:f32[5]", "%y = sort(%x) dimension=0 : f32[5]"),
        Case("x:f32[2,4]", "%y = sort(%x) dimension=1 descending=true : f32[2,4]"),
        Case("x:f32[2,1]", "%y = sort(%x) dimension=1 descending=true : f32[2,1]"),
        Case(
            "x:f32[2,4] i:s8[2,4]",
            "%z, %y = sort(%x, %i) dimension=1 : f32[2,4], s8[2,4]",
        ),
    ),
    "custom_call": (
        Case(
            "x:f32[2,4]",
            '%y, %z = custom_call(%x) target="AwsNeuronTopK" config="2" '
            "results=[f32[2,2],u32[2,2]] : f32[2,2], u32[2,2]",
        ),
        Case(
            "x:f32[3,5]",
            '%y, %z = custom_call(%x) target="AwsNeuronTopK" config="1" '
            "results=[f32[3,1],u32[3,1]] : f32[3,1], u32[3,1]",
        ),
        Case(
            "x:f32[5]",
            '%z, %y = custom_call(%x) target="AwsNeuronTopK" config="3" '
            "results=[f32[3],u32[3]] : f32[3], u32[3]",
        ),
        Case(
            "x:f32[4]",
            '%y = custom_call(%x) target="other" results=[f32[4]] : f32[4]',
            outside=True,
        ),
    ),
}
