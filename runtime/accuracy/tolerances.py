"""Tolerances of logits for their k largest entries, for several k."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.numbers import is_digits

ALL: Final = "all"
"""The key of the tolerance for every entry; NxD Inference also writes ``None``."""

# Largest accepted gap between the tested model's best token and the reference's, in logits.
DIVERGENCE_DIFFERENCE_TOL: Final = 0.001
_EXAMPLE: Final = '{"5": [1e-5, 0.01], "all": [1e-5, 0.05]}'


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The accepted error of the ``top_k`` largest expected logits.

    An error e passes if e <= atol + rtol * max|expected|, the maximum over the same entries.

    Attributes:
        top_k: number of entries, at least 1; ``None`` for all.
        atol: in logits.
        rtol: relative to the largest absolute value.
    """

    top_k: int | None
    atol: float
    rtol: float

    @property
    def key(self) -> str:
        """The entry's key in a tolerance map."""
        return ALL if self.top_k is None else str(self.top_k)

    @property
    def name(self) -> str:
        """The entries in words: ``the top 5 logits``."""
        return "all logits" if self.top_k is None else f"the top {self.top_k} logits"


@dataclass(frozen=True, slots=True)
class ToleranceMap:
    """Tolerances for several k, the smallest k first and ``all`` last."""

    entries: tuple[Tolerance, ...]

    def scaled(self, factor: float) -> ToleranceMap:
        """The map with each ``rtol`` times ``factor``."""
        return ToleranceMap(
            tuple(Tolerance(one.top_k, one.atol, one.rtol * factor) for one in self.entries)
        )

    def to_json(self) -> dict[str, list[float]]:
        """The map as :func:`tolerance_map` reads it."""
        return {one.key: [one.atol, one.rtol] for one in self.entries}


# NxD Inference's defaults. A smaller k has a narrower tolerance: likely tokens matter more.
AWS_TOLERANCES: Final = ToleranceMap(
    (
        Tolerance(5, 1e-5, 0.01),
        Tolerance(50, 1e-5, 0.02),
        Tolerance(1000, 1e-5, 0.03),
        Tolerance(None, 1e-5, 0.05),
    )
)
# AWS's defaults are made for bf16, whose unit roundoff is 2**-8. An error of 1 % in the weights of
# one of 30 layers stays below them, and is hundreds of times the rounding of f32.
_F32_FACTOR: Final = 0.01


def default_tolerances(dtype: str) -> ToleranceMap:
    """The tolerances of a model that computes in ``dtype``: AWS's, 100 times narrower for f32."""
    return AWS_TOLERANCES.scaled(_F32_FACTOR) if dtype == "f32" else AWS_TOLERANCES


def tolerance_map(value: Mapping[object, object]) -> ToleranceMap:
    """Read a map from k to (atol, rtol); a k is a number, its text, ``all`` or ``None``.

    Raises:
        GraphgenError: GG0705 for an empty map, a k below 1, a k given twice, or a tolerance that is
            not two finite numbers from 0 on.
    """
    entries = [_entry(key, pair) for key, pair in value.items()]
    keys = [entry.key for entry in entries]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if not entries or twice:
        raise _bad(f"it gives {twice[0]} twice" if twice else "it is empty")
    last = float("inf")
    return ToleranceMap(tuple(sorted(entries, key=lambda one: one.top_k or last)))


def parse_tolerance_map(text: str) -> ToleranceMap:
    """Read a map from a command line, as JSON or as a Python literal (GG0705).

    Examples: ``{"5": [1e-5, 0.01], "all": [1e-5, 0.05]}`` and, as AWS's tools write it,
    ``{5: (1e-5, 0.01), None: (1e-5, 0.05)}``.
    """
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise _bad(f"{text!r} is neither JSON nor a Python literal") from error
    if not isinstance(value, dict):
        raise _bad(f"{text!r} is a {type(value).__name__}, not a map")
    return tolerance_map(cast("dict[object, object]", value))


def _entry(key: object, pair: object) -> Tolerance:
    top_k = None if key is None or key == ALL else _whole(key)
    if top_k is not None and top_k < 1:
        raise _bad(f"the key {key!r} is neither a number of logits from 1 on nor {ALL!r}")
    numbers = _numbers(pair)
    if len(numbers) != 2:
        raise _bad(f"the tolerance of {key!r} is {pair!r}, not (atol, rtol), two numbers from 0 on")
    return Tolerance(top_k, *numbers)


def _whole(key: object) -> int:
    if is_digits(key):
        return int(str(key))
    return key if isinstance(key, int) and not isinstance(key, bool) else 0


def _numbers(pair: object) -> list[float]:
    """The two numbers of a tolerance; empty if there is another kind of value among them."""
    values = cast("list[object]", list(pair)) if isinstance(pair, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    fitting = [
        float(value)
        for value in values
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value < float("inf")
    ]
    return fitting if len(fitting) == len(values) else []


def _bad(what: str) -> GraphgenError:
    return GraphgenError("GG0705", f"bad tolerance map: {what}", help=f"an example: {_EXAMPLE}")
