"""Programs that JAX splits over four devices, read and written again, as XLA partitions them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_xla_partitions_what_is_written_as_it_does_what_was_read():
    command = [sys.executable, "-m", "tests.oracles.partitioned_programs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 6, done.stderr[-2000:]
    for row in rows:
        assert row["same numbers"], row
        assert row["same shardings"], row
        assert row["dropped"] == "", row
