"""Pairs the arguments and results of a program with the tensors that a NEFF names."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"(\d+)$")
_ALIAS = ".must_alias_input"


def paired(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """The NEFF's name of each wanted tensor; empty for one that the compiler left out.

    Names are the program's own, those with the mark of an alias, or ``input0``, ``input1``, ... by
    their place in the program.

    Raises:
        ValueError: they do not fit together.
    """
    plain = {name[: -len(_ALIAS)] if name.endswith(_ALIAS) else name: name for name in found}
    if all(name in wanted for name in plain):
        return [plain.get(name, "") for name in wanted]
    stems = {_NUMBER.sub("", name) for name in found}
    numbers = {int(match[1]): name for name in found if (match := _NUMBER.search(name))}
    if len(stems) == 1 and len(numbers) == len(found) and max(numbers) < len(wanted):
        return [numbers.get(at, "") for at in range(len(wanted))]
    if len(wanted) == len(found) == 1:
        return list(found)
    raise ValueError(f"the NEFF names {', '.join(found)}, the program {', '.join(wanted)}")
