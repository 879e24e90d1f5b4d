"""Programs that take prompts in parts compute what whole prompts do, through the whole pipeline."""

from __future__ import annotations

import pytest

from graphgen.ir import dtype
from graphgen.models import build, known_shape
from graphgen.passes.pipelines import parse
from graphgen.passes.validate.validate import PassChecks, validate
from graphgen.passes.workload.make_workload import workload_for

SIZES = "prefill_batch=[1,3],context=[8],tokens=[8,16],chunk=[4]"
CASES = [
    pytest.param("llama-3.1-8b", f"default{{batch=[3],{SIZES}}}", "f32"),
    *(
        pytest.param(name, text, element, marks=pytest.mark.slow)
        for name, text, element in (
            ("mistral-7b", f"default{{batch=[3],roll_window_cache=true,{SIZES}}}", "f32"),
            ("gemma-3-1b", f"default{{batch=[1,3],roll_window_cache=true,{SIZES}}}", "bf16"),
            ("gpt2", f"default{{batch=[1,3],tp=2,{SIZES}}}", "f32"),
            ("bloom-560m", f"default{{batch=[3],tp=2,{SIZES}}}", "bf16"),
        )
    ),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "text", "element"), CASES)
def test_chunks_on_any_prefix(name: str, text: str, element: str):
    module = build(known_shape(name), dtype(element), mini=True)
    passes = parse(text)
    calls = workload_for(module, passes, script="adversarial")
    chunks = [call for call in calls.calls if call.dims["S"] == 4]
    first = [call.inputs["positions"][row] for call in chunks for row in call.active or (0,)]
    assert any(row[row >= 0].min() > 0 for row in first)
    assert any(call.active is not None and len(call.active) < 3 for call in chunks)
    verdicts = validate(module, passes, calls, PassChecks(each_rewrite=True))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
