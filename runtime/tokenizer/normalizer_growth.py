"""Bound by which the steps of a tokenizer may lengthen a text, from their patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from tokenizers import Tokenizer as Backend

from graphgen.json_value import parse_json
from graphgen.limits import GROWTH, TOKENIZER_BYTES
from graphgen.runtime.tokenizer.tokenizer_parts import unusable

# Tokenizers replace a blank, a quote or a line's end, once each.
_MOST_STEPS: Final = 1000
# Of a part of a tokenizer whose file was read within limits.

_Step = Mapping[str, object]


def require_bounded(path: Path, backend: Backend) -> None:
    """Refuse a tokenizer whose replacements feed each other and multiply a text (GG0603).

    Of 32 steps that double each letter a text of one letter becomes one of four billion.

    Args:
        path: its file, for errors.
        backend: the tokenizer.
    """
    for part, name in ((backend.normalizer, "normalizer"), (backend.decoder, "decoder")):
        steps = list(_steps(part))
        if len(steps) > _MOST_STEPS:
            raise unusable(path, f"its {name} has {len(steps)} steps, and at most {_MOST_STEPS}")
        if _factor(steps) > GROWTH.most:
            what = f"its {name} makes a text longer, {GROWTH} times is taken"
            raise unusable(path, what)


def _steps(part: object) -> Iterator[tuple[str, str]]:
    """Pattern and content of each replacement in order; no pattern for a regular expression."""
    if part is None:
        return
    state = parse_json(cast("bytes", part.__getstate__()), most=TOKENIZER_BYTES)
    waiting = [cast(_Step, state)]
    while waiting:
        step = waiting.pop()
        inside = step.get("normalizers", step.get("decoders"))
        if isinstance(inside, list):
            waiting += cast("list[_Step]", inside)[::-1]
        elif step.get("type") == "Replace":
            pattern = cast("Mapping[str, str]", step["pattern"]).get("String", "")
            yield pattern, str(step["content"])


def _factor(steps: Sequence[tuple[str, str]]) -> float:
    """The largest product of factors of steps of which each may read what the one before wrote."""
    largest: list[float] = []
    for number, (pattern, content) in reversed([*enumerate(steps)]):
        own = max(1.0, len(content) / max(len(pattern), 1))
        below = [
            largest[len(steps) - 1 - other]
            for other in range(number + 1, len(steps))
            if not steps[other][0] or not set(steps[other][0]).isdisjoint(content)
        ]
        largest.append(min(own * max(below, default=1.0), 1e300))
    return max(largest, default=1.0)
