"""Arguments that are renamed after reading are found by their new names, and by no other."""

from __future__ import annotations

from pathlib import Path

from graphgen.lowering.open import Source, open_source
from graphgen.passes.raising.rename_interface import rename
from tests.graphgen.cli.conftest import done

# jaxlib converts it, as the dialect here has no such op.
CONVERTED = """\
module {
  func.func public @main(%k: tensor<3xf32>, %x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = chlo.erf_inv %k : tensor<3xf32> -> tensor<3xf32>
    %1 = stablehlo.add %0, %x : tensor<3xf32>
    return %1 : tensor<3xf32>
  }
}
"""


def test_a_module_that_jaxlib_converted_is_compared(tmp_path: Path):
    module = open_source(Source("erf_inv", CONVERTED.encode()))
    (program,) = module.programs()
    assert [program.arg(value.name or "") for value in program.args] == program.args
    file = tmp_path / "erf_inv.mlir"
    file.write_text(CONVERTED, encoding="utf-8")
    assert done("equiv", file, file).stdout.startswith("equal: ")


def test_an_interface_that_is_renamed():
    module = open_source(Source("tanh", CONVERTED.replace("chlo.erf_inv", "chlo.tan").encode()))
    (program,) = module.programs()
    x = program.args[1]
    rename(module, {x.name or "": "tokens"})
    assert program.arg("tokens") is x
    assert program.arg("x") is None
