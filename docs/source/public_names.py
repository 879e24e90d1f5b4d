"""Write ``docs/api.txt``: the public names of graphgen with their signatures.

    python docs/source/public_names.py

A change of this file is a change of what users have written their programs against: it shows as a
difference in review, and needs a line in the changelog.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from typing import Any, Final

import graphgen
from graphgen.runtime.compiled_module import CompiledModule
from graphgen.runtime.language_model import Answer, AnswerStream, LanguageModel, ToolCall

# What the functions return.
RETURNED: Final = (Answer, AnswerStream, CompiledModule, LanguageModel, ToolCall)
FILE: Final = Path(__file__).resolve().parents[1] / "api.txt"
_KINDS: Final = {classmethod: "classmethod ", staticmethod: "staticmethod "}


def public_objects() -> dict[str, Any]:
    """The public names, and the classes of what they return, with what they stand for."""
    names = {*graphgen.__all__, "compile"}
    found = {name: getattr(graphgen, name) for name in names}
    return found | {cls.__name__: cls for cls in RETURNED}


def public_names() -> str:
    """A line for each name, and below a class one for each of its own public members."""
    lines: list[str] = []
    for name, found in sorted(public_objects().items()):
        if isinstance(found, EnumType):
            lines.append(f"enum {name}: {', '.join(found.__members__)}")
        elif inspect.isclass(found):
            lines += [f"class {name}{_signature(found)}", *_members(found)]
        elif callable(found):
            lines.append(f"{name}{_signature(found)}")
        else:
            lines.append(f"{name}: {type(found).__name__}")
    return "\n".join(lines) + "\n"


def _members(cls: type) -> Iterator[str]:
    for owner in reversed(cls.__mro__[:-1]):
        if not owner.__module__.startswith("graphgen"):
            continue
        for name, member in sorted(vars(owner).items()):
            if name.startswith("_") or getattr(cls, name, None) is None:
                continue
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if isinstance(plain, property) and plain.fget is not None:
                returned = _annotation(inspect.signature(plain.fget).return_annotation)
                yield f"  {name}: {returned}"
            elif inspect.isfunction(plain):
                yield f"  {_KINDS.get(type(member), '')}{name}{_signature(plain)}"


def _signature(found: object) -> str:
    assert callable(found)
    try:
        text = str(inspect.signature(found))
    except ValueError:
        return "(...)"
    # Annotations are texts, which inspect quotes.
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def _annotation(found: object) -> str:
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


if __name__ == "__main__":
    FILE.write_text(public_names(), "utf-8")
    print(f"wrote {FILE.name}: {len(FILE.read_text('utf-8').splitlines())} lines")
