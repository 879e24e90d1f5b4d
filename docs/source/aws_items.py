"""Write ``docs/aws-items.md`` from ``aws_items.tsv``: ``python docs/source/aws_items.py``."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.source.markdown_table import markdown_table

HERE = Path(__file__).resolve().parent
STATUSES = ("works", "noted", "refused", "not applicable")
# Short names of the documents, and their titles.
DOCUMENTS = {
    "feature guide": "NxD Inference Features Configuration Guide",
    "API reference": "NxD Inference API Reference",
    "older API reference": "NxD Inference API Reference, of an earlier release",
    "transformers-neuronx guide": "Transformers NeuronX Developer Guide",
    "405B tutorial": "Using Speculative Decoding and Quantization to improve Llama-3.1-405B "
    "inference performance on Trn2 instances",
}
INTRODUCTION = """\
# Items of AWS's documents

One row an item of the five documents that graphgen's compatibility is measured by: the line of the
document, the item, its status, and the tests that show it.
[aws-compatibility.md](aws-compatibility.md) says how programs written for these libraries run, and
[aws-configuration.md](aws-configuration.md) lists every attribute.

| status | meaning |
|---|---|
| works | does what the document says, on the CPU and in the HLO for a target |
| noted | is accepted, changes nothing here, and a note or the page says why |
| refused | is an error that names it and the way to go instead |
| not applicable | is advice, or a step on a machine that graphgen does not need |
"""


@dataclass(frozen=True)
class Item:
    """A row.

    Attributes:
        document: a key of :data:`DOCUMENTS`.
        line: of the document.
        item: what it says, in words of our own.
        status: one of :data:`STATUSES`.
        tests: paths of tests, ``FILE::FUNCTION``.
        reason: why it does not work, or a remark.
    """

    document: str
    line: int
    item: str
    status: str
    tests: Sequence[str]
    reason: str


def items() -> list[Item]:
    """The rows of ``aws_items.tsv``."""
    with (HERE / "aws_items.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            Item(
                row["document"],
                int(row["line"]),
                row["item"],
                row["status"],
                tuple(row["tests"].split()),
                row["reason"],
            )
            for row in rows
        ]


def main() -> None:
    """Write the page beside the folder of this file."""
    (HERE.parent / "aws-items.md").write_text(page(), encoding="utf-8")


def page() -> str:
    """The page."""
    rows = items()
    parts = [INTRODUCTION, _counts(rows)]
    for name, title in DOCUMENTS.items():
        of_document = [row for row in rows if row.document == name]
        cells = [
            [str(row.line), row.item, _status(row), " ".join(map(_test, row.tests))]
            for row in of_document
        ]
        table = markdown_table(["line", "item", "status", "tests"], cells)
        parts.append(f"## {name[0].upper()}{name[1:]}\n\n{title}.\n\n{table}")
    return "\n".join(parts)


def _counts(rows: Sequence[Item]) -> str:
    """Items of each document and status."""
    counts = Counter((row.document, row.status) for row in rows)
    cells = list[list[str]]()
    for name in DOCUMENTS:
        found = [counts[name, status] for status in STATUSES]
        cells.append([name, *map(str, found), str(sum(found))])
    totals = Counter(row.status for row in rows)
    cells.append(["all", *(str(totals[status]) for status in STATUSES), str(len(rows))])
    return markdown_table(["document", *STATUSES, "items"], cells)


def _status(row: Item) -> str:
    return f"{row.status}: {row.reason}" if row.reason else row.status


def _test(path: str) -> str:
    """A test without the folder that all are in."""
    return f"`{path.removeprefix('tests/')}`"


if __name__ == "__main__":
    main()
