"""``explain`` gives the right reason for twenty near misses, in words a golden file holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphgen.passes.inspect.explain import explain
from graphgen.passes.pipelines import parse
from graphgen.text import print_module
from tests.graphgen.cli.conftest import done
from tests.oracles.near_miss_samples import NEAR_MISSES, NearMiss, module_of


@pytest.mark.parametrize("case", NEAR_MISSES, ids=lambda case: case.what)
def test_the_nearest_reason_is_the_right_one(case: NearMiss):
    found = explain(module_of(case), parse(case.passes), case.pass_name, case.place)
    assert found.applications == ()
    first = found.reasons[0]
    assert (first.reason, first.at, first.touched) == (case.reason, case.value, case.touched)


def test_there_are_twenty_and_no_two_alike():
    assert len(NEAR_MISSES) == 20
    assert len({case.what for case in NEAR_MISSES}) == 20
    assert len({case.pass_name for case in NEAR_MISSES}) >= 6


def test_what_the_command_says(tmp_path: Path, golden: Callable[[str, str], None]):
    told: list[str] = []
    for case in NEAR_MISSES:
        path = tmp_path / "m.gg"
        path.write_text(print_module(module_of(case)))
        place = case.place
        asked = [f"--at=%{place.value}"] if place.value else []
        asked += [f"--rule={place.rule}"] if place.rule else []
        asked += [f"--program={place.function}"] if place.function else []
        words = ["explain", path, "-p", case.passes, "--pass", case.pass_name, *asked]
        told.append(f"# {case.what}\n{done(*words).stdout}")
    golden("passes/near_misses.txt", "\n".join(told))
