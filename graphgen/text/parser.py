"""Text to module: a line-oriented parser by hand, exact about line and column.

Attribute and type texts repeat in every layer, so each distinct one is parsed once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import (
    Attrs,
    AttrValue,
    Entry,
    Function,
    Loc,
    Module,
    Op,
    Role,
    Sharding,
    TensorType,
    Value,
    loc,
    parse_dim,
)
from graphgen.ir.loc import UNKNOWN
from graphgen.ir.sharding import parse_sharding
from graphgen.ops import InferError, infer, make_attrs, op_def
from graphgen.text.grammar import NAME, parse_attr, parse_type

_MODULE = re.compile(rf"module @({NAME}) level=(\w+)(?: mesh=([\w:,]+))? \{{$")
_META = re.compile(r"  meta (\w+) = (\".*\")$")
_ENTRY = re.compile(
    rf"  (input|weight|param|state|output) %({NAME}) : (\S+)(?: as (\S+))?"
    rf"(?: pack=@({NAME}))?(?: unpack=@({NAME}))?(?: sharding=(\{{\S*\}}))?$"
)
_FUNC = re.compile(rf"func @({NAME})(?: phase=(\w+))?(?: dims=\{{([^}}]*)\}})? \{{$")
_ARG = re.compile(rf"  arg %({NAME}) : (\w+\[[^\]]*\])(\{{\S*\}})?$")
_OP = re.compile(
    rf"  (%{NAME}(?:, %{NAME})*) = (\w+)\(([^)]*)\)((?: \w+=\S+)*) : ([^#]*?)(?:  # (.*))?$"
)
_RETURN = re.compile(rf"  return ({NAME}) = %({NAME})$")
_LOC = re.compile(r"(\S+):(\d+)(?: (?!via )(\S+))?(?: via (\S+))?$")
_TYPED = re.compile(r"(\w+\[[^\]]*\])(\{\S*\})?$")


def parse(text: str, filename: str = "<text>") -> Module:
    """Read a module.

    Args:
        text: what :func:`~graphgen.text.print_module` writes; blank lines and lines that start
            with ``#`` are skipped.
        filename: for error messages.

    Raises:
        GraphgenError: GG0201 syntax, GG0202 undefined value, GG0203 wrong type, GG0105 operands
            that do not fit, and what the op table raises; each with file, line and column.
    """
    return _Parser(filename, text.split("\n")).module()


@dataclass(slots=True)
class _Parser:
    filename: str
    lines: list[str]
    number: int = 0
    attrs: dict[tuple[str, str], Attrs] = field(default_factory=dict[tuple[str, str], Attrs])
    types: dict[str, tuple[tuple[TensorType, ...], tuple[Sharding | None, ...]]] = field(
        default_factory=dict[str, tuple[tuple[TensorType, ...], tuple[Sharding | None, ...]]]
    )
    locs: dict[str, Loc] = field(default_factory=dict[str, Loc])

    def fail(self, code: str, what: str, at: str = "", help: str = "") -> GraphgenError:
        """An error at the current line, with a caret under ``at``."""
        line = self.lines[self.number - 1] if self.number <= len(self.lines) else ""
        column = max(line.find(at), 0) if at else len(line) - len(line.lstrip())
        caret = " " * column + "^" * max(len(at), 1)
        where = f"{self.filename}:{self.number}:{column + 1}"
        return GraphgenError(code, what, where=where, note=f"{line}\n{caret}", help=help)

    def next_line(self) -> str | None:
        """The next line that says something, ``None`` at the end."""
        while self.number < len(self.lines):
            line = self.lines[self.number].rstrip()
            self.number += 1
            if line and not line.startswith("#"):
                return line
        return None

    def module(self) -> Module:
        """The whole text."""
        line = self.next_line()
        match = _MODULE.match(line or "")
        if not match:
            raise self.fail("GG0201", "a module starts with: module @name level=logical {")
        module = Module(match[1], match[2])
        for axis in (match[3] or "").split(","):
            if axis:
                name, _, size = axis.partition(":")
                if not size.isdigit():
                    raise self.fail("GG0201", f"mesh axis '{axis}' is not name:size", axis)
                module.mesh[name] = int(size)
        self.header(module)
        while (line := self.next_line()) is not None:
            module.add(self.function(line))
        return module

    def header(self, module: Module) -> None:
        """Meta lines and interface rows, to the closing brace."""
        while (line := self.next_line()) is not None:
            if line == "}":
                return
            if match := _META.match(line):
                module.meta[match[1]] = str(json.loads(match[2]))
            elif match := _ENTRY.match(line):
                if match[2] in module.interface:
                    raise self.fail("GG0107", f"%{match[2]} is declared twice", f"%{match[2]}")
                module.interface[match[2]] = self.entry(match)
            else:
                raise self.fail("GG0201", "expected: input|weight|param|state|output %name : type")
        raise self.fail("GG0201", "the module header is not closed with }")

    def entry(self, match: re.Match[str]) -> Entry:
        """One interface row."""
        logical = self.type(match[3])
        physical = self.type(match[4]) if match[4] else logical
        layout = parse_sharding(match[7]) if match[7] else None
        return Entry(
            Role(match[1]), match[2], logical, physical, match[5] or "", match[6] or "", layout
        )

    def type(self, text: str) -> TensorType:
        """A type, with the place in the error if it is none."""
        try:
            return parse_type(text)
        except GraphgenError as error:
            raise self.fail(error.code, error.what, text, error.help) from error

    def function(self, line: str) -> Function:
        """A function, its first line already read."""
        match = _FUNC.match(line)
        if not match:
            raise self.fail("GG0201", "expected: func @name {")
        function = Function(match[1], phase=match[2] or "")
        for pair in (match[3] or "").split(","):
            if pair:
                key, _, value = pair.partition("=")
                function.dims[key] = parse_dim(value)
        values: dict[str, Value] = {}
        while (line_ := self.next_line()) is not None:
            if line_ == "}":
                return function
            if found := _OP.match(line_):
                self.op(function, found, values)
            elif found := _ARG.match(line_):
                value = function.block.add_arg(self.type(found[2]), found[1])
                value.sharding = parse_sharding(found[3]) if found[3] else None
                self.bind(values, found[1], value)
            elif found := _RETURN.match(line_):
                function.outputs.append((found[1], self.read(values, f"%{found[2]}")))
            else:
                raise self.fail("GG0201", "expected: %result = op(%operand) attr=value : type")
        raise self.fail("GG0201", f"function @{function.name} is not closed with }}")

    def bind(self, values: dict[str, Value], name: str, value: Value) -> None:
        """Enter a name."""
        if name in values:
            raise self.fail("GG0107", f"%{name} is defined twice", f"%{name}")
        values[name] = value

    def read(self, values: dict[str, Value], name: str) -> Value:
        """Look ``%name`` up."""
        found = values.get(name[1:])
        if found is None:
            raise self.fail("GG0202", f"{name} is not defined before this line", name)
        return found

    def op(self, function: Function, match: re.Match[str], values: dict[str, Value]) -> None:
        """One op line, checked against inference."""
        results, name, operand_text, attr_text, type_text, loc_text = match.groups()
        operands = tuple(
            [self.read(values, item.strip()) for item in operand_text.split(",") if item.strip()]
        )
        attrs = self.op_attrs(name, attr_text)
        types, shardings = self.op_types(type_text)
        try:
            wanted = infer(name, tuple([v.type for v in operands]), attrs)
        except InferError as error:
            at = (
                operand_text.split(",")[error.operand].strip()
                if error.operand is not None
                else name
            )
            raise self.fail("GG0105", f"{name}: {error}", at) from error
        if types != wanted:
            gives = ", ".join(type_.text for type_ in wanted)
            raise self.fail("GG0203", f"{name} gives {gives}, the text says {type_text}", type_text)
        names = [None if item[1:].isdigit() else item[1:] for item in results.split(", ")]
        if len(names) != len(types):
            raise self.fail("GG0201", f"{name} has {len(types)} results, {len(names)} named")
        op = Op(name, operands, types, attrs, self.op_loc(loc_text), names)
        function.block.append(op)
        for text, value, layout in zip(results.split(", "), op.results, shardings, strict=True):
            value.sharding = layout
            self.bind(values, text[1:], value)

    def op_attrs(self, name: str, text: str) -> Attrs:
        """The attributes of an op line; remembered by their text."""
        found = self.attrs.get((name, text))
        if found is not None:
            return found
        given: dict[str, AttrValue] = {}
        at = name
        try:
            known = {attr.name: attr for attr in op_def(name).attrs}
            for item in text.split():
                at = item
                key, _, value = item.partition("=")
                if key not in known:
                    make_attrs(name, {key: value})
                given[key] = parse_attr(known[key], value)
            at = name
            found = self.attrs[name, text] = make_attrs(name, given)
        except GraphgenError as error:
            raise self.fail(error.code, error.what, at, error.help) from error
        return found

    def op_types(self, text: str) -> tuple[tuple[TensorType, ...], tuple[Sharding | None, ...]]:
        """The stated result types and shardings; remembered by their text."""
        found = self.types.get(text)
        if found is None:
            parts = re.findall(r"[^,\[\{]+(?:\[[^\]]*\])?(?:\{[^}]*\})?", text)
            types: list[TensorType] = []
            layouts: list[Sharding | None] = []
            for part in parts:
                match = _TYPED.match(part.strip())
                if not match:
                    raise self.fail("GG0201", f"'{part.strip()}' is not a type", part.strip())
                types.append(self.type(match[1]))
                layouts.append(parse_sharding(match[2]) if match[2] else None)
            found = self.types[text] = (tuple(types), tuple(layouts))
        return found

    def op_loc(self, text: str | None) -> Loc:
        """The provenance comment; remembered by its text."""
        if not text:
            return UNKNOWN
        found = self.locs.get(text)
        if found is None:
            match = _LOC.match(text)
            if not match:
                raise self.fail("GG0201", "expected: # file:line scope via pass,pass", f"# {text}")
            via = tuple(match[4].split(",")) if match[4] else ()
            found = self.locs[text] = loc(match[1], int(match[2]), match[3] or "", via)
        return found
