"""Sessions with adapters: every row is the model with its adapter merged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime import executable_cache
from graphgen.runtime.session.adapter_slots import AdapterSlots
from graphgen.runtime.session.session import Logits, Session
from tests.oracles.sessions import open_session
from tests.runtime.session.lora_checkpoint import (
    ROWS,
    Adapter,
    merged_session,
    random_adapter,
    script,
    settings,
    with_adapters,
    write_model,
)

# The slot of each row: two adapters and none.
OWNERS = (1, -1, 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def session(model: Path) -> Session:
    return open_session(model, with_adapters())


def slots_of(session: Session) -> AdapterSlots:
    assert session.adapters is not None
    return session.adapters


def filled(session: Session) -> list[Adapter]:
    """Adapters of ranks 4 and 2 in slots 0 and 1, given to rows as ``OWNERS`` says."""
    slots = slots_of(session)
    slots.reset()
    made = [random_adapter(slots, 1), random_adapter(slots, 2, rank=2)]
    for slot, adapter in enumerate(made):
        slots.write(slot, adapter)
    for row, slot in enumerate(OWNERS):
        slots.assign(row, slot)
    return made


def assert_rows_are_merged(got: list[Logits], merged: dict[int, list[Logits]]) -> None:
    for call, logits in enumerate(got):
        rows = range(ROWS) if len(logits) == ROWS else (0, 2)
        for place, row in enumerate(rows):
            wanted = merged[OWNERS[row]][call][place]
            np.testing.assert_allclose(logits[place], wanted, atol=3e-5, rtol=1e-4)


def merged_of(model: Path, adapters: list[Adapter]) -> dict[int, list[Logits]]:
    """The script by the model with each adapter merged, -1 for none."""
    by_slot = dict(enumerate(adapters)) | {-1: {}}
    return {s: script(merged_session(model, made, settings())) for s, made in by_slot.items()}


def test_each_row_is_the_model_with_its_adapter_merged(model: Path, session: Session):
    """Adapters of two ranks and none, in one launch; the base model is slot -1, not slot 0."""
    adapters = filled(session)
    merged = merged_of(model, adapters)
    apart = np.abs(merged[0][0] - merged[-1][0]).max(), np.abs(merged[1][0] - merged[0][0]).max()
    assert min(apart) > 0.1
    assert_rows_are_merged(script(session), merged)


@pytest.mark.parametrize("tp", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_padded_and_copied_heads_have_their_adapters(model: Path, tp: int):
    """Nine heads over three key-value heads on ranks that do not divide them."""
    ranks = open_session(model, with_adapters(tp=tp))
    adapters = filled(ranks)
    assert_rows_are_merged(script(ranks), merged_of(model, adapters))


def test_a_slot_that_is_written_again_changes_its_rows_only(session: Session):
    filled(session)
    session.prefill([[3, 1, 4], [9, 2, 6], [5, 3, 5]])
    held = session.lengths.copy()
    before = session.decode([7, 8, 9])
    session.take_back(held)
    slots_of(session).write(1, random_adapter(slots_of(session), 5))
    after = session.decode([7, 8, 9])
    assert not np.allclose(before[0], after[0], atol=1e-2)
    np.testing.assert_array_equal(before[1:], after[1:])


def test_a_slot_that_is_emptied_is_the_base_model(session: Session):
    filled(session)
    slots_of(session).clear(1)
    first = session.prefill([[3, 1, 4], [3, 1, 4], [3, 1, 4]])
    np.testing.assert_array_equal(first[0], first[1])
    assert not np.allclose(first[0], first[2], atol=1e-2)


@pytest.mark.parametrize(
    ("slot", "changes", "words"),
    [
        (2, {}, "adapter slot 2 does not exist"),
        (
            0,
            {"model.layers.0.mlp.router.lora_A": np.zeros((4, 72))},
            "is not a tensor of an adapter",
        ),
        (0, {"model.layers.0.mlp.up_proj.lora_A": np.zeros((5, 72))}, r"takes \[4, 72\]"),
        (0, {"model.layers.0.mlp.up_proj.lora_A": np.zeros((4, 96))}, r"is \[4, 96\]"),
        (0, {"model.layers.0.mlp.up_proj.lora_B": np.full((96, 4), np.nan)}, "not finite"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    session: Session, slot: int, changes: Adapter, words: str
):
    with pytest.raises(GraphgenError, match=words):
        slots_of(session).write(slot, changes)


def test_a_row_is_given_slots_that_exist(session: Session):
    for row, slot in ((0, 2), (0, -2), (3, 0)):
        with pytest.raises(GraphgenError, match="does not exist"):
            slots_of(session).assign(row, slot)


def test_a_warm_session_compiles_nothing_for_an_adapter(
    model: Path, monkeypatch: pytest.MonkeyPatch
):
    session = open_session(model, with_adapters())
    slots = slots_of(session)
    slots.warm_up()
    monkeypatch.setattr(executable_cache, "compile_program", None)
    slots.write(1, random_adapter(slots, 1))
