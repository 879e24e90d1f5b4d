"""Parse IR text: a hand-written line parser with exact line and column in errors.

Attribute and type texts repeat in every layer, so each distinct one is parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from graphgen.errors import GraphgenError
from graphgen.ir import (
    Attrs,
    AttrValue,
    Dim,
    Domain,
    Entry,
    Function,
    Loc,
    Module,
    Op,
    Role,
    Sharding,
    TensorType,
    Value,
    attrs_of,
    loc,
    parse_dim,
)
from graphgen.ir.domain import check_domain, parse_domain
from graphgen.ir.loc import UNKNOWN
from graphgen.ir.sharding import parse_sharding
from graphgen.json_value import parse_json
from graphgen.limits import RANKS
from graphgen.numbers import BAD_NUMBER, whole_number
from graphgen.ops import InferError, infer, make_attrs, op_def
from graphgen.text.grammar import NAME, TYPE, parse_attr, parse_type

_ATTENDED = "attended"


def upgrade_mask(
    function: Function, operands: Sequence[Value], attrs: str, where: Loc
) -> tuple[tuple[Value, ...], str]:
    """The operands and attributes of an ``attention_mask``; its lengths become key positions.

    Earlier masks were of plain rows: ``attention_mask(%positions, %lengths) attended=C``.

    Args:
        function: gets the op ``key_positions``.
        operands: as they are in the text.
        attrs: the text of the attributes.
        where: provenance of the op.

    Raises:
        InferError: lengths of another type.
    """
    words = attrs.split()
    found = [word for word in words if word.startswith(f"{_ATTENDED}=")]
    if not found or len(operands) != 2:
        return tuple(operands), attrs
    known = {attr.name: attr for attr in op_def("key_positions").attrs}
    size = parse_attr(known[_ATTENDED], found[0].removeprefix(f"{_ATTENDED}="))
    given = attrs_of({_ATTENDED: size})
    types = infer("key_positions", (operands[1].type,), given)
    # A name, so that the numbers of other values stay as they are.
    op = Op("key_positions", (operands[1],), types, given, where, ["key_positions"])
    function.block.append(op)
    return (operands[0], op.result), " ".join([word for word in words if word not in found])


_MODULE = re.compile(rf"module @({NAME}) level=(\w+)(?: mesh=([\w:,]+))? \{{$")
_META = re.compile(r"  meta ([\w.]+) = (\".*\")$")
_ROLES = "|".join([role.value for role in Role])
_ENTRY = re.compile(
    rf"  ({_ROLES}) %({NAME}) : (\S+)(?: as (\S+))?"
    rf"(?: pack=@({NAME}))?(?: unpack=@({NAME}))?(?: last=([0-9]+))?"
    r"(?: domain=(\[\S*?\]|\{\S*?\}))?(?: sharding=(\{\S*\}))?$"
)
# Annotations: texts by names with a dot in them; the rest of a name is as its source has it.
_NOTES = r"((?: \w+\.[^\s=]+=\S+)*)"
_FUNC = re.compile(rf"func @({NAME})(?: phase=(\w+))?(?: dims=\{{([^}}]*)\}})?{_NOTES} \{{$")
_ARG = re.compile(rf"  arg %({NAME}) : ({TYPE})(\{{\S*\}})?{_NOTES}$")
_OP = re.compile(
    rf"  (%{NAME}(?:, %{NAME})*) = ([\w.]+)\(([^)]*)\)((?: \w[^\s=]*=\S+)*)"
    r" : ([^#]*?)(?:  # (.*))?$"
)
_RETURN = re.compile(rf"  return ({NAME}) = %({NAME})$")
_LOC = re.compile(r"(\S+):([0-9]+)(?: (?!via )(\S+))?(?: via (\S+))?$")
_TYPED = re.compile(rf"({TYPE})(\{{\S*\}})?$")
_ITEM = re.compile(r"[^,\s](?:[^,]*[^,\s])?")
_WORD = re.compile(r"\S+")


def _refuse_again(key: str, given: Mapping[str, AttrValue]) -> None:
    if key in given:
        raise GraphgenError("GG0104", f"attribute '{key}' is given twice")


def _column(line: str, at: str, start: int) -> int:
    """Column of ``at`` as a whole word in the line, from ``start`` on; 0 if it is absent."""
    found = re.compile(re.escape(at) + r"(?![\w.$\-])").search(line, start)
    return found.start() if found else max(line.find(at), 0)


def parse(text: str, filename: str = "<text>") -> Module:
    """Parse a module.

    Args:
        text: the format of :func:`~graphgen.text.print_module`; blank lines and lines that start
            with ``#`` are skipped.
        filename: for error messages.

    Raises:
        GraphgenError: GG0201 syntax, GG0202 undefined value, GG0203 wrong type, GG0105 operands
            that do not fit, and the errors of the op table; each with file, line and column.
    """
    parser = _ModuleParser(filename, text.split("\n"))
    try:
        return parser.module()
    except BAD_NUMBER as error:
        raise parser.fail("GG0201", str(error)) from error


@dataclass(slots=True)
class _ModuleParser:
    filename: str
    lines: list[str]
    number: int = 0
    attrs: dict[tuple[str, str], tuple[Attrs, Attrs]] = field(
        default_factory=dict[tuple[str, str], tuple[Attrs, Attrs]]
    )
    types: dict[str, tuple[tuple[TensorType, ...], tuple[Sharding | None, ...]]] = field(
        default_factory=dict[str, tuple[tuple[TensorType, ...], tuple[Sharding | None, ...]]]
    )
    locs: dict[str, Loc] = field(default_factory=dict[str, Loc])

    def fail(
        self, code: str, what: str, at: str = "", help: str = "", start: int = 0
    ) -> GraphgenError:
        """An error at the current line, with a caret under ``at``, searched from ``start`` on."""
        line = self.lines[self.number - 1] if self.number <= len(self.lines) else ""
        column = _column(line, at, start) if at else len(line) - len(line.lstrip())
        caret = " " * column + "^" * max(len(at), 1)
        where = f"{self.filename}:{self.number}:{column + 1}"
        return GraphgenError(code, what, where=where, note=f"{line}\n{caret}", help=help)

    def next_line(self) -> str | None:
        """The next line with content, ``None`` at the end."""
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
            error = self.fail("GG0201", "a module starts with: module @name level=logical {")
            if len(self.lines) == 1 and self.lines[0].endswith(".gg"):
                error.help = f"give the text of the file: Path('{self.lines[0]}').read_text()"
            raise error
        module = Module(match[1], match[2])
        for axis in (match[3] or "").split(","):
            if axis:
                name, _, size = axis.partition(":")
                module.mesh[name] = self.axis_size(axis, size)
        if prod(module.mesh.values()) > RANKS.most:
            raise self.fail("GG0201", f"a mesh has {RANKS} ranks", match[3])
        self.header(module)
        while (line := self.next_line()) is not None:
            at = self.number
            function = self.function(line)
            if function.name in module.functions:
                self.number = at
                what = f"function @{function.name} is defined twice"
                raise self.fail("GG0107", what, f"@{function.name}")
            module.add(function)
        return module

    def axis_size(self, axis: str, size: str) -> int:
        """The size of a mesh axis."""
        try:
            return whole_number(size, RANKS.most, 1)
        except ValueError as error:
            what = f"mesh axis '{axis[:60]}' is not name:size: {error}"
            raise self.fail("GG0201", what, axis) from error

    def header(self, module: Module) -> None:
        """Meta lines and interface rows, to the closing brace."""
        while (line := self.next_line()) is not None:
            if line == "}":
                return
            if match := _META.match(line):
                module.meta[match[1]] = self.string(match[2])
            elif match := _ENTRY.match(line):
                if match[2] in module.interface:
                    raise self.fail("GG0107", f"%{match[2]} is declared twice", f"%{match[2]}")
                module.interface[match[2]] = self.entry(match)
            else:
                raise self.fail("GG0201", f"expected: {_ROLES} %name : type")
        raise self.fail("GG0201", "the module header is not closed with }")

    def entry(self, match: re.Match[str]) -> Entry:
        """One interface row."""
        logical = self.type(match[3])
        physical = self.type(match[4]) if match[4] else logical
        layout, last = self.sharding(match[9]), whole_number(match[7] or "0")
        packs = match[5] or "", match[6] or ""
        return Entry(
            Role(match[1]),
            match[2],
            logical,
            physical,
            *packs,
            layout,
            last,
            self.domain(match[8], logical),
        )

    def domain(self, text: str | None, type_: TensorType) -> Domain | None:
        """Parse a domain; errors have line and column."""
        try:
            found = parse_domain(text) if text else None
            if found is not None:
                check_domain(found, type_.dtype)
        except GraphgenError as error:
            raise self.fail(error.code, error.what, text or "", error.help) from error
        return found

    def string(self, text: str) -> str:
        """A quoted text."""
        try:
            return str(parse_json(text))
        except ValueError as error:
            raise self.fail("GG0201", "this is not a JSON string", text) from error

    def sharding(self, text: str | None) -> Sharding | None:
        """Parse a sharding; errors have line and column."""
        try:
            return parse_sharding(text) if text else None
        except GraphgenError as error:
            raise self.fail(error.code, error.what, text or "", error.help) from error

    def dim(self, text: str) -> Dim:
        """Parse a dimension; errors have line and column."""
        try:
            return parse_dim(text)
        except GraphgenError as error:
            raise self.fail(error.code, error.what, text, error.help) from error

    def type(self, text: str) -> TensorType:
        """Parse a type; errors have line and column."""
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
                function.dims[key] = self.dim(value)
        function.annotations = self.annotations(match[4])
        values: dict[str, Value] = {}
        while (line_ := self.next_line()) is not None:
            if line_ == "}":
                return function
            if found := _OP.match(line_):
                self.op(function, found, values)
            elif found := _ARG.match(line_):
                value = function.block.add_arg(self.type(found[2]), found[1])
                value.sharding = self.sharding(found[3])
                value.annotations = self.annotations(found[4])
                self.bind(values, found[1], value)
            elif found := _RETURN.match(line_):
                value = self.read(values, f"%{found[2]}", found.start(2) - 1)
                function.outputs.append((found[1], value))
            else:
                raise self.fail("GG0201", "expected: %result = op(%operand) attr=value : type")
        raise self.fail("GG0201", f"function @{function.name} is not closed with }}")

    def bind(self, values: dict[str, Value], name: str, value: Value) -> None:
        """Define a name."""
        if name in values:
            raise self.fail("GG0107", f"%{name} is defined twice", f"%{name}")
        values[name] = value

    def read(self, values: dict[str, Value], name: str, start: int) -> Value:
        """Look up ``%name``, found at column ``start``."""
        found = values.get(name[1:])
        if found is None:
            what = f"{name} is not defined before this line"
            raise self.fail("GG0202", what, name, start=start)
        return found

    def op(self, function: Function, match: re.Match[str], values: dict[str, Value]) -> None:
        """One op line, checked against inference."""
        results, name, operand_text, attr_text, type_text, loc_text = match.groups()
        places = [(item[0], match.start(3) + item.start()) for item in _ITEM.finditer(operand_text)]
        operands = tuple([self.read(values, item, start) for item, start in places])
        types, shardings = self.op_types(type_text, match.start(5))
        where = self.op_loc(loc_text)
        try:
            if name == "attention_mask":
                operands, attr_text = upgrade_mask(function, operands, attr_text, where)
            attrs, annotations = self.op_attrs(name, attr_text, match)
            wanted = infer(name, tuple([v.type for v in operands]), attrs)
        except InferError as error:
            found = error.operand is not None and error.operand < len(places)
            at, start = places[error.operand or 0] if found else (name, match.start(2))
            raise self.fail("GG0105", f"{name}: {error}", at, start=start) from error
        if types != wanted:
            gives = ", ".join(type_.text for type_ in wanted)
            what = f"{name} gives {gives}, the text says {type_text}"
            raise self.fail("GG0203", what, type_text, start=match.start(5))
        names = [None if item[1:].isdigit() else item[1:] for item in results.split(", ")]
        if len(names) != len(types):
            raise self.fail("GG0201", f"{name} has {len(types)} results, {len(names)} named")
        op = Op(name, operands, types, attrs, where, names)
        op.annotations = annotations
        function.block.append(op)
        for text, value, layout in zip(results.split(", "), op.results, shardings, strict=True):
            value.sharding = layout
            self.bind(values, text[1:], value)

    def annotations(self, text: str) -> Attrs:
        """Parse the annotations of a value; see :attr:`graphgen.ir.Op.annotations`."""
        pairs = (item.partition("=") for item in text.split())
        return attrs_of({key: self.string(value) for key, _, value in pairs})

    def op_attrs(self, name: str, text: str, line: re.Match[str]) -> tuple[Attrs, Attrs]:
        """The attributes and the annotations of an op line, cached by their text."""
        found = self.attrs.get((name, text))
        if found is not None:
            return found
        given: dict[str, AttrValue] = {}
        noted: list[str] = []
        at, start = name, line.start(2)
        try:
            known = {attr.name: attr for attr in op_def(name).attrs}
            for match in _WORD.finditer(text):
                at, start = match[0], line.start(4) + match.start()
                key, _, value = at.partition("=")
                if "." in key:
                    noted.append(at)
                    continue
                if key not in known:
                    make_attrs(name, {key: value})
                _refuse_again(key, given)
                given[key] = parse_attr(known[key], value)
            at, start = name, line.start(2)
            annotations = self.annotations(" ".join(noted))
            found = self.attrs[name, text] = make_attrs(name, given), annotations
        except GraphgenError as error:
            raise self.fail(error.code, error.what, at, error.help, start) from error
        return found

    def op_types(
        self, text: str, start: int
    ) -> tuple[tuple[TensorType, ...], tuple[Sharding | None, ...]]:
        """The stated result types and shardings, cached by their text."""
        found = self.types.get(text)
        if found is None:
            parts = re.findall(r"[^,\[\{]+(?:\[[^\]]*\])?(?:\{[^}]*\})?", text)
            types: list[TensorType] = []
            layouts: list[Sharding | None] = []
            for part in parts:
                match = _TYPED.match(part.strip())
                if not match:
                    what = f"'{part.strip()}' is not a type"
                    raise self.fail("GG0201", what, part.strip(), start=start)
                types.append(self.type(match[1]))
                layouts.append(self.sharding(match[2]))
            found = self.types[text] = (tuple(types), tuple(layouts))
        return found

    def op_loc(self, text: str | None) -> Loc:
        """The provenance comment, cached by its text."""
        if not text:
            return UNKNOWN
        found = self.locs.get(text)
        if found is None:
            match = _LOC.match(text)
            if not match:
                raise self.fail("GG0201", "expected: # file:line scope via pass,pass", f"# {text}")
            via = tuple(match[4].split(",")) if match[4] else ()
            found = self.locs[text] = loc(match[1], whole_number(match[2]), match[3] or "", via)
        return found
