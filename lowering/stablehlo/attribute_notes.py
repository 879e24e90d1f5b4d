"""Attributes of ops, arguments and results as annotations, and back as text.

Read: whatever no reader of an op has read. Written: what is known to change nothing in how a
program runs is left out; what StableHLO has no words for is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo.annotations import FRONTEND, SHARDING, frontend_map, frontend_text
from graphgen.lowering.mlir.mlir_types import string
from graphgen.lowering.mlir.syntax_tree import MlirAttr, MlirAttrs
from graphgen.lowering.stablehlo import shardy
from graphgen.lowering.stablehlo.shardy import ShardyMesh

MLIR = "mlir."
_SHARDY = "sdy.sharding"
# Attributes that follow from others.
_IMPLIED = frozenset(
    ("operandSegmentSizes", "resultSegmentSizes", "split_count", "sym_name", "is_stable")
)
# Annotations of HLO that change nothing in the numbers, and that StableHLO has no place for.
_LEFT_OUT = frozenset(
    (
        *("hlo.opcode", "hlo.kind", "hlo.statistics", "hlo.original_value", "hlo.origin"),
        *("hlo.shape", "hlo.channel_id", "hlo.backend_config", "hlo.field_82", "hlo.field_88"),
        *("hlo.use_global_device_ids", "hlo.constrain_layout"),
    )
)
# Promises about indices, which both formats have.
PROMISES = ("indices_are_sorted", "unique_indices")
_SIMPLE_KEY = re.compile(r"[A-Za-z_][\w$.]*")


def annotations_of(attrs: MlirAttrs, meshes: Mapping[str, ShardyMesh]) -> dict[str, str]:
    """The attributes that are unread yet, as annotations.

    Args:
        attrs: of an op, an argument or a result.
        meshes: Shardy's meshes by name.
    """
    found: dict[str, str] = {}
    entries: dict[str, str] = {}
    for key, text in attrs.unread().items():
        if key == "mhlo.sharding":
            found[SHARDING] = str(attrs[key])
        elif key == "mhlo.frontend_attributes":
            entries |= _texts(attrs[key])
        elif key == _SHARDY:
            entries[shardy.SHARDING] = text
            found.setdefault(SHARDING, shardy.hlo_sharding(text, meshes))
        elif key in PROMISES:
            found[f"hlo.{key}"] = "true" if attrs[key] is True else ""
        elif key not in _IMPLIED and not _is_default(text):
            found[MLIR + key] = text
    if entries:
        found[FRONTEND] = frontend_text(entries)
    return {key: text for key, text in found.items() if text}


def _texts(value: MlirAttr) -> dict[str, str]:
    """The texts of a dictionary of strings."""
    if not isinstance(value, MlirAttrs):
        return {}
    return {key: item if isinstance(item, str) else str(item) for key, item in value.items()}


def _is_default(text: str) -> bool:
    """True for what the generic form spells out and the short form leaves out."""
    if text in ("false", "[]", '"default"', "#stablehlo.channel_handle<handle = 0, type = 0>"):
        return True
    return "DEFAULT" in text and not re.search(r"\b(?:HIGH|HIGHEST|TOLERANCE|atol)\b", text)


def attribute_texts(annotations: Mapping[str, object], part: str = "") -> list[tuple[str, str]]:
    """The names and texts of the attributes that annotations are written as.

    Args:
        annotations: of an op, an argument, or a part of a function under their own names.
        part: of which they are, for errors.

    Raises:
        GraphgenError: GG0401 for one that StableHLO has no words for.
    """
    entries = frontend_map(annotations)
    sharding = entries.pop(shardy.SHARDING, "")
    found: list[tuple[str, str]] = []
    if sharding:
        found.append((_SHARDY, sharding))
    if entries:
        pairs = [f"{_key(key)} = {string(text)}" for key, text in entries.items()]
        found.append(("mhlo.frontend_attributes", "{" + ", ".join(pairs) + "}"))
    for key, value in annotations.items():
        if key.startswith(MLIR):
            found.append((key.removeprefix(MLIR), str(value)))
        elif key == SHARDING and not sharding:
            found.append(("mhlo.sharding", string(str(value))))
        elif key not in (SHARDING, FRONTEND):
            _leave_out(key, str(value), part)
    return found


def _key(key: str) -> str:
    return key if _SIMPLE_KEY.fullmatch(key) else string(key)


def _leave_out(key: str, value: str, part: str) -> None:
    bounded = key == "hlo.shape" and "<=" in value
    if bounded or (key not in _LEFT_OUT and not key.startswith("hlo.element")):
        what = f"StableHLO has no words for {key}={value[:60]}{part}"
        raise GraphgenError("GG0401", what, help="write HLO instead")


def dictionary_text(pairs: Sequence[tuple[str, str]]) -> str:
    """Spell ``{key = value, unit}``; empty without pairs."""
    shown = [_key(key) if text == "unit" else f"{_key(key)} = {text}" for key, text in pairs]
    return "{" + ", ".join(shown) + "}" if shown else ""


def with_attributes(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Put attributes into the text of an op, in front of its types."""
    if not pairs:
        return text
    found = dictionary_text(pairs)
    constant = re.match(r"(\S+ = stablehlo\.constant) ", text)
    if constant is not None:
        return f"{constant[1]} {found}{text[constant.end() - 1 :]}"
    properties = text.find(" <{")
    own = [pair for pair in pairs if "." not in pair[0]] if properties >= 0 else []
    if own:
        rest = [pair for pair in pairs if "." in pair[0]]
        inside = dictionary_text(own)[1:-1]
        written = text[properties : text.find("}>", properties)]
        for key, _ in own:
            # The row of an op reads whatever it writes: MLIR refuses a key twice.
            assert not re.search(rf"[{{,] *{re.escape(key)} =", written), f"{key} is written twice"
        return with_attributes(f"{text[: properties + 3]}{inside}, {text[properties + 3 :]}", rest)
    head, colon, types = text.rpartition(" : ")
    if _ends_with_attributes(head):
        return f"{head[:-1]}, {found[1:]}{colon}{types}"
    return f"{head} {found}{colon}{types}"


_BRACES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')


def _ends_with_attributes(head: str) -> bool:
    """True where the last thing is a dictionary of the op itself, not the value of a key."""
    if not head.endswith("}"):
        return False
    stack: list[int] = []
    start = 0
    for found in _BRACES.finditer(head):
        if found[0] == "{":
            stack.append(found.start())
        elif found[0] == "}" and stack:
            start = stack.pop()
    return not head[:start].rstrip().endswith("=")
