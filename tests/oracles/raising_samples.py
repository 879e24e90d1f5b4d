"""Programs in which the rules for models written elsewhere fire: caches, spellings, places."""

from __future__ import annotations

from math import pi
from typing import Final

ZERO: Final = "%z = constant() value=s32[](0) : s32[]\n"
ONE: Final = "%o = constant() value=s32[](1) : s32[]\n"
# One layer's cache [rows, slots, heads, size], three tokens for each row, their positions.
WRITE: Final = "arg %x : f32[2,4,1,2]\narg %n : f32[2,3,1,2]\n"
STACK: Final = "arg %x : f32[2,2,4,1,2]\narg %n : f32[2,1,1,2]\narg %p : s32[]\n"
PLACES: Final = (
    "arg %p : s32[2,3]\n"
    "%r = iota() dtype=s32 shape=[2,3,1] dimension=0 : s32[2,3,1]\n"
    "%q = broadcast_in_dim(%p) shape=[2,3,1] dimensions=[0,1] : s32[2,3,1]\n"
    "%w = concatenate(%r, %q) dimension=2 : s32[2,3,2]\n"
)
CACHES: Final[dict[str, list[str]]] = {
    "raise-kv-update": [
        f"{WRITE}arg %p : s32[]\n{ZERO}"
        "%a = dynamic_update_slice(%x, %n, %z, %p, %z, %z) : f32[2,4,1,2]",
        f"{WRITE}{PLACES}%a = scatter(%x, %w, %n) update_window_dims=[2,3] "
        "inserted_window_dims=[0,1] scatter_dims_to_operand_dims=[0,1] index_vector_dim=2 "
        ": f32[2,4,1,2]",
    ],
    "raise-joined-slices": [
        "arg %x : f32[2,4,1,2]\narg %n : f32[2,1,1,2]\n"
        + "".join(
            f"%{name} = slice(%x) start_indices=[0,{start},0,0] limit_indices=[2,{end},1,2] "
            f": f32[2,{end - start},1,2]\n"
            for name, start, end in cuts
        )
        + f"%a = concatenate({parts}) dimension=1 : f32[2,4,1,2]"
        for cuts, parts in (
            ([("b", 0, 1), ("c", 2, 4)], "%b, %n, %c"),
            ([("b", 0, 3)], "%b, %n"),
            ([("c", 1, 4)], "%n, %c"),
        )
    ],
    "raise-chosen-slot": [
        "arg %x : f32[2,4,1,2]\narg %n : f32[2,1,1,2]\narg %i : s32[2]\n"
        "%s = iota() dtype=s32 shape=[4] dimension=0 : s32[4]\n"
        "%t = broadcast_in_dim(%s) shape=[2,4] dimensions=[1] : s32[2,4]\n"
        "%p = broadcast_in_dim(%i) shape=[2,4] dimensions=[0] : s32[2,4]\n"
        "%e = compare(%t, %p) direction=EQ : pred[2,4]\n"
        "%f = broadcast_in_dim(%e) shape=[2,4,1,2] dimensions=[0,1] : pred[2,4,1,2]\n"
        "%m = broadcast_in_dim(%n) shape=[2,4,1,2] dimensions=[0,1,2,3] : f32[2,4,1,2]\n"
        "%a = select(%f, %m, %x) : f32[2,4,1,2]"
    ],
    "raise-layer-update": [
        f"{STACK}%m = reshape(%n) shape=[2,1,2] : f32[2,1,2]\n{ONE}"
        "%b = broadcast_in_dim(%o) shape=[1] : s32[1]\n"
        "%c = broadcast_in_dim(%p) shape=[1] : s32[1]\n"
        "%w = concatenate(%b, %c) dimension=0 : s32[2]\n"
        "%a = scatter(%x, %w, %m) update_window_dims=[0,1,2] inserted_window_dims=[0,2] "
        "scatter_dims_to_operand_dims=[0,2] index_vector_dim=0 : f32[2,2,4,1,2]"
    ],
    "write-of-layer": [
        f"{STACK}{ZERO}%f = slice(%x) start_indices=[0,0,0,0,0] limit_indices=[1,2,4,1,2] "
        ": f32[1,2,4,1,2]\n%l = reshape(%f) shape=[2,4,1,2] : f32[2,4,1,2]\n"
        "%s = broadcast_in_dim(%p) shape=[2,1] : s32[2,1]\n"
        "%r = iota() dtype=s32 shape=[2] dimension=0 : s32[2]\n"
        "%k = kv_update(%l, %n, %r, %s) rows=in_place : f32[2,4,1,2]\n"
        "%w = broadcast_in_dim(%z) shape=[1] : s32[1]\n"
        "%a = scatter(%x, %w, %k) update_window_dims=[0,1,2,3] inserted_window_dims=[0] "
        "scatter_dims_to_operand_dims=[0] index_vector_dim=0 : f32[2,2,4,1,2]"
    ],
}


