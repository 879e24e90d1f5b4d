"""Several models on one instance: cores that none share, memory, threads, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.plan import placement
from graphgen.lowering.plan.capacity_plan import Degree
from graphgen.lowering.plan.placement import WantedModel, place
from graphgen.targets import Accelerator
from tests.graphgen.cli.conftest import facts, graphgen

INSTANCE = "trn2.48xlarge"


def wanted(name: str, tp: int) -> WantedModel:
    return WantedModel(name, {}, CompileConfig(), tp)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of models of 30 GB, so that one core of 25.8 GB is too few."""

    def plan(
        config: Mapping[str, object], target: Accelerator, demand: CompileConfig, tp: int
    ) -> tuple[Degree, ...]:
        needs = 30_000_000_000 // tp if config else 1_000_000_000
        why = f"needs {needs}" if needs > target.hbm_bytes else ""
        return (Degree(tp, None, needs, why),)

    monkeypatch.setattr(placement, "degrees_up_to_choice", plan)


LARGE = WantedModel("a", {"large": True}, CompileConfig(), 1)


@pytest.mark.usefixtures("planned")
def test_models_have_cores_and_threads_of_their_own():
    made = place([wanted("a", 1), wanted("b", 4), wanted("c", 1), wanted("d", 2)], INSTANCE, 19)
    assert [(m.name, m.first, m.last) for m in made.models] == [
        ("b", 0, 3),
        ("d", 4, 5),
        ("a", 6, 6),
        ("c", 7, 7),
    ]
    assert made.free == 64 - 8
    assert sum(m.threads for m in made.models) <= 19
    assert [m.threads for m in made.models] == [8, 4, 2, 2]
    assert made.models[0].variables(2) == {
        "NEURON_RT_VISIBLE_CORES": "0-3",
        "NEURON_RT_VIRTUAL_CORE_SIZE": "2",
        "NEURON_LOGICAL_NC_CONFIG": "2",
        "OMP_NUM_THREADS": "8",
    }
    assert made.models[2].variables(2)["NEURON_RT_VISIBLE_CORES"] == "6"


@pytest.mark.usefixtures("planned")
def test_few_threads_are_never_given_twice():
    made = place([wanted("a", 4), wanted("b", 1), wanted("c", 1)], INSTANCE, 3)
    assert [m.threads for m in made.models] == [1, 1, 1]


@pytest.mark.parametrize(
    ("models", "threads", "what"),
    [
        ([wanted("a", 64), wanted("b", 1)], 8, "64 logical cores, and the models need 65: a 64, b"),
        ([LARGE], 8, "a does not fit trn2: needs 30000000000"),
        ([wanted("a", 1), wanted("b", 1)], 1, "2 models and 1 threads"),
    ],
)
@pytest.mark.usefixtures("planned")
def test_what_does_not_fit_is_refused(models: list[WantedModel], threads: int, what: str):
    with pytest.raises(GraphgenError, match=what) as raised:
        place(models, INSTANCE, threads)
    assert raised.value.code == "GG1006"


def test_the_command_writes_what_each_process_exports(tmp_path: Path):
    given = ["big=smollm2-135m,tp=3,seq=256", "small=smollm2-135m,tp=1,dtype=bf16"]
    found = facts("place", *given, "--threads", 8, "-o", tmp_path / "env")
    assert [(m["name"], m["cores"]) for m in found["models"]] == [
        ("big", [0, 2]),
        ("small", [3, 3]),
    ]
    lines = (tmp_path / "env" / "small.env.sh").read_text().splitlines()
    assert lines[0] == "export NEURON_RT_VISIBLE_CORES=3"


@pytest.mark.parametrize(
    ("models", "what"),
    [
        (["gemma-3-1b"], "is not NAME=MODEL"),
        (["a=gemma-3-1b,rows=3"], "'rows=3' is not one of tp, batch, seq, dtype"),
        (["a=gemma-3-1b", "a=gemma-3-1b"], "two models have one name"),
    ],
)
def test_mistakes_name_what_is_wrong(models: list[str], what: str):
    result = graphgen("place", *models)
    assert (result.exit_code, result.stdout) == (2, "")
    assert what in result.stderr
