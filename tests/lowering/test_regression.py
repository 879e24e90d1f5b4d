"""The lowered programs of all models are those whose hashes ``golden/lowering/programs.txt`` keeps.

The file holds one line for each model, number of ranks and target. A change that alters lowered
programs on purpose rewrites it (``GRAPHGEN_UPDATE_GOLDEN=1 pytest -m slow`` on this file).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.regression import (
    QUICK,
    Case,
    digests,
    every_case,
    snapshots,
    without_metadata,
)
from graphgen.models import SHAPES, read_model_config
from tests.oracles.minis import MINIS

GOLDEN = Path(__file__).parents[1] / "golden" / "lowering" / "programs.txt"


def kept() -> Mapping[str, str]:
    rows = (line.partition(": ") for line in GOLDEN.read_text().splitlines())
    return {case: hashes for case, _, hashes in rows}


def test_a_few_models_on_every_target():
    assert_kept(QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("model", SHAPES if os.environ.get("GRAPHGEN_UPDATE_GOLDEN") else MINIS)
def test_every_model(model: str):
    assert_kept(every_case([model]))


def test_models_of_one_twin_have_the_same_programs():
    rows: dict[str, list[list[str]]] = {}
    for model, config in SHAPES.items():
        twin = json.dumps(read_model_config(config).mini().to_hf(), sort_keys=True)
        held = [kept()[str(case)] for case in every_case([model])]
        rows.setdefault(twin, []).append(held)
    assert len(rows) == len(MINIS)
    assert all(held == alike[0] for alike in rows.values() for held in alike)


@pytest.mark.slow
def test_the_file_holds_every_case():
    assert [str(case) for case in every_case(list(SHAPES))] == list(kept())


def assert_kept(cases: Sequence[Case]) -> None:
    now = digests(snapshots(cases))
    if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
        rows = {**kept(), **now}
        ordered = [case for case in map(str, every_case(list(SHAPES))) if case in rows]
        GOLDEN.write_text("".join(f"{case}: {rows[case]}\n" for case in ordered))
    before = kept()
    different = {
        case: (before[case], hashes) for case, hashes in now.items() if before[case] != hashes
    }
    assert not different


def test_a_changed_decomposition_is_seen(monkeypatch: pytest.MonkeyPatch):
    from graphgen.models import decoder

    case = Case("llama-3.1-8b", 1, "cpu")
    before = digests(snapshots([case]))
    assert before == digests(snapshots([case]))
    monkeypatch.setattr(decoder, "gated_mlp", lambda b, x, width, **_: x + x)
    assert before != digests(snapshots([case]))


def test_metadata_and_nothing_else_is_left_out():
    """Field 7 of an instruction goes; the same number in other messages stays."""
    instruction = b"\x0a\x01a" + b"\x3a\x02md" + b"\x12\x03add"
    computation = b"\x3a\x01x" + b"\x12" + bytes([len(instruction)]) + instruction
    module = b"\x3a\x01y" + b"\x1a" + bytes([len(computation)]) + computation
    left = without_metadata(module)
    assert left.count(b"md") == 0
    assert len(left) == len(module) - 4
    assert Message(left).text(7) == "y"
