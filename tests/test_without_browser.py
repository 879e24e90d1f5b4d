"""Tests of pages without a browser: skipped and counted, and a failure where one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.oracles.chromium import NO_BROWSER, program

ROOT = Path(__file__).resolve().parents[1]
SKIPPING = """
import pytest
from tests.oracles.chromium import NO_BROWSER

def test_page():
    pytest.skip(NO_BROWSER)

def test_other():
    pytest.skip("another reason")
"""


@pytest.mark.slow
@pytest.mark.parametrize("installed", [False, True])
def test_skipped_tests_of_pages_are_counted(tmp_path: Path, installed: bool):
    file = tmp_path / "test_skipping.py"
    path = str(Path(sys.executable).parent)
    if installed:
        browser = tmp_path / "chromium"
        browser.symlink_to(program() or shutil.which("true") or "/bin/true")
        path = f"{tmp_path}:{path}"
    file.write_text(SKIPPING)
    options = ("-q", "-n", "0", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"))
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(file)]
    environment = {**os.environ, "PATH": path, "PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert f"1 tests of pages were skipped: {NO_BROWSER}" in ran.stdout
    assert (ran.returncode == 1) is installed, ran.stdout
