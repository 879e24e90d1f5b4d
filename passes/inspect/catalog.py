"""Documentation of passes and pipelines as tables, pages and JSON, from their classes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from inspect import getdoc
from typing import TYPE_CHECKING, cast

from graphgen.json_value import Json
from graphgen.ops import IR_STAGES
from graphgen.passes.core import Pass
from graphgen.passes.core.invariants import FACTS
from graphgen.passes.core.options import default_text, format_option, options_of
from graphgen.passes.core.registry import NamedPipeline, Phase
from graphgen.report.table import Report, Table

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_HEAD = re.compile(r"^(Options|Given|Result)(?: \((.*)\))?:$")
_OPTION = re.compile(r"^([\w, ]+): +(.*)$")


@dataclass(frozen=True, slots=True)
class Page:
    """A docstring in parts.

    Attributes:
        text: what it does, the first line being a summary.
        options: what each option says, by name.
        given, result: a module before and after, as IR text; empty without an example.
        how: the passes that make the one of the other, as the docstring writes them.
    """

    text: str
    options: Mapping[str, str]
    given: str = ""
    result: str = ""
    how: str = ""

    @property
    def summary(self) -> str:
        """The first line."""
        return self.text.partition("\n")[0]

    @property
    def passes(self) -> list[str]:
        """Pipelines named in double backquotes after ``Result``."""
        return re.findall(r"``(.*?)``", self.how)


def page_of(cls: type) -> Page:
    """The page of a class, from its docstring."""
    sections: dict[str, list[str]] = {"": []}
    current, how = "", ""
    for line in (getdoc(cls) or "").splitlines():
        head = _HEAD.match(line)
        if head:
            current = head[1]
            how = head[2] or how
            sections[current] = []
        else:
            sections[current].append(line)
    parts = {name: _dedent(lines) for name, lines in sections.items()}
    options = {**_field_help(cls), **_options(parts.get("Options", ""))}
    return Page(parts[""], options, parts.get("Given", ""), parts.get("Result", ""), how)


def _field_help(cls: type) -> Mapping[str, str]:
    """Help texts of the options that are declared with one."""
    if not is_dataclass(cls):
        return {}
    found = options_of(cls)
    return {name: item.doc for name, item in found.items() if item.doc}


def _dedent(lines: list[str]) -> str:
    from textwrap import dedent

    return dedent("\n".join(lines)).strip("\n")


def _options(text: str) -> Mapping[str, str]:
    """``name: what it says`` by name; what goes on is indented, names may share a line."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        match = _OPTION.match(line)
        if match and not line.startswith(" "):
            names = [name.strip() for name in match[1].split(",")]
            found.update(dict.fromkeys(names, match[2]))
        else:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
    return found


def pass_table(known: Mapping[str, type[Pass]]) -> Table:
    """One row per pass: name, level after it, summary."""
    rows = [
        [key, f"-> {item.output_stage}" if item.output_stage else "", page_of(item).summary]
        for key, item in sorted(known.items())
    ]
    return Table(["pass", "level", "what it does"], rows)


def pass_json(item: type[Pass]) -> dict[str, Json]:
    """Everything a pass class declares, and its example."""
    page = page_of(item)
    return {
        **_head_json(item),
        **_contract_json(item),
        "rounding": _rounding(item),
        "given": page.given,
        "result": page.result,
        "result_of": page.passes or [item.name],
    }


def pass_page(item: type[Pass]) -> Report:
    """Options, contract and example of a pass."""
    page = page_of(item)
    rounding = _rounding(item)
    rows = [
        ["Level:", _stages(item.input_stages, item.output_stage)],
        *[["Requires:", f"{name}: {FACTS[name].doc}"] for name in item.requires],
        *[["Provides:", f"{name}: {FACTS[name].doc}"] for name in item.provides],
        *[["Takes away:", f"{name}: {FACTS[name].doc}"] for name in item.invalidates],
        ["Rounding:", "by its options" if rounding is None else _rounding_text(rounding)],
    ]
    # One heading for several lines of a kind.
    for above, row in zip(reversed(rows[:-1]), reversed(rows[1:]), strict=True):
        row[0] = "" if row[0] == above[0] else row[0]
    width = max(len(row[0]) for row in rows) + 2
    contract = "\n".join(f"{row[0]:{width}}{row[1]}" for row in rows)
    how = f" ({page.how})" if page.how else ""
    example = f"\nGiven:\n{_indented(page.given)}\n\nResult{how}:\n{_indented(page.result)}\n"
    return [*_head(item), f"{contract}\n{example if page.given else ''}"]


