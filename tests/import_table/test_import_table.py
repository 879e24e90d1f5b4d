"""The guide shows the stored table of imports; a sample of it is measured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.import_table.cells import CELLS, run_cell
from tests.import_table.rows import labels, source_of
from tests.import_table.table_page import ENOUGH, GUIDE, HEADING, enough, section, stored


def test_the_guide_shows_the_stored_results():
    _, heading, rest = GUIDE.read_text(encoding="utf-8").partition(HEADING)
    assert heading + rest == section(stored())


def test_every_row_has_a_result():
    found = {part: [row.label for row in stored() if row.part == part] for part in ENOUGH}
    assert found == labels()
    assert {part: len(rows) for part, rows in found.items()} == {"transformers": 30, "JAX": 15}


def test_as_many_rows_are_right_as_there_have_to_be():
    assert enough(stored())


@pytest.mark.slow
@pytest.mark.parametrize("label", ["audio encoder, strided convolutions", "MLP-Mixer"])
def test_a_row_is_measured_as_stored(label: str, tmp_path: Path):
    source = source_of("JAX", label)
    (row,) = [row for row in stored() if row.label == label]
    for name in CELLS:
        made = run_cell(name, source, tmp_path)
        # What is found may become more, and nothing that was right may become wrong.
        assert made.good or not row.cells[name].good, f"{name}: {made.text}"
