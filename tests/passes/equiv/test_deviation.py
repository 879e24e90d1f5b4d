"""Two distances of outcomes: of the whole, and of each element; bits under budget 0."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import Array
from graphgen.passes.equiv.deviation import (
    MEANING_BUDGET,
    RoundingNoise,
    compare,
    difference,
    first_beyond,
    worse,
)

NAN = float("nan")
F32 = 2.0**-24


def off(a: Array, b: Array) -> bool:
    """True if two arrays are not equal bit for bit."""
    return not difference("", 0, a, b).within(0)


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "f2"])
def test_budget_0_compares_bits(kind: str):
    a = np.array([0.0, 1.0, NAN, -0.0], kind)
    assert not off(a, a.copy())
    assert off(a, np.array([-0.0, 1.0, NAN, -0.0], kind))
    found = difference("y", 0, a, np.array([0.0, 1.0, NAN, 0.0], kind))
    assert (found.relative, found.bits, found.place(0)) == (0.0, 1, 3)
    assert found.beyond(0) == "1 element differs in the sign of zero"
    # What the budget of a rounding allows, signs of zero are part of.
    assert found.within(MEANING_BUDGET)


def test_signs_of_zero_of_both_parts_of_a_complex_number_count():
    a = np.array([complex(0.0, 0.0)])
    assert off(a, np.array([complex(0.0, -0.0)]))
    assert off(a, np.array([complex(-0.0, 0.0)]))


def test_nan_is_one_value_and_no_other():
    a = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    assert not off(a, a[::-1])
    for other in (0.0, np.inf, 1.0):
        b = np.array([NAN, other], np.float32)
        assert off(a, b)
        assert not difference("", 0, a, b).within(1e9)


def test_integers_of_64_bits_are_compared_to_the_last_bit():
    for kind in (np.int64, np.uint64):
        a = np.array([2**62, 5], kind)
        found = difference("", 0, a, a + np.array([1, 0], kind))
        assert (found.relative, found.max_abs, found.place(1e-9)) == (np.inf, 1.0, 0)
    low = np.array([np.iinfo(np.int64).min])
    assert difference("", 0, low, -(low + 1)).max_abs == pytest.approx(2.0**64)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_of_32_bits_and_more_are_no_quantized_values(kind: str):
    a = np.array([100, 50], kind)
    found = difference("", 0, a, a - np.array([1, 0], kind))
    assert found.relative == (np.inf if np.dtype(kind).itemsize >= 4 else pytest.approx(0.01))


def test_a_small_wrong_channel_beside_a_large_one_is_seen():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((16, 4))
    a[:, 2] *= 1e-10
    noise = 1 + 1e-15 * rng.standard_normal(a.shape)
    assert difference("", 0, a, a * noise).within(MEANING_BUDGET)
    b = a * noise
    b[:, 2] = -a[:, 2]
    found = difference("", 0, a, b)
    assert found.relative < MEANING_BUDGET
    assert not found.within(MEANING_BUDGET)
    assert found.element == pytest.approx(2.0)
    assert found.place(MEANING_BUDGET) % 4 == 2
    assert found.beyond(MEANING_BUDGET) == "an element is off by 2.0e+00 of its own size"


@pytest.mark.parametrize(("budget", "seen"), [(1e-2, True), (2.0**-5, False), (1.25, False)])
def test_numbers_of_a_few_bits_are_held_against_the_whole(budget: float, seen: bool):
    a = np.linspace(1.0, 2.0, 16)
    a[3] = 1e-6
    b = a.copy()
    b[3] = 5e-6
    found = difference("", 0, a, b)
    assert found.relative < 1e-5
    assert found.within(budget) is not seen
    assert found.place(budget) == 3


def test_what_is_left_where_large_numbers_cancel_is_not_wrong():
    rng = np.random.default_rng(2)
    large = rng.standard_normal(256) * 3
    # The order of the sum decides about the last digits of small results.
    a, b = (large + 1e-7) - large, np.full(256, 1e-7)
    whole = np.concatenate([large, a]), np.concatenate([large, b])
    assert (a != b).any()
    assert difference("", 0, *whole).within(MEANING_BUDGET)
    # As much where all elements move by as much.
    moved = large + 1e-10
    near = np.concatenate([large, [1e-9]]), np.concatenate([moved, [1e-9 + 1e-10]])
    assert difference("", 0, *near).within(MEANING_BUDGET)


def test_masked_scores_do_not_hide_the_others():
    masked = float(np.finfo(np.float32).min)
    a, b = np.array([1.0, 2.0, masked]), np.array([1.0, 2.001, masked])
    assert difference("", 0, a, b).relative == pytest.approx(5e-4)
    assert not difference("", 0, a, np.array([1.0, 2.0, 0.0])).within(0.1)


def test_native_elements_are_held_against_float64_where_nothing_cancels():
    rng = np.random.default_rng(3)
    exact = rng.standard_normal((32, 2)) * [1.0, 1e-10]
    a = exact.astype(np.float32)
    flushed = a.copy()
    flushed[:, 1] = 0
    assert difference("", 0, a, flushed, F32).within(2e-2)
    found = difference("", 0, a, flushed, F32, exact)
    assert found.relative < 2e-2
    assert not found.within(2e-2)
    # Where the reference has lost as much to rounding, it is no measure.
    lost = exact.copy()
    lost[:, 1] += 1e-8
    assert difference("", 0, a, flushed, F32, lost).within(2e-2)
    # In bf16 rounding at the size of the whole is larger.
    assert difference("", 0, a, flushed, 2.0**-8, exact).within(2e-2)


def test_an_element_whose_terms_cancel_may_move_as_far_as_its_arguments_let_it():
    exact = np.random.default_rng(3).uniform(1.0, 2.0, 32)
    a = exact.astype(np.float32)
    b, moved = a.copy(), np.zeros(32)
    b[5] += 1e-4
    # Its neighbours are right to the last bit, and so is the reference.
    found = difference("", 0, a, b, F32, exact, moved)
    assert not found.within(1e-5)
    moved[5] = 1e-5
    assert difference("", 0, a, b, F32, exact, moved).element == 0
    # 16 times that distance is the limit, and only this element has it.
    moved[5] = 5e-6
    assert difference("", 0, a, b, F32, exact, moved).element > 0
    moved = np.roll(np.where(moved > 0, 1e-5, 0.0), 1)
    assert difference("", 0, a, b, F32, exact, moved).element > 0


def test_a_flushed_subnormal_is_seen():
    a = np.float32(1e-40) * np.arange(1, 17, dtype=np.float32)
    a[0] = 1.0
    assert off(a, np.where(np.abs(a) < np.finfo(np.float32).tiny, np.float32(0), a))


def test_the_worst_of_several_outputs_is_by_either_distance():
    a = {"x": np.array([1.0, 1.0]), "y": np.array([1.0, 1e-9])}
    b = {"x": np.array([1.0, 1.0 + 1e-10]), "y": np.array([1.0, 3e-9])}
    worst = compare([a], [b])
    assert (worst.name, worst.within(MEANING_BUDGET)) == ("y", False)
    first = first_beyond([a], [b], MEANING_BUDGET)
    assert first is not None
    assert first.name == "y"
    assert worse(first, first) is first
    zeros = [{"x": np.zeros(2, np.float32)}], [{"x": np.array([0.0, -0.0], np.float32)}]
    assert not compare(*zeros).within(0)
    assert compare(*zeros, RoundingNoise(F32, zeros[0])).within(1e-6)


BF16 = 2.0**-8
EXACT = np.linspace(0.5, 1.0, 16)


@pytest.mark.parametrize(
    ("own", "other", "right"),
    [
        (0.1, 0.15, True),
        (0.1, 0.05, True),
        (0.1, 0.25, False),
        # As many roundings a path has without being amplified.
        (6 * BF16, 12 * BF16, False),
        (0.0, 0.05, False),
        (0.1, NAN, False),
    ],
)
def test_a_difference_below_the_error_of_the_module_before_is_amplified_rounding(
    own: float, other: float, right: bool
):
    one, two = ({"y": (EXACT + error).astype(np.float32)} for error in (own, other))
    noise = RoundingNoise(BF16, [{"y": EXACT}])
    found = compare([one], [two], noise)
    assert found.within(2e-2) == right
    assert not found.within(0)
    assert not compare([one], [two]).within(2e-2)
    assert (first_beyond([one], [two], 2e-2, noise) is None) == right


def test_amplified_rounding_of_a_call_hides_no_smaller_difference_of_another_one():
    calls = [{"y": EXACT + error} for error in (0.1, 0.0)]
    others = [{"y": EXACT + error} for error in (0.19, 0.03)]
    noise = RoundingNoise(BF16, [{"y": EXACT}] * 2)
    found = compare(calls, others, noise)
    assert found.call == 0
    assert not found.within(2e-2)
    assert compare(calls[:1], others[:1], noise).within(2e-2)
    second = first_beyond(calls, others, 2e-2, noise)
    assert second is not None
    assert second.call == 1


def test_masked_elements_are_not_compared():
    a = np.ma.masked_array([1.0, 2.0, 3.0], [True, False, False])
    found = difference("", 0, a, np.array([9.0, 2.0, 4.0]))
    assert (found.max_abs, found.place(0)) == (1.0, 2)
