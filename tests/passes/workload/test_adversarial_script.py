"""Calls of the adversarial script for sizes at which its situations coincide or come apart."""

from __future__ import annotations

import pytest

from graphgen.passes.workload.adversarial_script import whole_prompts
from graphgen.passes.workload.call_plan import CallWriter, Span
from graphgen.passes.workload.program_shapes import ProgramShape, ServingSizes

ONE = Span(0, 1, left=True)


@pytest.mark.parametrize(
    ("width", "spans"),
    [
        (2, {Span(0, 2), ONE}),
        # Half of three is one token, which there is already.
        (3, {Span(0, 3), ONE}),
        (4, {Span(0, 4), ONE, Span(0, 2, left=True)}),
        (9, {Span(0, 9), ONE, Span(0, 4, left=True)}),
    ],
)
def test_the_smallest_bucket_is_filled_by_half_where_that_is_another_length(
    width: int, spans: set[Span]
):
    shape = ProgramShape("prefill", attended=16, active=width, rows=3)
    writer = CallWriter(ServingSizes((shape,), rows=3, slots=16))
    whole_prompts(writer)
    (plan,) = writer.plans
    found = [row[1] for row in plan.rows if row is not None]
    assert len(found) == len(spans)
    assert set(found) == spans