def _part(name: str, keys: str, values: str, allowed: str, slots: int) -> tuple[str, str]:
    """The masked scores of one part of the slots, and what is made of them below the maximum."""
    n, shape = name, f"[2,2,1,{slots}]"
    return (
        f"%{n}s = dot_general(%q, %{keys}) lhs_contracting_dims=[3] rhs_contracting_dims=[3] "
        f"lhs_batch_dims=[1,2] rhs_batch_dims=[1,2] dtype=f32 : f32{shape}\n"
        f"%{n}b = broadcast_in_dim(%{allowed}) shape={shape} dimensions=[0,3] : pred{shape}\n"
        f"%{n}l = broadcast_in_dim(%low) shape={shape} : f32{shape}\n"
        f"%{n}m = select(%{n}b, %{n}s, %{n}l) : f32{shape}\n"
        f"%{n}t = reduce(%{n}m) dimensions=[3] kind=maximum : f32[2,2,1]\n"
    ), (
        f"%{n}u = broadcast_in_dim(%top) shape={shape} dimensions=[0,1,2] : f32{shape}\n"
        f"%{n}d = subtract(%{n}m, %{n}u) : f32{shape}\n%{n}e = exponential(%{n}d) : f32{shape}\n"
        f"%{n}p = dot_general(%{n}e, %{values}) lhs_contracting_dims=[3] "
        "rhs_contracting_dims=[0] lhs_batch_dims=[0,1] rhs_batch_dims=[1,2] dtype=f32 "
        f": f32[2,2,1,2]\n%{n}r = reduce(%{n}e) dimensions=[3] kind=add : f32[2,2,1]\n"
    )


_OLD, _NEW = _part("old", "kc", "vc", "before", 3), _part("new", "kn", "vn", "now", 1)
# The cache's slots may all be masked, the new token's own never is.
SPLIT: Final = (
    "arg %x : f32[2,4]\narg %kn : f32[1,2,2,2]\narg %vn : f32[1,2,2,2]\narg %before : pred[2,3]\n"
    "arg %kc : f32[3,2,2,2]\narg %vc : f32[3,2,2,2]\n"
    "%yes = constant() value=pred[](true) : pred[]\n"
    "%now = broadcast_in_dim(%yes) shape=[2,1] : pred[2,1]\n"
    "%low = constant() value=f32[](-30000.0) : f32[]\n"
    "%q = reshape(%x) shape=[1,2,2,2] : f32[1,2,2,2]\n"
    f"{_OLD[0]}{_NEW[0]}%top = maximum(%oldt, %newt) : f32[2,2,1]\n{_OLD[1]}{_NEW[1]}"
    "%y = add(%oldp, %newp) : f32[2,2,1,2]\n%s = add(%oldr, %newr) : f32[2,2,1]\n"
    "%t = broadcast_in_dim(%s) shape=[2,2,1,2] dimensions=[0,1,2] : f32[2,2,1,2]\n"
    "%a = divide(%y, %t) : f32[2,2,1,2]"
)
# Scores of rows times heads.
SCORES: Final = (
    "arg %x : f32[2,3,4,5]\narg %w : f32[2,3,5,2]\n%d = dot_general(%x, %w) "
    "lhs_contracting_dims=[3] rhs_contracting_dims=[2] lhs_batch_dims=[0,1] "
    "rhs_batch_dims=[0,1] dtype=f32 : f32[2,3,4,2]\n%s = reshape(%d) shape=[6,4,2] : f32[6,4,2]\n"
)


def _row_mean(name: str, of: str) -> str:
    """The mean of each row of ``of`` [2,4], in all of the row."""
    return (
        f"%{name}s = reduce(%{of}) dimensions=[1] kind=add : f32[2]\n"
        f"%{name}b = broadcast_in_dim(%{name}s) shape=[2,4] dimensions=[0] : f32[2,4]\n"
        f"%{name} = divide(%{name}b, %count) : f32[2,4]\n"
    )


