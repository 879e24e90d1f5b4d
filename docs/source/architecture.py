"""Draw ``docs/architecture.svg``: ``python docs/source/architecture.py``."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

BOX_WIDTH, BOX_HEIGHT, GAP = 148, 58, 34
LEFT, TOP = 20, 78
# Package, boxes as (title, second line), color.
COLUMNS = (
    ("graphgen", (("config.json", "models, nn"), ("module", "IR, interface table")), "#dbeafe"),
    (
        "passes",
        (
            ("canonicalize", "quantize"),
            ("specialize", "heads, shard, partition"),
            ("fuse, lift", "legalize"),
        ),
        "#dcfce7",
    ),
    ("lowering", (("StableHLO", "XLA, PJRT on the CPU"), ("HLO", "neuronx-cc")), "#fef3c7"),
    (
        "runtime",
        (("weights", "one part per rank"), ("session", "KV cache, sampling")),
        "#fce7f3",
    ),
)
CHECKS = "validate, equiv, bisect: each step is compared with the graph it came from"


def main() -> None:
    """Write the picture beside the folder of this file."""
    path = Path(__file__).resolve().parents[1] / "architecture.svg"
    path.write_text(picture(), encoding="utf-8")


def picture() -> str:
    """The SVG: one column for each package, arrows in the direction of the data."""
    rows = max(len(boxes) for _, boxes, _ in COLUMNS)
    width = 2 * LEFT + len(COLUMNS) * BOX_WIDTH + (len(COLUMNS) - 1) * GAP
    height = TOP + rows * (BOX_HEIGHT + 16) + 46
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#475569"/></marker>'
        "</defs>",
    ]
    for index, (package, boxes, color) in enumerate(COLUMNS):
        x = LEFT + index * (BOX_WIDTH + GAP)
        parts.append(text(x + BOX_WIDTH / 2, 44, package, 17, "bold"))
        for row, (title, detail) in enumerate(boxes):
            parts += box(x, TOP + row * (BOX_HEIGHT + 16), title, detail, color)
        if index + 1 < len(COLUMNS):
            start, y = x + BOX_WIDTH + 4, TOP + BOX_HEIGHT / 2
            parts.append(
                f'<line x1="{start}" y1="{y}" x2="{start + GAP - 8}" y2="{y}" stroke="#475569"'
                ' stroke-width="2" marker-end="url(#head)"/>'
            )
    parts.append(text(width / 2, height - 18, CHECKS, 13, "normal"))
    return "\n".join([*parts, "</svg>", ""])


def box(x: float, y: float, title: str, detail: str, color: str) -> list[str]:
    """A rounded box with two centered lines."""
    middle = x + BOX_WIDTH / 2
    return [
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8" fill="{color}"'
        ' stroke="#94a3b8"/>',
        text(middle, y + 25, title, 14, "bold"),
        text(middle, y + 44, detail, 11, "normal"),
    ]


def text(x: float, y: float, content: str, size: int, weight: str) -> str:
    """A centered line."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="middle"'
        f' fill="#0f172a">{escape(content)}</text>'
    )


if __name__ == "__main__":
    main()
