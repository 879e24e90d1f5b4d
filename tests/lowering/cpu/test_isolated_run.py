"""Programs of others run in a child process: the numbers, the errors, and its sudden end."""

from __future__ import annotations

import signal
import sys

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.cpu import backend
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.lowering.cpu.isolated_run import IsolatedRuns, packed, unpacked
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.worker_process import WorkerProcess

SUM = """
HloModule sum
%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = bf16[] add(%a, %b)
}
ENTRY %main (x: bf16[3]) -> (bf16[3], s32[]) {
  %x = bf16[3] parameter(0)
  %c = s32[] constant(7)
  %y = bf16[3] all-reduce(%x), replica_groups={{members}}, to_apply=%add
  ROOT %t = (bf16[3], s32[]) tuple(%y, %c)
}
"""
CHOLESKY = """
HloModule c
ENTRY %main (x: f32[2,2]) -> f32[2,2] {
  %x = f32[2,2] parameter(0)
  %p = (f32[2,2]{0,1}, s32[]) custom-call(%x), custom_call_target="lapack_spotrf_ffi", \
operand_layout_constraints={f32[2,2]{0,1}}, output_to_operand_aliasing={{0}: (0, {})}, \
api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
  ROOT %y = f32[2,2] get-tuple-element(%p), index=0
}
"""


def module_of(text: str) -> Module:
    return read_hlo(parse_hlo_text(text), "f.hlo")


def test_arrays_of_any_type_keep_their_bits():
    import ml_dtypes

    arrays = [
        np.array([[1.5, -0.0]], ml_dtypes.bfloat16),
        np.array(1 - 2j, np.complex64),
        np.array([-8, 7], ml_dtypes.int4),
        np.zeros((0, 3), np.bool_),
    ]
    head, found = unpacked(packed({"a": 1}, arrays))
    assert head["a"] == 1
    assert [(x.dtype, x.shape, x.tobytes()) for x in found] == [
        (x.dtype, x.shape, x.tobytes()) for x in arrays
    ]


@pytest.mark.parametrize("ranks", [1, 3])
def test_more_ranks_than_before_are_started(ranks: int):
    import ml_dtypes

    module = module_of(SUM.replace("members", ",".join(map(str, range(ranks)))))
    x = [np.array([1, 2, 3 * (rank + 1)], ml_dtypes.bfloat16) for rank in range(ranks)]
    made = CpuBackend()(module, module.programs()[0], [{"x": each} for each in x])
    for one in made:
        assert one["output1"] == 7
        np.testing.assert_array_equal(one["output0"], np.sum(x, axis=0))


def test_a_function_of_lapack_gives_the_numbers_of_numpy():
    module = module_of(CHOLESKY)
    x = np.array([[4, 2], [2, 5]], np.float32)
    (made,) = CpuBackend()(module, module.programs()[0], [{"x": x}])
    np.testing.assert_allclose(np.tril(made["output0"]), np.linalg.cholesky(x), rtol=1e-6)


def test_a_refusal_of_xla_is_the_error():
    module = module_of(CHOLESKY.replace("uplo = 76 : ui8", ""))
    with pytest.raises(GraphgenError) as caught:
        CpuBackend()(module, module.programs()[0], [{"x": np.eye(2, dtype=np.float32)}])
    assert caught.value.code == "GG0401"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_is_an_error_with_its_name(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
):
    ending = f"import os, sys; sys.stdin.buffer.read(8); os.kill(os.getpid(), {int(number)})"
    dying = WorkerProcess(lambda: (sys.executable, "-c", ending))
    monkeypatch.setattr(backend, "ISOLATED", IsolatedRuns(dying))
    module = module_of(CHOLESKY)
    with pytest.raises(GraphgenError, match=f"ended the process .*{number.name}") as caught:
        CpuBackend()(module, module.programs()[0], [{"x": np.eye(2, dtype=np.float32)}])
    assert "triage" in caught.value.help
