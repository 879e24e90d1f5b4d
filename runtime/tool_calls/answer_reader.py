"""Divide the text of an answer, as it comes, into content, reasoning and tool calls.

A reader decides on each character as soon as it can, and never takes a decision back: the pieces of
a stream, joined, are those of the whole text, wherever it is cut. A call begins when its name and
the beginning of its arguments are known; from then on the arguments are given as the model writes
them, also where their JSON is broken. Markup without a call, such as broken JSON before the name,
is content.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from graphgen.json_value import Json, parse_json

# Keys of the arguments of a call, and of its name.
_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "function")
_OTHERS = ("type", "id", *_ARGUMENTS, *_NAMES)
# A part of a reader: yields while it needs more text.
Steps = Generator[None, None, None]


@dataclass(frozen=True, slots=True)
class ContentPiece:
    """Text of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """Text of the reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of a call.

    Attributes:
        index: of the call in the answer.
        id: with the first part of a call, its id; else empty.
        name: with the first part, the name of the function; else empty.
        arguments: the next part of the JSON text of the arguments.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


AnswerPiece = ContentPiece | ReasoningPiece | CallPiece


@dataclass(slots=True)
class AnswerParts:
    """An answer put together from its pieces.

    Attributes:
        content: the text of the answer itself.
        reasoning: the text before it.
        calls: each with all of its arguments.
    """

    content: str = ""
    reasoning: str = ""
    calls: list[CallPiece] = field(default_factory=list[CallPiece])

    def take(self, pieces: Iterable[AnswerPiece]) -> None:
        """Add pieces."""
        for piece in pieces:
            if isinstance(piece, ContentPiece):
                self.content += piece.text
            elif isinstance(piece, ReasoningPiece):
                self.reasoning += piece.text
            elif piece.name:
                self.calls.append(piece)
            else:
                last = self.calls[piece.index]
                more = last.arguments + piece.arguments
                self.calls[piece.index] = replace(last, arguments=more)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that an answer may call.

    Attributes:
        name: of the function.
        parameters: JSON Schema of its arguments.
    """

    name: str
    parameters: Mapping[str, Json] = field(default_factory=dict[str, Json])


class _Text:
    """Text whose white space at both ends is left out; that at the end may still go on."""

    def __init__(self, *, stripped: bool) -> None:
        self.stripped = stripped
        self._space = ""

    def of(self, text: str) -> str:
        """The part that is final."""
        text = self._space + text
        if self.stripped:
            text = text.lstrip()
        kept = text.rstrip()
        self._space = text[len(kept) :]
        self.stripped = self.stripped and not kept
        return kept

    def end(self, *, stripped: bool) -> str:
        """The white space at the end, which belongs to the text unless a call follows it."""
        space, self._space = self._space, ""
        return "" if stripped else space


