"""Subnormal numbers: kept by the comparison, and perhaps flushed by the targets of a pipeline.

NumPy keeps them, and a pass that flushes them to zero is wrong under budget 0. A target may flush
them whatever the program says (``flushes_subnormals`` in its file): a difference that is seen there
alone is the target's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.json_value import Json
from graphgen.passes.core import Pass
from graphgen.targets import Target, find_target, target_names

_WORDS: Mapping[bool | None, str] = {
    True: "flushes them to zero",
    False: "keeps them",
    None: "is not known to keep them",
}


def targets_of(passes: Sequence[Pass]) -> list[Target]:
    """The targets that the passes of a pipeline are for, in order."""
    named = dict.fromkeys(str(getattr(item, "target", "")) for item in passes)
    known = target_names()
    return [find_target(name) for name in named if name in known]


def subnormals_text(passes: Sequence[Pass]) -> str:
    """A line on the comparison and each target; empty for a pipeline without a target."""
    found = [f"{target.name} {_WORDS[target.flushes]}" for target in targets_of(passes)]
    return f"subnormal numbers: kept by the comparison; {', '.join(found)}\n" if found else ""


def subnormals_json(passes: Sequence[Pass]) -> dict[str, Json]:
    """The same; ``flushes`` is null where it is not known."""
    targets: dict[str, Json] = {
        target.name: {
            "flushes": target.flushes,
            "source": str(target.flushes_subnormals.get("source", "")) or None,
        }
        for target in targets_of(passes)
    }
    return {"kept_by_comparison": True, "targets": targets}
