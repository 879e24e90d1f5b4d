"""``python -m tests.narrow_cpu``: which limits it sets, and that NumPy takes them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.narrow_cpu import LIMITS, XLA_LIMIT, narrow_environment, wide_features, xla_limit

SHOW = """
from importlib import import_module
core = import_module("numpy._core._multiarray_umath")
print(*(name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]))
"""


@pytest.mark.parametrize(
    ("dispatched", "has", "expected"),
    [
        ("X86_V3 X86_V4 AVX512_ICL AVX512_SPR", "X86_V3 X86_V4 AVX512_ICL", "X86_V4 AVX512_ICL"),
        ("AVX2 AVX512F AVX512CD AVX512_SKX", "AVX2 AVX512F AVX512CD", "AVX512F AVX512CD"),
        ("AVX2 AVX512F", "AVX2", ""),
        # Part of NumPy's baseline, which cannot be disabled.
        ("AVX512_ICL", "X86_V4 AVX512_ICL", "AVX512_ICL"),
        ("ASIMDHP SVE", "ASIMDHP SVE", ""),
    ],
)
def test_features_beyond_avx2_are_disabled(dispatched: str, has: str, expected: str):
    known = {name: name in has.split() for name in (*dispatched.split(), *has.split())}
    assert wide_features(dispatched.split(), known) == expected.split()


def test_other_flags_stay():
    made = narrow_environment({"XLA_FLAGS": "--xla_one=1", "OTHER": "2"})
    assert made["XLA_FLAGS"] == f"--xla_one=1 {XLA_LIMIT}"
    assert made["OTHER"] == "2"
    assert LIMITS.items() <= made.items()


def test_numpy_takes_the_limits_without_a_warning():
    python = (sys.executable, "-W", "error")
    command = [*python, "-m", "tests.narrow_cpu", *python, "-c", SHOW]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    wide = [name for name in ran.stdout.split() if name.startswith("AVX512") or name == "X86_V4"]
    assert wide == []


def test_tests_keep_the_limit_of_xla_and_no_other_flag():
    assert xla_limit(f"--xla_one=1 {XLA_LIMIT}") == XLA_LIMIT
    assert xla_limit("--xla_cpu_max_isa=AVX --xla_one=1") == ""
