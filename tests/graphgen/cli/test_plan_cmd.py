"""``plan``: instances, times and prices beside memory, and the models that an instance fits."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from graphgen.cli import capacity_report
from graphgen.models import SHAPES
from graphgen.targets import accelerator, accelerator_names, published_prices
from tests.graphgen.cli.conftest import done, error, facts

SMALL = ("plan", "smollm2-135m", "--seq", "128")


def test_every_row_has_times_and_an_instance_with_its_price():
    found = facts(*SMALL, "--target", "inf2")
    hour = published_prices().hour
    for row in found["degrees"]:
        assert row["step_s"] < row["prompt_s"]
        assert row["tokens_per_second"] == pytest.approx(1 / row["step_s"])
        assert row["price"] == hour[row["instance"]]
    assert published_prices().region in found["prices"]
    shown = done(*SMALL, "--target", "inf2").stdout
    for header in ("first token", "step", "tokens/s", "USD an hour"):
        assert header in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_an_instance_without_a_price_shows_a_dash():
    found = facts(*SMALL, "--tp", "64", "--target", "trn2")
    assert found["chosen"]["instance"] == "trn2.48xlarge"
    assert found["chosen"]["price"] is None
    row = re.search(r"^trn2\.48xlarge +64 +(\S+)", done(*SMALL, "--target", "trn2").stdout, re.M)
    assert row is not None
    assert row[1] == "-"


def test_a_price_is_given_for_the_advised_instance_or_by_name():
    found = facts(*SMALL, "--target", "trn2", "--price", "2.5")
    assert (found["instance"], found["price"]) == ("trn2.3xlarge", 2.5)
    assert found["prices"] == "given by --price"
    found = facts(*SMALL, "--target", "trn2", "--price", "trn2.3xlarge=1,trn2.48xlarge=20")
    assert {row["instance"]: row["price"] for row in found["degrees"]} == {
        "trn2.3xlarge": 1,
        "trn2.48xlarge": 20,
        "Trn2 UltraServer": None,
    }


@pytest.mark.parametrize("price", ["-1", "much", "trn2.3xlarge=", "nan"])
def test_a_price_that_is_none(price: str):
    assert "--price is" in error(*SMALL, "--target", "trn2", f"--price={price}")


def test_a_price_of_another_target():
    said = error(*SMALL, "--target", "trn2", "--price", "inf2.xlarge=1")
    assert "trn2 has no instance 'inf2.xlarge'" in said


def test_published_prices_are_of_known_instances_and_have_a_source():
    prices = published_prices()
    known = {name for target in accelerator_names() for name in accelerator(target).instances}
    assert {*prices.hour} <= known
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", prices.read)
    assert prices.region
    assert prices.source


def test_an_instance_names_the_target():
    found = facts(*SMALL, "--instance", "inf2.8xlarge")
    assert (found["target"], found["instance"]) == ("inf2", "inf2.8xlarge")
    assert [row["tp"] for row in found["degrees"]] == [1, 2]
    said = error(*SMALL, "--instance", "inf2.9xlarge")
    assert "no target has the instance 'inf2.9xlarge'" in said
    assert "did you mean inf2" in said


def test_an_instance_alone_says_which_models_fit(monkeypatch: pytest.MonkeyPatch):
    some = {name: SHAPES[name] for name in ("smollm2-135m", "llama-3.1-70b", "gpt2")}
    monkeypatch.setattr("graphgen.models.SHAPES", some)
    found = facts("plan", "--instance", "inf2.8xlarge", "--seq", "128")["models"]
    assert {name: row["serves"] for name, row in found.items()} == {
        "smollm2-135m": True,
        "llama-3.1-70b": False,
        "gpt2": True,
    }
    one = facts("plan", "gpt2", "--instance", "inf2.8xlarge", "--seq", "128")["degrees"][-1]
    assert {key: one[key] for key in ("tp", "core_bytes", "step_s")} == {
        key: found["gpt2"][key] for key in ("tp", "core_bytes", "step_s")
    }
    shown = done("plan", "--instance", "inf2.8xlarge", "--seq", "128").stdout
    assert re.search(r"^llama-3\.1-70b +2 +\d+\.\d\d GB .* no$", shown, re.M)


def test_no_model_and_no_instance():
    assert "no MODEL is given" in error("plan")
    assert "--price has no meaning without MODEL" in error(
        "plan", "--instance", "inf2.8xlarge", "--price", "1"
    )


@pytest.mark.parametrize(
    "other", [("--nodes", "2"), ("--search", "--tp", "2"), ("--lengths", "a.csv")]
)
def test_a_price_is_of_one_plan(other: Sequence[str]):
    said = error(*SMALL[:2], *other, "--price", "1")
    assert f"--price has no meaning with {other[0]}" in said


def test_the_first_line_of_progress_comes_before_any_work(monkeypatch: pytest.MonkeyPatch):
    def stopped(*_: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr("graphgen.cli.plan_cmd._emit", stopped)
    assert done(*SMALL).stderr.startswith("note: planning smollm2-135m for trn2 ...")
    assert capacity_report.target_of("", "") == "trn2"