class AnswerReader(ABC):
    """Reads one answer.

    Args:
        tools: the functions that may be called.
        reasons: the prompt ends inside of the reasoning.
        most: calls that the answer may have; further ones are left out.

    Attributes:
        thinks: the marks of reasoning.
        special: special tokens that the form is made of, which the text has to have.
    """

    thinks: ClassVar[tuple[str, str]] = ("<think>", "</think>")
    special: ClassVar[Sequence[str]] = thinks

    def __init__(
        self, tools: Sequence[Tool] = (), *, reasons: bool = False, most: int | None = None
    ) -> None:
        self.tools: Final[Mapping[str, Tool]] = {tool.name: tool for tool in tools}
        self._reasons: Final = reasons
        self._most: Final = most
        self._text = ""
        self._closed = False
        self._made: list[AnswerPiece] = []
        self._calls = 0
        self._content: Final = _Text(stripped=False)
        self._reasoning: Final = _Text(stripped=True)
        self._steps = self._run()

    def push(self, text: str) -> list[AnswerPiece]:
        """The pieces that further text makes final."""
        self._text += text
        return self._go_on() if text else []

    def end(self) -> list[AnswerPiece]:
        """The pieces that are left at the end of the text."""
        self._closed = True
        return self._go_on()

    def _go_on(self) -> list[AnswerPiece]:
        next(self._steps, None)
        made, self._made = self._made, []
        return _joined(made)

    def _run(self) -> Steps:
        yield from self.thinking()
        yield from self.read()
        rest = self._content.end(stripped=self._calls > 0)
        if rest:
            self._made.append(ContentPiece(rest))

    @abstractmethod
    def read(self) -> Steps:
        """Read the answer after its reasoning."""

    # ---- results ---------------------------------------------------------------------------------

    def content(self, text: str) -> None:
        """Add content."""
        found = self._content.of(text)
        if found:
            self._made.append(ContentPiece(found))

    def reasoning(self, text: str) -> None:
        """Add reasoning."""
        found = self._reasoning.of(text)
        if found:
            self._made.append(ReasoningPiece(found))

    def ends_reasoning(self) -> None:
        """End the reasoning: white space after it is left out."""
        self._reasoning.end(stripped=True)
        self._content.stripped = True

    def call(self, name: str) -> Callable[[str], None]:
        """Begin a call; takes the parts of its arguments."""
        # White space beside the markup of a call is left out.
        self._content.end(stripped=True)
        self._content.stripped = True
        index = self._calls
        self._calls += 1
        if self._most is not None and index >= self._most:
            return lambda part: None
        self._made.append(CallPiece(index, f"call_{secrets.token_hex(12)}", name))
        return lambda part: self._made.append(CallPiece(index, arguments=part))

    # ---- text ------------------------------------------------------------------------------------

    def until(
        self, marks: Collection[str], give: Callable[[str], None]
    ) -> Generator[None, None, str]:
        """Give text up to the first of some marks, none of which begins another, and consume it.

        Returns:
            The mark; empty at the end of the text.
        """
        while True:
            places = ((at, mark) for mark in marks if (at := self._text.find(mark)) >= 0)
            found = min(places, default=None)
            if found is not None:
                at, mark = found
                before, self._text = self._text[:at], self._text[at + len(mark) :]
                give(before)
                return mark
            kept = len(self._text) if self._closed else self._undecided(marks)
            before, self._text = self._text[:kept], self._text[kept:]
            give(before)
            if self._closed:
                return ""
            yield

    def _undecided(self, marks: Collection[str]) -> int:
        """Characters before an end that may be the beginning of a mark."""
        longest = max(map(len, marks), default=0)
        for size in range(min(longest, len(self._text)), 0, -1):
            end = self._text[-size:]
            if any(mark.startswith(end) for mark in marks):
                return len(self._text) - size
        return len(self._text)

    def starts_with(self, mark: str) -> Generator[None, None, bool]:
        """Consume a mark if the text goes on with it."""
        while len(self._text) < len(mark) and mark.startswith(self._text) and not self._closed:
            yield
        if not self._text.startswith(mark):
            return False
        self._text = self._text[len(mark) :]
        return True

    def peek(self) -> Generator[None, None, str]:
        """The next character, which is not consumed; empty at the end."""
        while not self._text and not self._closed:
            yield
        return self._text[:1]

    def take(self) -> Generator[None, None, str]:
        """The next character; empty at the end."""
        found = yield from self.peek()
        self._text = self._text[1:]
        return found

    def space(self) -> Generator[None, None, str]:
        """Consume white space."""
        taken = ""
        while (found := (yield from self.peek())) and found.isspace():
            taken += found
            self._text = self._text[1:]
        return taken

    # ---- what forms share ------------------------------------------------------------------------

    def thinking(self) -> Steps:
        """Read reasoning between its marks at the beginning."""
        begin, end = self.thinks
        before = ""
        if not self._reasons:
            before = yield from self.space()
        found = yield from self.starts_with(begin)
        if found or self._reasons:
            yield from self.until((end,), self.reasoning)
            self.ends_reasoning()
        else:
            self.content(before)

    def value(self, give: Callable[[str], None]) -> Generator[None, None, bool]:
        """Give a JSON value as it is written; False where the text ends inside of it."""
        depth, quoted, escaped = 0, False, False
        while True:
            char = yield from self.peek()
            if not char:
                return False
            scalar = depth == 0 and not quoted
            if scalar and (char in ",]}" or char.isspace()):
                return True
            self._text = self._text[1:]
            give(char)
            if quoted:
                quoted = escaped or char != '"'
                escaped = char == "\\" and not escaped
            else:
                quoted = char == '"'
                depth += (char in "{[") - (char in "}]")
            if depth == 0 and not quoted and char in '}]"':
                return True

    def call_object(self, *, known: bool = False) -> Generator[None, None, str | None]:
        """Read an object with the name and the arguments of a call.

        Args:
            known: the name is that of a tool, and there are no other keys; else it is not a call.

        Returns:
            ``None`` for a call; else the text that was consumed.
        """
        reading = _ObjectReading(self, known=known)
        done = yield from reading.read()
        return None if done else reading.raw


