"""Tokens that one step hands to the next."""

from __future__ import annotations

import numpy as np

from graphgen.ir import Module
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.launching.pending_step import FedToken, PendingStep, TokenFeed
from graphgen.runtime.launching.row_results import RowResults
from graphgen.runtime.progress_callback import Silent


def test_tokens_of_a_step_that_was_read_at_once_come_from_the_host():
    results = RowResults({"next_tokens": np.array([7, 9], np.int32)})
    step = PendingStep((), np.array([0, 1], np.int32), lambda: results)
    feed = TokenFeed(ExecutableCache(Module("m", "target"), Silent(), None))
    host = np.array([[1], [2], [3]], np.int32)
    found = feed.fed(host, {2: FedToken(step, 0), 0: FedToken(step, 1)})
    assert np.asarray(found)[:, 0].tolist() == [9, 2, 7]
