"""Which modules are called as language models are: by their inputs and the phases of programs."""

from __future__ import annotations

import pytest

from graphgen.passes.workload.make_workload import is_language_model
from graphgen.text import parse

NAMES = {"tokens": "B,S", "positions": "B,S", "lengths": "B", "seq_ids": "B"}


@pytest.mark.parametrize(
    ("names", "phases", "called"),
    [
        (list(NAMES), ["prefill", "decode"], True),
        ([*NAMES, "random"], ["decode"], True),
        (list(NAMES)[:3], ["decode"], False),
        (list(NAMES)[1:], ["decode"], False),
        ([], ["decode"], False),
        (list(NAMES), ["main"], False),
        (list(NAMES), ["decode", "main"], False),
        ([], ["main"], False),
    ],
)
def test_a_language_model_has_its_inputs_and_phases(
    names: list[str], phases: list[str], called: bool
):
    inputs = "".join(f"  input %{name} : s32[{NAMES.get(name, 'B')}]\n" for name in names)
    text = f"module @m level=logical {{\n{inputs}  input %x : f32[2]\n  output %y : f32[2]\n}}\n"
    for number, phase in enumerate(phases):
        text += (
            f"\nfunc @f{number} phase={phase} {{\n  arg %x : f32[2]\n"
            "  %y = negate(%x) : f32[2]\n  return y = %y\n}\n"
        )
    assert is_language_model(parse(text)) == called