class _ObjectReading:
    """An object ``{"name": ..., "arguments": {...}}`` while it is read."""

    def __init__(self, reader: AnswerReader, *, known: bool) -> None:
        self.raw = ""
        self._reader: Final = reader
        self._known: Final = known
        self._name = ""
        self._held = ""
        self._give: Callable[[str], None] | None = None

    def read(self) -> Generator[None, None, bool]:
        """Read it; True where it is a call, also one whose JSON is broken."""
        yield from self._char()
        more = True
        while more:
            going = yield from self._entry()
            if not going:
                # With its name and arguments known it is a call, whatever follows.
                return self._give is not None
            yield from self._space()
            end = yield from self._reader.peek()
            if end not in (",", "}"):
                return self._give is not None
            yield from self._char()
            more = end == ","
        if not self._name:
            return False
        if self._give is None:
            self._begin(self._held or "{}")
        return True

    def _entry(self) -> Generator[None, None, bool]:
        """Read a key and its value; False where this cannot be a call."""
        yield from self._space()
        if (yield from self._reader.peek()) != '"':
            return False
        key = yield from self._scalar()
        if not isinstance(key, str) or (self._known and key not in _OTHERS):
            return False
        yield from self._space()
        if (yield from self._char()) != ":":
            return False
        yield from self._space()
        if key in _ARGUMENTS and self._give is None:
            return (yield from self._arguments())
        first = yield from self._reader.peek()
        if key in _NAMES and not self._name and first in ('"', "{"):
            return (yield from self._named(first))
        return (yield from self._reader.value(self._keep))

    def _named(self, first: str) -> Generator[None, None, bool]:
        """Read the name, or the object that has name and arguments."""
        if first == "{":
            inner = _ObjectReading(self._reader, known=self._known)
            done = yield from inner.read()
            self.raw += inner.raw
            self._name, self._give = inner._name, inner._give  # pyright: ignore[reportPrivateUsage]
            return done
        name = yield from self._scalar()
        if (
            not isinstance(name, str)
            or not name
            or (self._known and name not in self._reader.tools)
        ):
            return False
        self._name = name
        if self._held:
            self._begin(self._held)
        return True

    def _arguments(self) -> Generator[None, None, bool]:
        """Read the arguments: given at once where the name is known and they are an object."""
        if (yield from self._reader.peek()) == "{" and self._name:
            self._give = self._reader.call(self._name)
            return (yield from self._reader.value(self._give))
        parts: list[str] = []
        whole = yield from self._reader.value(parts.append)
        self.raw += "".join(parts)
        self._held = _arguments_of("".join(parts))
        if whole and self._name:
            self._begin(self._held)
        return whole

    def _begin(self, arguments: str) -> None:
        self._give = self._reader.call(self._name)
        self._give(arguments)

    def _keep(self, text: str) -> None:
        self.raw += text

    def _char(self) -> Generator[None, None, str]:
        char = yield from self._reader.take()
        self.raw += char
        return char

    def _space(self) -> Steps:
        self.raw += yield from self._reader.space()

    def _scalar(self) -> Generator[None, None, object]:
        """The value of a text; ``None`` for one that is broken."""
        parts: list[str] = []
        whole = yield from self._reader.value(parts.append)
        self.raw += "".join(parts)
        return _loaded("".join(parts)) if whole else None


def _loaded(text: str) -> object:
    try:
        return parse_json(text, strict=False)
    except ValueError:
        return None


def _arguments_of(text: str) -> str:
    """Arguments as a JSON text: a text that holds JSON is what it holds, null an empty object."""
    if text == "null":
        return "{}"
    found = _loaded(text) if text.startswith('"') else None
    return found if isinstance(found, str) else text


def _joined(pieces: Sequence[AnswerPiece]) -> list[AnswerPiece]:
    """The pieces with neighbours of one sort joined."""
    made: list[AnswerPiece] = []
    for piece in pieces:
        both = _both(made[-1], piece) if made else None
        if both is None:
            made.append(piece)
        else:
            made[-1] = both
    return made


def _both(last: AnswerPiece, piece: AnswerPiece) -> AnswerPiece | None:
    """Two pieces as one; ``None`` for those of different sorts or calls."""
    match last, piece:
        case ContentPiece(), ContentPiece():
            return ContentPiece(last.text + piece.text)
        case ReasoningPiece(), ReasoningPiece():
            return ReasoningPiece(last.text + piece.text)
        case CallPiece(), CallPiece() if last.index == piece.index and not piece.name:
            return replace(last, arguments=last.arguments + piece.arguments)
        case _:
            return None


class PlainReader(AnswerReader):
    """Answers without tool calls."""

    def read(self) -> Steps:
        """See :meth:`AnswerReader.read`."""
        yield from self.until((), self.content)