def _filled(name: str, number: float, shape: str) -> str:
    return (
        f"%{name}n = constant() value=f32[]({number}) : f32[]\n"
        f"%{name} = broadcast_in_dim(%{name}n) shape={shape} : f32{shape}\n"
    )


_ROWS: Final = (
    "arg %x : f32[2,4]\narg %w : f32[4]\narg %b : f32[4]\n"
    "%weight = broadcast_in_dim(%w) shape=[2,4] dimensions=[1] : f32[2,4]\n"
    "%bias = broadcast_in_dim(%b) shape=[2,4] dimensions=[1] : f32[2,4]\n"
    f"{_filled('count', 4.0, '[2,4]')}{_filled('epsilon', 0.125, '[2,4]')}{_row_mean('mean', 'x')}"
    "%centered = subtract(%x, %mean) : f32[2,4]\n"
)
_ROOT: Final = "%v = add(%variance, %epsilon) : f32[2,4]\n%root = rsqrt(%v) : f32[2,4]\n"
CENTERED_NORM: Final = (
    f"{_ROWS}%square = multiply(%centered, %centered) : f32[2,4]\n"
    f"{_row_mean('variance', 'square')}{_ROOT}%y = multiply(%centered, %root) : f32[2,4]\n"
    "%z = multiply(%y, %weight) : f32[2,4]\n%a = add(%z, %bias) : f32[2,4]"
)
_BARE_NORM: Final = CENTERED_NORM[: CENTERED_NORM.index("%y =")]
BARE_NORM: Final = f"{_BARE_NORM}%a = multiply(%centered, %root) : f32[2,4]"
NORM_WITHOUT_BIAS: Final = CENTERED_NORM[: CENTERED_NORM.index("%a =")].replace("%z", "%a")
NORM_OF_SQUARES: Final = (
    f"{_ROWS}%square = multiply(%x, %x) : f32[2,4]\n{_row_mean('of_squares', 'square')}"
    "%m = multiply(%mean, %mean) : f32[2,4]\n%variance = subtract(%of_squares, %m) : f32[2,4]\n"
    f"{_ROOT}%s = multiply(%root, %weight) : f32[2,4]\n%y = multiply(%centered, %s) : f32[2,4]\n"
    "%a = add(%y, %bias) : f32[2,4]"
)


def _gelu(root: float, half: float, body: str) -> str:
    """Half of ``x`` times 1 and the share that ``body`` makes of it."""
    given = f"arg %x : f32[5]\n{_filled('root', root, '[5]')}{_filled('half', half, '[5]')}"
    return (
        f"{given}{_filled('one', 1.0, '[5]')}{body}%p = add(%one, %t) : f32[5]\n"
        "%h = multiply(%x, %half) : f32[5]\n%a = multiply(%h, %p) : f32[5]"
    )


