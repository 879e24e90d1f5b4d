"""Linear systems as text."""

from __future__ import annotations

import pytest

from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from tests.oracles.op_samples import BY_OP, program


@pytest.mark.parametrize("name", ["triangular_solve", "cholesky", "fft"])
def test_options_come_and_go(name: str):
    module = program(BY_OP[name])
    function = module.function("f")
    (again,) = read_stablehlo(emit_stablehlo(module, function)).programs()
    first, second = ([op.attrs for op in f.block if op.name == name] for f in (function, again))
    assert first == second
    assert len(first) >= 2
