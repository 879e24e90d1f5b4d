"""Results of bisections as JSON: found, not found, and pipelines that raise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphgen.ir import Module
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.passes.core import parse_pipeline
from graphgen.passes.inspect.explain import FailureReason
from graphgen.passes.inspect.result_json import bisection_json, reason_json
from graphgen.passes.validate.bisect import Culprit, bisect
from graphgen.text import parse

TEXT = """\
module @m level=logical {
  input %x : f32[2]
  output %y : f32[2]
}

func @f phase=main {
  arg %x : f32[2]
  %a = negate(%x) : f32[2]
  %b = negate(%x) : f32[2]
  %y = add(%a, %b) : f32[2]
  return y = %y
}
"""


def test_nothing_found_is_nothing_guilty_and_nothing_raised():
    assert bisection_json(None) == {"guilty": None, "raised": None}


@pytest.fixture(scope="module")
def found() -> Culprit:
    def one_negation(module: Module) -> bool:
        return sum(op.name == "negate" for op in module.function("f").ops) == 1

    culprit = bisect(parse(TEXT), parse_pipeline("dce,cse"), one_negation)
    assert culprit is not None
    return culprit


def guilty(found: Culprit) -> dict[str, Json]:
    made = bisection_json(found)
    assert made["raised"] is None
    part = made["guilty"]
    assert isinstance(part, dict)
    return part


def test_the_guilty_pass_is_counted_from_one_and_what_is_not_known_is_null(found: Culprit):
    part = guilty(found)
    assert (part["pass"], part["place"], part["fuel"]) == (str(found.item), 2, 1)
    assert isinstance(part["application"], dict)
    names = ("first_wrong_op", "instead_of", "recovered", "recovered_pass", "varies")
    assert [part[name] for name in names] == [None] * len(names)
    assert (part["together"], part["silent"]) == ([], False)


@pytest.mark.parametrize(("at", "value"), [("%x", "%x"), ("", None)])
def test_a_near_miss_names_the_value_it_is_about(at: str, value: str | None):
    reason = FailureReason("fold", "not constant", at, "", "add", "f", UNKNOWN, count=1, depth=0)
    assert reason_json(reason)["value"] == value


def test_parts_that_are_known_are_stated(found: Culprit):
    assert found.application is not None
    other = replace(found, recovered=3, recovered_pass=4, silent=True, application=None, fuel=0)
    part = guilty(replace(other, together=(found.application,)))
    assert (part["recovered"], part["recovered_pass"], part["silent"]) == (3, 4, True)
    assert (part["application"], part["fuel"]) == (None, None)
    assert isinstance(part["together"], list)
    assert len(part["together"]) == 1
