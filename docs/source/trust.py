"""Write ``docs/trust.md``: ``python docs/source/trust.py``.

Its numbers are those of ``benchmarks/results``, each with the command that measures it again.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.source.markdown_table import markdown_table
from tests.matrix.proofs import OPEN

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "trust.md"


def main() -> None:
    """Write the page; its text is edited in ``trust_text.md`` beside this file."""
    PAGE.write_text(page(), "utf-8")


def page() -> str:
    """The page: the text, with its tables and numbers."""
    text = (Path(__file__).parent / "trust_text.md").read_text("utf-8")
    for name, value in {**_planted(), **_mutants(), **_alarms(), "open-table": _open()}.items():
        assert f"<<{name}>>" in text, name
        text = text.replace(f"<<{name}>>", value)
    return text


def _rows(name: str) -> Iterator[dict[str, Any]]:
    path = ROOT / "benchmarks" / "results" / f"{name}.jsonl"
    return map(json.loads, path.read_text("utf-8").splitlines())


def _planted() -> dict[str, str]:
    """The last record of each kind of planted miscompiles."""
    last = {row["kind"]: row for row in _rows("planted")}
    total = {name: sum(row[name] for row in last.values()) for name in ("faults", "found")}
    blamed, reports = (sum(row[name] for row in last.values()) for name in ("blamed", "reports"))
    rows = [
        [
            f"`{kind}`",
            _subject(kind),
            *(str(row[name]) for name in ("faults", "found", "blamed")),
            ", ".join(f"`{_name(text)}`" for text in row["missed"]),
        ]
        for kind, row in sorted(last.items())
    ]
    rows.append(["all", "", str(total["faults"]), str(total["found"]), str(blamed), ""])
    return {
        "planted-table": _table(
            ["kind", "what it has", "planted", "found", "rewrite named", "missed"], rows
        ),
        "revision": ", ".join(sorted({str(row["revision"]) for row in last.values()})),
        "planted": f"{total['found']} of {total['faults']}",
        "reports": str(reports),
        "planted-alarms": str(sum(len(row["alarms"]) for row in last.values())),
    }


def _subject(kind: str) -> str:
    """What the file of a kind says of its faults."""
    path = ROOT / "tests" / "planted" / f"test_{kind}.py"
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0].rstrip(".")


def _name(text: str) -> str:
    return text.partition(":")[0]


def _mutants() -> dict[str, str]:
    """The recorded outcomes of random faults, by package."""
    rows = list(_rows("mutants"))
    packages = ("graphgen", "passes", "lowering", "runtime")
    cells = [
        [package, *_killed([row for row in rows if row["file"].startswith(f"{package}/")])]
        for package in packages
    ]
    cells.append(["all", *_killed(rows)])
    survived = [row for row in rows if not row["killed"]]
    return {
        "mutants-table": _table(["package", "faults", "killed", "share"], cells),
        "survived": str(len(survived)),
        "unreached": str(sum(not row["reached"] for row in survived)),
    }


def _killed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    killed = sum(row["killed"] for row in rows)
    return [str(len(rows)), str(killed), f"{killed / len(rows):.0%}"]


def _alarms() -> dict[str, str]:
    """Right pipelines that validation was run on."""
    rows: list[Mapping[str, Any]] = list(_rows("false_alarms"))
    return {
        "right-runs": f"{sum(row['runs'] for row in rows):,}",
        "alarms": str(sum(row["alarms"] for row in rows)),
    }


def _open() -> str:
    """Values of options with which something is not proved yet."""
    rows = [[axis, value, why] for axis, of in OPEN.items() for value, why in of.items()]
    return _table(["option", "value", "why"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose last line the text ends."""
    return markdown_table(heads, rows).removesuffix("\n")


if __name__ == "__main__":
    main()
