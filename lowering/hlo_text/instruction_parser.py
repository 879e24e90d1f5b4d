"""Parser of instructions: a pattern for lines as XLA prints them, tokens for every other form.

Both take an instruction apart into the same pieces. A text of XLA has one instruction a line, which
one match takes apart; written by hand it may have several lines, comments, operands that are
instructions themselves, and no shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.limits import NESTING
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField, RareField
from graphgen.lowering.hlo_proto.shape import HloShape, write_shape
from graphgen.lowering.hlo_text.attributes import inner_opcode
from graphgen.lowering.hlo_text.constants_text import parse_literal
from graphgen.lowering.hlo_text.hlo_assembler import NOTHING, ComputationAssembler
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape
from graphgen.lowering.hlo_text.hlo_tokens import HloTokens
from graphgen.lowering.hlo_text.own_fields import (
    CALLS,
    INLINE,
    AttributeTextError,
    OwnFields,
    OwnFieldsOfLines,
    own_fields,
)
from graphgen.lowering.hlo_text.text_values import TextNameError
from graphgen.numbers import whole_number

if TYPE_CHECKING:
    from graphgen.lowering.hlo_text.hlo_assembler import ComputationAssembler

_STEPS = {"-start": "async-start", "-update": "async-update", "-done": "async-done"}
# Levels of operands whose stack a computation inside of an attribute takes.
_LEVELS = 4
_WRAPPED, _PARAMETER = "async_wrapped", "async_param"


def is_asynchronous(code: str) -> bool:
    """True for an opcode that is a short form."""
    return inner_opcode(code) != code


def add_asynchronous(
    to: ComputationAssembler,
    name: str,
    code: str,
    shape: HloShape | None,
    operands: Sequence[str],
    own: OwnFields,
    root: bool,
) -> None:
    """Append a short form to a computation, as the long one (``TextNameError``)."""
    inner, dash, step = code.rpartition("-")
    if shape is None:
        raise TextNameError(f"{code} needs a shape")
    if step != "start":
        outer = OwnFields(own.data, (), own.waits, own.given)
        to.add(name, _STEPS[dash + step], shape, operands, outer, root=root)
        return
    if len(shape.members) < 2:
        raise TextNameError(f"{code} gives (operands, results, state)")
    module = to.module
    wrapped = module.begin(_WRAPPED)
    names: list[str] = []
    for number, operand in enumerate(operands):
        names.append(f"{_PARAMETER}.{number}" if number else _PARAMETER)
        wrapped.add_parameter(names[-1], to.shape(operand), number, root=False)
    kept, moved, thread = _apart(own)
    wrapped.thread = thread
    wrapped.add(inner, inner, shape.members[1], names, OwnFields(moved, own.calls), root=True)
    module.finish("", wrapped)
    # Ids have to be in a row for each computation.
    to.add(
        name, "async-start", shape, operands, OwnFields(kept, (), own.waits), root=root,
        called=[wrapped.number],
    )  # fmt: skip


# Fields that stay at the start; the others are of the instruction inside.
_KEPT = (
    InstructionField.METADATA,
    InstructionField.SHARDING,
    InstructionField.FRONTEND_ATTRIBUTES,
    InstructionField.BACKEND_CONFIG,
    RareField.ASYNC_EXECUTION_THREAD,
)


def _apart(own: OwnFields) -> tuple[bytes, bytes, str]:
    """The fields of the start, those of the instruction inside, and the thread."""
    kept: list[bytes] = []
    moved: list[bytes] = []
    message = wire.Message(own.data)
    for number, piece in message.pieces():
        (kept if number in _KEPT else moved).append(piece)
    return b"".join(kept), b"".join(moved), message.text(RareField.ASYNC_EXECUTION_THREAD)


def _parentheses(depth: int) -> str:
    """A pattern of text in parentheses, with parentheses in it."""
    inner = f"|{_parentheses(depth - 1)}" if depth else ""
    return rf"\((?:[^()\n]++{inner})*+\)"


_LINE = re.compile(
    rf"""\s*+(ROOT\s++)?%?([\w.\-]++)\s*+=\s*+
    ([a-z]\w*+\[[^\]\n]*+\](?:\{{[^{{}}\n]*+\}})?+|{_parentheses(6)})\s*+
    ([a-z][\w\-]*+)
    \(((?:[^()"\n]++|{_parentheses(3)})*+)\)
    ([^\n]*+)(?:\n(?!\s*+,)|$)""",
    re.VERBOSE,
)
# An operand that is an instruction itself, or a comment that may hold anything.
_NESTED = re.compile(r"[a-z\d_.\-]\s*\(|//")
_MARKED = re.compile(r"%([\w.\-$]+)")
_OPERAND = re.compile(r"(?:%([\w.\-$]+)|([A-Za-z_][\w.\-$]*))\s*(?:,|$)")
_NUMBER = re.compile(r"\s*(\d+)\s*")


@dataclass(slots=True)
class Pieces:
    """One instruction, taken apart.

    Attributes:
        at: its place in the text.
        name: as in the text.
        root: it is marked as the root.
        shape: of its result, ``None`` where the text states none.
        code: its opcode.
        inner: what is in its parentheses, of a parameter or a constant.
        inner_at: the place of its opening parenthesis.
        operands: names.
        own: its attributes.
    """

    at: int
    name: str
    root: bool
    shape: HloShape | None
    code: str
    inner: str
    inner_at: int
    operands: Sequence[str]
    own: OwnFields


class InstructionParser:
    """Parses the instructions of one text.

    Args:
        tokens: a cursor over the text.
    """

    def __init__(self, tokens: HloTokens) -> None:
        self.tokens = tokens
        self._lines = OwnFieldsOfLines()
        self._shapes: dict[str, HloShape] = {}
        self._unnamed: dict[str, int] = {}
        self._depth = 0
        # Names without a definition become parameters, as in a text of one instruction.
        self.open_names = False
        self._inline = 0

    def parse(self, to: ComputationAssembler) -> bool:
        """Append the next instruction to a computation; false if there is none."""
        pieces: Pieces | None = None
        try:
            pieces = self._line() or self._tokens(to)
            if pieces is not None:
                self._add(pieces, to)
        except TextNameError as error:
            raise self.tokens.fail(str(error), pieces.at if pieces else None) from error
        return pieces is not None

    def _line(self) -> Pieces | None:
        """An instruction that is a line of the usual form, taken; ``None`` for any other."""
        tokens = self.tokens
        match = None if self.open_names else _LINE.match(tokens.text, tokens.at)
        if match is None:
            return None
        root, name, stated, code, inner, rest = match.groups()
        operands: Sequence[str] = ()
        if code not in ("parameter", "constant"):
            if "(" in inner and _NESTED.search(inner):
                return None
            operands = _MARKED.findall(inner)
            if len(operands) != inner.count(",") + 1:
                operands = [marked or bare for marked, bare in _OPERAND.findall(inner)]
        try:
            own = self._lines.encode(code, rest) if rest else own_fields(code, ())
            shape = self._shape_of(stated)
        except (AttributeTextError, GraphgenError):
            return None
        if own is None:
            return None
        tokens.at = match.end()
        marked = root is not None
        return Pieces(
            match.start(2), name, marked, shape, code, inner, match.start(5) - 1, operands, own
        )

    def _shape_of(self, text: str) -> HloShape:
        found = self._shapes.get(text)
        if found is None:
            found = self._shapes[text] = parse_shape(text)
        return found

    def _tokens(self, to: ComputationAssembler) -> Pieces | None:
        tokens = self.tokens
        if tokens.peek() in ("", "}"):
            return None
        root = tokens.peek() == "ROOT" and not tokens.follows("=")
        if root:
            tokens.take()
        at = tokens.position()
        name = tokens.name()
        tokens.expect("=")
        return self.right_side(to, name, at, root=root)

    def right_side(
        self, to: ComputationAssembler, name: str, at: int, *, root: bool, nested: bool = False
    ) -> Pieces:
        """Take what follows the name of an instruction."""
        tokens = self.tokens
        shape = None if tokens.follows("(") and tokens.peek() != "(" else self._shape()
        code = tokens.take()
        if tokens.peek() != "(":
            raise tokens.fail("expected: name = shape opcode(operands), attribute=value")
        inner, inner_at, operands = "", tokens.position(), list[str]()
        if code in ("parameter", "constant"):
            inner = tokens.group()[1:-1]
        else:
            operands = self._operands(to)
        own = NOTHING if nested else self._attributes(code, to)
        return Pieces(at, name, root, shape, code, inner, inner_at, operands, own)

    def _shape(self) -> HloShape:
        at = self.tokens.position()
        text = self.tokens.shape()
        try:
            return self._shape_of(text)
        except GraphgenError as error:
            raise self.tokens.fail(error.what, at) from error

    def _operands(self, to: ComputationAssembler) -> list[str]:
        tokens = self.tokens
        tokens.expect("(")
        names: list[str] = []
        while not tokens.accept(")"):
            names.append(self._operand(to))
            if not tokens.accept(",") and tokens.peek() != ")":
                found = tokens.peek()[:40] or "the end"
                raise tokens.fail(f"expected ',' or ')', found '{found}'")
        return names

    def _operand(self, to: ComputationAssembler) -> str:
        """Take an operand: a name, maybe after its shape, or an instruction without a name."""
        tokens = self.tokens
        at = tokens.position()
        stated = None
        if tokens.peek() == "(" or "[" in tokens.peek():
            stated = self._shape()
        if not tokens.follows("("):
            name = tokens.name()
            if self.open_names and stated is not None and name not in to.known:
                to.add_parameter(name, stated, len(to.parameters), root=False)
            return name
        tokens.at = at
        name = f"{self._code_ahead()}.anon"
        self._depth += 1
        if self._depth > NESTING.most:
            raise tokens.fail(f"operands are nested too deeply: {NESTING} are read")
        pieces = self.right_side(to, name, at, root=False, nested=True)
        self._depth -= 1
        # The operands of the operand have their names by now.
        count = self._unnamed[name] = self._unnamed.get(name, -1) + 1
        pieces.name = f"{name}.{count}" if count else name
        self._add(pieces, to)
        return pieces.name

    def unnamed(self, to: ComputationAssembler) -> None:
        """Append an instruction that has no name."""
        name = self._code_ahead()
        try:
            self._add(self.right_side(to, name, self.tokens.position(), root=True), to)
        except TextNameError as error:
            raise self.tokens.fail(str(error)) from error

    def _code_ahead(self) -> str:
        tokens, at = self.tokens, self.tokens.at
        if tokens.peek() == "(" or "[" in tokens.peek():
            tokens.shape()
        code = tokens.peek()
        tokens.at = at
        return code

    def attributes(self, to: ComputationAssembler | None = None) -> dict[str, tuple[str, int]]:
        """Parse ``, key=value`` repeatedly: the text of each value and its place.

        Args:
            to: the computation of the instruction that has them; its attributes may hold others.
        """
        tokens = self.tokens
        found: dict[str, tuple[str, int]] = {}
        while tokens.peek() == ",":
            tokens.take()
            if not tokens.peek() or not tokens.follows("="):
                break
            key = tokens.take()
            tokens.expect("=")
            at = tokens.position()
            if key == "literal":
                value = tokens.literal()
            elif to is not None and key in CALLS and tokens.peek() == "{":
                value = self._computations(to)
            else:
                value = self._value(key)
            found[key] = (value, at)
        return found

    def _computations(self, to: ComputationAssembler) -> str:
        """Take the computations of an attribute: names in braces, or their instructions."""
        tokens, at = self.tokens, self.tokens.at
        tokens.expect("{")
        if tokens.follows("=") or tokens.peek() == "ROOT":
            tokens.at = at
            return self._inner(to)
        names: list[str] = []
        while not tokens.accept("}"):
            names.append(self._inner(to) if tokens.peek() == "{" else tokens.name())
            if not tokens.accept(",") and tokens.peek() != "}":
                raise tokens.fail("expected ',' or '}' after a computation")
        return ",".join(names)

    def _inner(self, to: ComputationAssembler) -> str:
        """Take a computation without a name, whose instructions have names of their own."""
        tokens, module = self.tokens, to.module
        self._depth += _LEVELS
        if self._depth > NESTING.most:
            raise tokens.fail(f"computations are nested too deeply: {NESTING} are read")
        tokens.expect("{")
        made = module.begin("")
        while self.parse(made):
            pass
        tokens.expect("}")
        self._depth -= _LEVELS
        self._inline += 1
        name = f"{INLINE}{self._inline}"
        # XLA's name for all of them.
        module.finish(name, made, stem="_")
        return name

    def _value(self, key: str) -> str:
        return self.tokens.shape() if key == "outfeed_shape" else self.tokens.value()

    def _attributes(self, code: str, to: ComputationAssembler) -> OwnFields:
        found = self.attributes(to)
        return self._encoded(code, found)

    def _encoded(self, code: str, found: Mapping[str, tuple[str, int]]) -> OwnFields:
        try:
            return own_fields(code, [(key, value) for key, (value, _) in found.items()])
        except AttributeTextError as error:
            raise self.tokens.fail(str(error), found[error.key][1]) from error

    def _add(self, pieces: Pieces, to: ComputationAssembler) -> None:
        code, own = pieces.code, pieces.own
        if code == "parameter":
            self._parameter(pieces, to)
            return
        if is_asynchronous(code):
            add_asynchronous(to, pieces.name, code, pieces.shape, pieces.operands, own, pieces.root)
            return
        shape = pieces.shape or to.infer(code, pieces.operands, own)
        if shape is None:
            raise self.tokens.fail(f"{code} needs a shape: name = shape {code}(..)", pieces.at)
        more = b""
        if code == "constant":
            more = self._literal(pieces, shape)
        elif code == "outfeed" and "outfeed_shape" not in own.given:
            sent = write_shape(to.shape(pieces.operands[0]))
            more = wire.delimited(RareField.OUTFEED_SHAPE, sent)
        to.add(pieces.name, code, shape, pieces.operands, own, root=pieces.root, more=more)

    def _parameter(self, pieces: Pieces, to: ComputationAssembler) -> None:
        match = _NUMBER.fullmatch(pieces.inner)
        if match is None:
            raise self.tokens.fail(f"'({pieces.inner})' is not a parameter number", pieces.at)
        if pieces.shape is None:
            raise self.tokens.fail("parameter needs a shape: name = shape parameter(0)", pieces.at)
        number = whole_number(match[1], (1 << 31) - 1)
        to.add_parameter(pieces.name, pieces.shape, number, pieces.own, root=pieces.root)

    def _literal(self, pieces: Pieces, shape: HloShape) -> bytes:
        try:
            data = parse_literal(pieces.inner, shape)
        except (GraphgenError, ValueError, OverflowError) as error:
            reason = error.what if isinstance(error, GraphgenError) else str(error)
            raise self.tokens.fail(f"constant: {reason}", pieces.inner_at) from error
        return wire.delimited(InstructionField.LITERAL, data)
