"""Pairs the arguments and results of a program with the tensors that a NEFF names."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"(\d+)$")
_ALIAS = ".must_alias_input"


def paired(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """The NEFF's name of each wanted tensor.

    Names are the program's own, those with the mark of an alias, or ``input0``, ``input1``, ... in
    the order of the program.

    Raises:
        ValueError: they do not fit together.
    """
    if len(wanted) != len(found):
        raise ValueError(f"the NEFF has {len(found)} tensors where the program has {len(wanted)}")
    plain = {name[: -len(_ALIAS)] if name.endswith(_ALIAS) else name: name for name in found}
    if all(name in plain for name in wanted):
        return [plain[name] for name in wanted]
    numbered = {name: _NUMBER.search(name) for name in found}
    stems = {_NUMBER.sub("", name) for name in found}
    if all(numbered.values()) and len(stems) == 1:
        return sorted(found, key=_number)
    if len(wanted) == 1:
        return list(found)
    raise ValueError(f"the NEFF names {', '.join(found)}, the program {', '.join(wanted)}")


def _number(name: str) -> int:
    match = _NUMBER.search(name)
    return int(match[1]) if match else -1