# One and the exponential of what is negated: the divisor of a logistic.
_QUOTIENT: Final = (
    "%n = negate(%k) : f32[5]\n%e = exponential(%n) : f32[5]\n%d = add(%one, %e) : f32[5]\n"
)
ACTIVATIONS: Final[dict[str, list[str]]] = {
    "raise-silu": [
        "arg %x : f32[5]\n%l = logistic(%x) : f32[5]\n%a = multiply(%l, %x) : f32[5]",
        f"arg %k : f32[5]\n{_filled('one', 1.0, '[5]')}{_QUOTIENT}"
        "%q = divide(%one, %d) : f32[5]\n%a = multiply(%k, %q) : f32[5]",
        f"arg %k : f32[5]\n{_filled('one', 1.0, '[5]')}{_QUOTIENT}%a = divide(%k, %d) : f32[5]",
    ],
    "raise-gelu-tanh": [
        _gelu(
            (2 / pi) ** 0.5,
            0.5,
            f"{_filled('part', 0.044715, '[5]')}%xx = multiply(%x, %x) : f32[5]\n"
            "%xxx = multiply(%xx, %x) : f32[5]\n%u = multiply(%part, %xxx) : f32[5]\n"
            "%w = add(%x, %u) : f32[5]\n%v = multiply(%w, %root) : f32[5]\n"
            "%t = tanh(%v) : f32[5]\n",
        )
    ],
    "raise-gelu-none": [
        _gelu(0.5**0.5, 0.5, "%v = multiply(%x, %root) : f32[5]\n%t = erf(%v) : f32[5]\n")
    ],
    "raise-gelu-sigmoid": [
        f"arg %x : f32[5]\n{_filled('one', 1.0, '[5]')}{_filled('factor', 1.702, '[5]')}"
        f"%k = multiply(%x, %factor) : f32[5]\n{_QUOTIENT}%a = divide(%x, %d) : f32[5]",
    ],
}
SPELLINGS: Final[dict[str, list[str]]] = {
    "raise-split-attention": [SPLIT],
    "power-by-ops": [
        "arg %x : f32[2,3]\n%s = multiply(%x, %x) : f32[2,3]\n"
        "%c = constant() value=f32[](0.125) : f32[]\n"
        "%d = broadcast_in_dim(%c) shape=[2,3] : f32[2,3]\n%b = add(%s, %d) : f32[2,3]\n"
        f"%n = constant() value=f32[]({number}) : f32[]\n"
        "%e = broadcast_in_dim(%n) shape=[2,3] : f32[2,3]\n%a = power(%b, %e) : f32[2,3]"
        for number in (2.0, 0.5, -0.5)
    ],
    "quotient-of-root": [
        "arg %x : f32[2,3]\narg %y : f32[2]\n%s = multiply(%y, %y) : f32[2]\n"
        "%n = constant() value=f32[](0.125) : f32[]\n"
        "%e = broadcast_in_dim(%n) shape=[2] : f32[2]\n%t = add(%s, %e) : f32[2]\n"
        "%r = sqrt(%t) : f32[2]\n"
        "%b = broadcast_in_dim(%r) shape=[2,3] dimensions=[0] : f32[2,3]\n"
        "%a = divide(%x, %b) : f32[2,3]"
    ],
    "product-of-transpose": [
        "arg %x : f32[2,3]\narg %w : f32[4,3]\n%t = transpose(%w) permutation=[1,0] : f32[3,4]\n"
        "%a = dot_general(%x, %t) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 "
        ": f32[2,4]"
    ],
    "gather-of-run": [
        f"arg %x : f32[3,6,2]\n%i = constant() value=s64[2,1]({first},{first + 1}) : s64[2,1]\n"
        "%a = gather(%x, %i) offset_dims=[0,2] collapsed_slice_dims=[1] start_index_map=[1] "
        "index_vector_dim=1 slice_sizes=[3,1,2] : f32[3,2,2]"
        for first in (0, 4)
    ],
    "product-of-merged": [
        "arg %x : f32[2,3,4]\narg %w : f32[4,5]\n%m = reshape(%x) shape=[6,4] : f32[6,4]\n"
        "%a = dot_general(%m, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 "
        ": f32[6,5]"
    ],
    "product-of-merged-batch": [
        "arg %x : f32[2,3,4,5]\narg %w : f32[2,3,5,2]\n"
        "%m = reshape(%x) shape=[6,4,5] : f32[6,4,5]\n"
        "%n = reshape(%w) shape=[6,5,2] : f32[6,5,2]\n"
        "%a = dot_general(%m, %n) lhs_contracting_dims=[2] rhs_contracting_dims=[1] "
        "lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[6,4,2]"
    ],
    "scores-of-merged-batch": [
        f"{SCORES}arg %b : f32[6,4,2]\n%a = add(%s, %b) : f32[6,4,2]",
        f"{SCORES}%n = constant() value=f32[](0.5) : f32[]\n"
        "%b = broadcast_in_dim(%n) shape=[6,4,2] : f32[6,4,2]\n"
        "%a = multiply(%s, %b) : f32[6,4,2]",
        f"{SCORES}arg %b : f32[6,4,2]\n%a = divide(%b, %s) : f32[6,4,2]",
    ],
    "raise-layer-norm": [CENTERED_NORM, NORM_OF_SQUARES],
    "raise-layer-norm-without-bias": [NORM_WITHOUT_BIAS],
    "raise-layer-norm-bare": [BARE_NORM],
    "raise-partial-rope": [
        "arg %x : f32[1,3,2,6]\narg %c : f32[1,3,2]\narg %s : f32[1,3,2]\n"
        "%l = slice(%x) start_indices=[0,0,0,0] limit_indices=[1,3,2,4] : f32[1,3,2,4]\n"
        "%h = slice(%x) start_indices=[0,0,0,4] limit_indices=[1,3,2,6] : f32[1,3,2,2]\n"
        f"%r = rope(%l, %c, %s){pairs} : f32[1,3,2,4]\n"
        "%a = concatenate(%r, %h) dimension=3 : f32[1,3,2,6]"
        for pairs in ("", " pairs=neighbors")
    ],
    "kernel-of-neuron": [
        "arg %x : f32[2,5]\narg %w : f32[5]\n%e = constant() value=f32[](0.1) : f32[]\n"
        '%a = custom_call(%x, %w, %e) target="AwsNeuronRmsNorm" config="1" '
        "results=[f32[2,5]] : f32[2,5]",
        'arg %x : f32[2,5]\n%a = custom_call(%x) target="AwsNeuronSoftmax" config="-1" '
        "results=[f32[2,5]] : f32[2,5]",
    ],
}
KNOWN_PLACES: Final[dict[str, list[str]]] = {
    "slice-at-constant": [
        f"arg %x : f32[4,3]\n%s = constant() value=s32[]({start}) : s32[]\n{ZERO}"
        "%a = dynamic_slice(%x, %s, %z) slice_sizes=[2,3] : f32[2,3]"
        for start in (1, 3, -1)
    ],
    "stacked": [
        f"arg %x : f32[3,2]\narg %y : f32[1,2]\narg %u : f32[2,2]\n{ZERO}{ONE}"
        "%b = dynamic_update_slice(%x, %u, %o, %z) : f32[3,2]\n"
        "%a = dynamic_update_slice(%b, %y, %z, %z) : f32[3,2]"
    ],
}

