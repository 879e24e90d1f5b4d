"""Write ``docs/options.md``: ``python docs/source/options.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.source.markdown_table import markdown_table
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import TypedField, fields_of
from graphgen.config.option_groups import GROUPS
from graphgen.passes.core.options import default_text, options_of

INTRODUCTION = """\
# Options of a compilation

Each option is declared once, in `graphgen/config`. It is a flag of the commands that compile a
model (`generate`, `serve`, `compile`, `accuracy`, `benchmark`, `plan`; `--help` lists the few that
one of them leaves out), an option of the default pipeline
(`graphgen opt -p 'default{tp=2,kv_cache_quant=true}'`), an argument of `graphgen.load` and
`graphgen.compile`, and a setting that an [artifact](artifacts.md) records. An artifact keeps its
own values; those that are given have to be the same.

The sections are those of the commands' help. An option without a flag has flags of another form,
such as `--quantized` or `--seq-len`, or follows from others. One that no pipeline has changes the
model before its first pass.
"""
_FIRST = "First"


def main() -> None:
    """Write the page beside the folder of this file."""
    path = Path(__file__).resolve().parents[1] / "options.md"
    path.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page."""
    known, piped = fields_of(CompileConfig), options_of(CompileConfig)
    groups: dict[str, list[TypedField[object]]] = {_FIRST: [], **{name: [] for name in GROUPS}}
    for item in known.values():
        groups[str(item.extra["group"]) or _FIRST].append(item)
    parts = [_section(name, items, piped) for name, items in groups.items() if items]
    return "\n".join([INTRODUCTION, *parts])


def _section(
    name: str, items: Sequence[TypedField[object]], piped: Mapping[str, TypedField[object]]
) -> str:
    """The table of one group."""
    heads = ["option", "flag", "values", "default", "meaning"]
    rows = [
        [
            f"`{item.name}`" + ("" if item.name in piped else ", in no pipeline"),
            ", ".join(f"`{each}`" for each in (item.flag, *item.served) if each and item.flag),
            item.type.noun,
            f"`{default_text(item)}`",
            item.doc.removesuffix(".").replace("``", "`"),
        ]
        for item in items
    ]
    return f"## {name}\n\n{markdown_table(heads, rows)}"


if __name__ == "__main__":
    main()