def pipeline_table(known: Mapping[str, type[NamedPipeline]]) -> Table:
    """One row per named pipeline: name, summary."""
    rows = [[name, page_of(known[name]).summary] for name in sorted(known)]
    return Table(["pipeline", "what it does"], rows)


def pipeline_json(item: type[NamedPipeline]) -> dict[str, Json]:
    """Options of a named pipeline, and its passes with default options."""
    return {**_head_json(item), "passes": [str(each) for each in item().passes()]}


def pipeline_page(item: type[NamedPipeline]) -> Report:
    """Options of a named pipeline, and its passes with default options."""
    passes = "\n".join(f"  {each}" for each in item().passes())
    return [*_head(item), f"Passes, for these options:\n{passes}\n"]


def sequence_table(phases: Sequence[Phase]) -> Table:
    """One row per pass of a pipeline: phase, options, levels and facts.

    The phase is left out where no pass is in one.
    """
    named = any(phase.name for phase in phases)
    items = [(phase.name, item) for phase in phases for item in phase.passes]
    rows = [
        [
            str(number),
            *([phase] if named else []),
            str(item),
            _stages(item.input_stages, item.output_stage),
            " ".join(item.requires),
            " ".join([*item.provides, *[f"not {name}" for name in item.invalidates]]),
        ]
        for number, (phase, item) in enumerate(items, 1)
    ]
    return Table(["", *(["phase"] if named else []), "pass", "level", "requires", "provides"], rows)


def sequence_json(phases: Sequence[Phase]) -> list[Json]:
    """The passes of a pipeline with their phases and the values of their options."""
    named = any(phase.name for phase in phases)
    return [
        {
            **({"phase": phase.name or None} if named else {}),
            "pass": str(item),
            "name": item.name,
            "options": {key: format_option(value) for key, value in vars(item).items()},
            **_contract_json(item),
            "rounding": item.budget,
        }
        for phase in phases
        for item in phase.passes
    ]


def _contract_json(item: Pass | type[Pass]) -> dict[str, Json]:
    return {
        "takes": list(item.input_stages),
        "gives": item.output_stage or None,
        "requires": list(item.requires),
        "provides": list(item.provides),
        "invalidates": list(item.invalidates),
    }


def _head_json(item: type[Pass] | type[NamedPipeline]) -> dict[str, Json]:
    page = page_of(item)
    options: list[Json] = [
        {
            "name": option.name,
            "type": option.type.code,
            "default": default_text(option),
            "choices": list(option.type.choices),
            "doc": page.options.get(option.name, ""),
        }
        for option in options_of(item).values()
    ]
    return {"name": item.name, "summary": page.summary, "doc": page.text, "options": options}


def _head(item: type[Pass] | type[NamedPipeline]) -> list[str | Table]:
    """The name as pipelines write it, the text and a table of options."""
    page = page_of(item)
    rows = [
        [f"  {o.name}", o.type.code, default_text(o) or "-", page.options.get(o.name, "")]
        for o in options_of(item).values()
    ]
    text = f"{_with_defaults(item)}\n\n{page.text}\n"
    return [text, Table(["Options:", "type", "default", ""], rows)] if rows else [text]


def _with_defaults(item: type[DataclassInstance]) -> str:
    """``NAME{OPTION=DEFAULT,...}``."""
    options = ",".join(f"{o.name}={default_text(o)}" for o in options_of(item).values())
    name = cast("type[Pass]", item).name
    return f"{name}{{{options}}}" if options else name


def _rounding(item: type[Pass]) -> float | None:
    # A pass may compute its promise from its options: then the class alone does not know it.
    value = cast(object, item.rounding)
    return value if isinstance(value, float | int) else None


def _stages(before: Sequence[str], after: str) -> str:
    """``logical | canonical -> target``; without an arrow if the level stays."""
    left = "any level" if set(before) >= set(IR_STAGES) else " | ".join(before)
    return f"{left} -> {after}" if after else left


def _rounding_text(rounding: float) -> str:
    return f"up to {rounding:.0e} of the largest value" if rounding else "none: bit for bit"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
