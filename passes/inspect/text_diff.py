"""Unified diff of the functions that a pass changed.

Layers repeat, and so do changes: a hunk that differs from one before it only in the number of its
layer and in the names of values is not shown again, but counted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graphgen.ir import Module
from graphgen.passes.inspect.stable_names import StableNames, parent_of
from graphgen.text import print_function, print_interface

# Part of a module (its head, or a function) to its lines.
Texts = Mapping[str, list[str]]
HEAD = "interface"
_VIA = re.compile(r" via [\w,-]+$")


def texts_of(module: Module, names: StableNames) -> Texts:
    """The lines of a module's head and of each function; values keep their names."""
    head = print_interface(module).splitlines()
    texts = {HEAD: [line for line in head if not line.startswith("  meta ")]}
    for function in module.functions.values():
        text = print_function(function, names=names.of(function))
        # The passes in an op's location are not part of the op.
        texts[f"@{function.name}"] = [_VIA.sub("", line) for line in text.splitlines()]
    return texts


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place of a diff.

    Attributes:
        part: the function, or the head.
        lines: ``@@`` line and the lines below it.
        again: scopes of the hunks like it that are left out.
    """

    part: str
    lines: list[str]
    again: list[str] = field(default_factory=list[str])


def changes(before: Texts, after: Texts, *, fold: bool = True) -> list[Hunk]:
    """Differences of two texts.

    Args:
        before, after: of :func:`texts_of`; a new function is compared with the one that its name
            derives from.
        fold: whether hunks like one before are only counted.
    """
    found: list[Hunk] = []
    first: dict[str, Hunk] = {}
    parents = {part: parent_of(part, before) for part in after}
    gone = [part for part in before if part not in after and part not in parents.values()]
    for part in [*gone, *after]:
        old, new = before.get(parents.get(part, part), []), after.get(part, [])
        if old == new:
            continue
        for lines in _hunks(old, new):
            like = first.setdefault(_alike(lines), hunk := Hunk(part, lines))
            if like is hunk or not fold:
                found.append(hunk)
            else:
                like.again.append(f"{part} {_scope(lines)}".strip())
    return found


def unified(before: Texts, after: Texts, title: str, *, fold: bool = True) -> str:
    """A unified diff with one head for each function, empty where nothing changed."""
    out: list[str] = []
    part = ""
    for hunk in changes(before, after, fold=fold):
        if hunk.part != part:
            part = hunk.part
            out += [f"--- {parent_of(part, before) or part}", f"+++ {part} after {title}"]
        out += hunk.lines
        if hunk.again:
            more = f"{len(hunk.again)} more like this" if len(hunk.again) > 1 else "once more"
            out.append(f"# {more}: {_some(hunk.again)}")
    return "".join(f"{line}\n" for line in out)


def _some(places: list[str]) -> str:
    return ", ".join(places if len(places) <= 3 else [*places[:2], "...", places[-1]])


def _hunks(old: list[str], new: list[str]) -> Iterator[list[str]]:
    # The common prefix and suffix are most of it; difflib takes its time over long texts.
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    start = max(head - 3, 0)
    keep = max(tail - 3, 0)
    old, new = old[start : len(old) - keep], new[start : len(new) - keep]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(3):
        (_, i, _, k, _), (_, _, j, _, n) = group[0], group[-1]
        lines = [f"@@ -{_place(start + i, j - i)} +{_place(start + k, n - k)} @@"]
        for kind, i, j, k, n in group:
            if kind == "equal":
                lines += [f" {line}" for line in old[i:j]]
            else:
                lines += [f"-{line}" for line in old[i:j]]
                lines += [f"+{line}" for line in new[k:n]]
        yield lines


def _shared(left: list[str], right: list[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _place(start: int, length: int) -> str:
    begin = start if not length else start + 1
    return str(begin) if length == 1 else f"{begin},{length}"


_NAME = re.compile(r"%[\w.-]+")
_DIGITS = re.compile(r"\d+")
_LAYER = re.compile(r"\.\d+(?=[.\s]|$)")
_SCOPE = re.compile(r"# \S+:\d+ (\S+)")


def _alike(lines: list[str]) -> str:
    """Key of hunks that make the same change in two layers: changed lines only."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        # Words stay: one weight of a layer is not another one.
        return numbers.setdefault(match[0], f"%{len(numbers)} {_DIGITS.sub('N', match[0])}")

    changed = "\n".join(line for line in lines[1:] if not line.startswith(" "))
    return _LAYER.sub(".N", _NAME.sub(number, changed))


def _scope(lines: list[str]) -> str:
    """The scope of the first changed line that has one."""
    for line in lines[1:]:
        match = _SCOPE.search(line)
        if match and not line.startswith(" "):
            return match[1]
    return ""
