"""Dead code: what nobody reads goes, everything else stays where it was."""

from __future__ import annotations

import graphgen.passes.pipelines  # noqa: F401
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.core import run_pipeline
from graphgen.text import parse
from tests.oracles.small_modules import function


def test_every_function_is_cleaned():
    text = function("arg %x : f32[4]", "%a = negate(%x) : f32[4]", "return y = %x")
    module = parse(text + text.partition("}\n")[2].replace("@f", "@g"))
    (report,) = run_pipeline(module, [DeadCodeElimination()])
    assert report.applications == 2
    assert module.op_count() == 0
