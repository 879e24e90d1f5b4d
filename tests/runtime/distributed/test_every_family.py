"""Every family over 2, 3 and 4 processes, in ranks and in stages, answers as one process does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.runtime.distributed.many_models import Answers, Ask, answers_of_processes

pytestmark = pytest.mark.slow

FAMILIES = sorted(ORACLES)
# By processes: the ranks of a stage, the stages, and the layers of the models. Of three stages of
# two ranks, each of two processes has a stage and a rank of the one between.
LAYOUTS = {2: [(2, 1, 2), (1, 2, 2)], 3: [(2, 3, 3)], 4: [(4, 1, 2)]}
PARTED = {2: [(2, 3, 3), (4, 1, 2)], 4: [(2, 2, 2)]}


class Models:
    """Checkpoints of families, and what one process answers; each is made once.

    Args:
        folder: for the checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        self.path = cache(lambda name, layers: _saved(folder / f"{name}-{layers}", name, layers))
        self.answers = cache(lambda name, layers, drawn: self._answers(name, layers, drawn))

    def _answers(self, name: str, layers: int, drawn: bool) -> Answers:
        return Ask(self.path(name, layers), drawn=drawn).answers()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


def _saved(folder: Path, name: str, layers: int) -> str:
    sizes = ORACLES[name].sizes
    (count,) = {"num_hidden_layers", "n_layer", "n_layers"} & sizes.keys()
    changes: dict[str, Any] = {count: layers, "vocab_size": 301}
    if "layer_types" in sizes:
        changes["layer_types"] = (sizes["layer_types"] * layers)[:layers]
    if "final_logit_softcapping" in sizes:
        # Logits near the cap are nearly equal.
        changes["final_logit_softcapping"] = 30.0
    save(ORACLES[name].model(**changes), folder)
    save_tokenizer(folder)
    return str(folder)


def check(
    processes: int,
    layouts: list[tuple[int, int, int]],
    cases: list[tuple[str, bool]],
    models: Models,
    folder: Path,
) -> None:
    """Compare families, of which some draw their tokens, in each layout."""
    asks = [
        Ask(models.path(name, layers), tp, stages, drawn)
        for tp, stages, layers in layouts
        for name, drawn in cases
    ]
    found = iter(answers_of_processes(folder, processes, asks))
    for tp, stages, layers in layouts:
        for name, drawn in cases:
            wanted = models.answers(name, layers, drawn)
            assert not isinstance(wanted, str), wanted
            assert next(found) == wanted, (name, drawn, tp, stages)


def _half(half: int, *, other: bool) -> list[tuple[str, bool]]:
    """Half of the families: every second of them draws its tokens, or each of the others."""
    return [(name, bool(place % 2) != other) for place, name in enumerate(FAMILIES[half::2])]


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize(
    "processes", [2, *[pytest.param(more, marks=pytest.mark.exhaustive) for more in (3, 4)]]
)
def test_tokens_are_those_of_one_process(processes: int, half: int, models: Models, tmp_path: Path):
    check(processes, LAYOUTS[processes], _half(half, other=False), models, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("processes", sorted(LAYOUTS))
def test_those_that_drew_are_greedy_and_the_others_draw(
    processes: int, half: int, models: Models, tmp_path: Path
):
    check(processes, LAYOUTS[processes], _half(half, other=True), models, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("processes", sorted(PARTED))
def test_processes_that_have_parts_of_stages(
    processes: int, half: int, other: bool, models: Models, tmp_path: Path
):
    check(processes, PARTED[processes], _half(half, other=other), models, tmp_path)
