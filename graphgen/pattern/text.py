"""Parse patterns over ops, in the notation of printed IR.

    dot_general(_, param) -> reshape -> transpose

A pattern is a chain of ops; ``->`` goes to an op that reads a result of the one before, or to
``return``. An op is a name, in the IR's or HLO's spelling; ``*`` and ``?`` stand for letters, ``|``
for alternatives, ``_`` for any op. These may follow it, in this order:

* operands in parentheses, each one a nested op (the one that makes it), ``_`` (anything),
  ``param``, ``input``, ``weight`` or ``cache`` (an argument of that kind), ``const``, ``%name``, or
  ``$x``, which is the same value wherever it is written; a last ``...`` stands for any more;
* conditions in braces: ``{dtype=f32 bytes>=1MB}``. A key is an attribute, or ``bytes``, ``uses``,
  ``rank`` (of the first result), ``name``, ``layer``, ``scope``, ``file``, ``line``;
* a colon and the type of the first result: ``: bf16[*,64]``. Operands may have one too.
"""

from __future__ import annotations

import re

from graphgen.errors import GraphgenError
from graphgen.pattern.nodes import Condition, OpPattern

_TOKEN = re.compile(
    r"\s*(?:(->|\.\.\.|[(),:|])|(\{[^}]*\})|([\w*?]+\[[^\]]*\])|(%[^\s,(){}|:]+)|(\$\w+)"
    r"|([\w*?.]+(?:-(?!>)[\w*?.]+)*))"
)
_CONDITION = re.compile(r"([\w.]+)\s*(>=|<=|!=|=|>|<)\s*(\[[^\]]*\]|[^\s,]+)[\s,]*")
KINDS = {"param": "", "input": "inputs", "weight": "weights", "cache": "caches"}
# Common spellings of ops with another name in the IR.
_SPELLED = {"dot": "dot_general", "broadcast": "broadcast_in_dim"}
_HELP = "write e.g. 'dot_general(_, param){dtype=f32} -> reshape'; see graphgen grep --help"


def parse_pattern(text: str) -> tuple[OpPattern, ...]:
    """The chain that a text stands for (GG0705 with the place of a mistake)."""
    return _Parser(text).chain()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                start = len(text) - len(text[at:].lstrip())
                raise self.fail("this is not part of a pattern", start)
            self.tokens.append((found[0].strip(), found.end() - len(found[0].strip())))
            at = found.end()
        self.at = 0

    def fail(self, what: str, at: int) -> GraphgenError:
        note = f"{self.text}\n{' ' * at}^"
        return GraphgenError("GG0705", f"pattern: {what}", note=note, help=_HELP)

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def place(self) -> int:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def chain(self) -> tuple[OpPattern, ...]:
        made = [self.node()]
        while self.peek() == "->":
            if made[-1].names == ("return",):
                raise self.fail("nothing reads what is returned", self.place())
            self.take()
            made.append(self.node())
        if self.peek():
            raise self.fail(f"expected -> or the end, found '{self.peek()}'", self.place())
        return tuple(made)

    def node(self, *, operand: bool = False) -> OpPattern:
        token, at = self.peek(), self.place()
        if operand and (token[:1] in ("%", "$") or token in (*KINDS, "const")):
            self.take()
            return OpPattern(value=token, conditions=self.conditions(), type=self.type())
        names = [self.name()]
        while self.peek() == "|":
            self.take()
            names.append(self.name())
        if "_" in names:
            names = []
        operands, more = self.operands()
        if "return" in names and (operand or len(names) > 1 or operands is not None):
            raise self.fail("return stands alone, at the end of a chain", at)
        return OpPattern(tuple(names), operands, more, self.conditions(), self.type())

    def name(self) -> str:
        at, token = self.place(), self.take()
        if not re.fullmatch(r"[\w*?.\-]+", token):
            raise self.fail(f"expected the name of an op, found '{token or 'the end'}'", at)
        return _SPELLED.get(token, token.replace("-", "_") if token != "hlo.opaque" else token)

    def operands(self) -> tuple[tuple[OpPattern, ...] | None, bool]:
        if self.peek() != "(":
            return None, False
        self.take()
        made: list[OpPattern] = []
        more = False
        while self.peek() != ")":
            if self.peek() == "...":
                self.take()
                more = True
                break
            made.append(self.node(operand=True))
            if self.peek() != ",":
                break
            self.take()
        if self.peek() != ")":
            raise self.fail("expected , or )", self.place())
        self.take()
        return tuple(made), more

    def conditions(self) -> tuple[Condition, ...]:
        token, at = self.peek(), self.place()
        if not token.startswith("{"):
            return ()
        self.take()
        inside = token[1:-1].strip()
        found = [Condition(*match) for match in _CONDITION.findall(inside)]
        if _CONDITION.sub("", inside).strip():
            raise self.fail(f"'{inside}' is not a list of key=value", at)
        return tuple(found)

    def type(self) -> str:
        if self.peek() != ":":
            return ""
        self.take()
        return self.take()