# Two of three experts of each token: gathered, summed by a product, and of all, summed by a reduce.
ROUTED: Final = (
    "arg %x : f32[2,4]\narg %s : f32[2,3]\narg %g : f32[3,4,5]\narg %u : f32[3,4,5]\n"
    "arg %d : f32[3,5,4]\n%w, %k = top_k(%s) k=2 : f32[2,2], s32[2,2]\n"
)
EXPERTS: Final[dict[str, list[str]]] = {
    "raise-experts": [
        f"{ROUTED}%j = reshape(%k) shape=[2,2,1] : s32[2,2,1]\n"
        + "".join(
            f"%{name}c = gather(%{name}, %j) offset_dims=[2,3] collapsed_slice_dims=[0] "
            f"start_index_map=[0] index_vector_dim=2 slice_sizes=[1,{size}] : f32[2,2,{size}]\n"
            for name, size in (("g", "4,5"), ("u", "4,5"), ("d", "5,4"))
        )
        + "".join(
            f"%{name}p = dot_general(%x, %{name}c) lhs_contracting_dims=[1] "
            "rhs_contracting_dims=[2] lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : "
            "f32[2,2,5]\n"
            for name in "gu"
        )
        + "%t = silu(%gp) : f32[2,2,5]\n%h = multiply(%t, %up) : f32[2,2,5]\n"
        "%y = dot_general(%h, %dc) lhs_contracting_dims=[2] rhs_contracting_dims=[2] "
        "lhs_batch_dims=[0,1] rhs_batch_dims=[0,1] dtype=f32 : f32[2,2,4]\n"
        "%a = dot_general(%y, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] "
        "lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[2,4]",
        f"{ROUTED}%n = iota() dtype=s32 shape=[2,2,3] dimension=2 : s32[2,2,3]\n"
        "%j = broadcast_in_dim(%k) shape=[2,2,3] dimensions=[0,1] : s32[2,2,3]\n"
        "%e = compare(%j, %n) direction=EQ : pred[2,2,3]\n"
        "%o = convert(%e) dtype=f32 : f32[2,2,3]\n"
        "%v = broadcast_in_dim(%w) shape=[2,2,3] dimensions=[0,1] : f32[2,2,3]\n"
        "%m = multiply(%o, %v) : f32[2,2,3]\n"
        "%c = reduce(%m) dimensions=[1] kind=add : f32[2,3]\n"
        + "".join(
            f"%{name}p = dot_general(%x, %{name}) lhs_contracting_dims=[1] "
            "rhs_contracting_dims=[1] dtype=f32 : f32[2,3,5]\n"
            for name in "gu"
        )
        + "%t = logistic(%gp) : f32[2,3,5]\n%h = multiply(%up, %t) : f32[2,3,5]\n"
        "%q = dot_general(%h, %d) lhs_contracting_dims=[2] rhs_contracting_dims=[1] "
        "lhs_batch_dims=[1] rhs_batch_dims=[0] dtype=f32 : f32[3,2,4]\n"
        "%y = transpose(%q) permutation=[1,0,2] : f32[2,3,4]\n"
        "%z = broadcast_in_dim(%c) shape=[2,3,4] dimensions=[0,1] : f32[2,3,4]\n"
        "%r = multiply(%y, %z) : f32[2,3,4]\n"
        "%a = reduce(%r) dimensions=[1] kind=add : f32[2,4]",
    ]
}
