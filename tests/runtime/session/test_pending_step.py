"""Tokens that one step hands to the next."""

from __future__ import annotations

import numpy as np

from graphgen.runtime.session.pending_step import DeviceToken, PendingStep, handed_tokens
from graphgen.runtime.session.row_results import RowResults


def step_of(on_devices: bool) -> PendingStep:
    results = RowResults({"next_tokens": np.array([7, 9], np.int32)})
    tokens = [np.array([9, 7], np.int32)] if on_devices else []
    return PendingStep(tokens, np.array([1, 0], np.int32), lambda: results, 4)


def test_tokens_of_a_step_that_was_read_come_from_the_host():
    host = np.array([[1], [2], [3]], np.int32)
    early, late = step_of(on_devices=False), step_of(on_devices=True)
    late.read()
    assert not handed_tokens(host, {2: DeviceToken(early, 0), 0: DeviceToken(late, 1)})
    assert host[:, 0].tolist() == [9, 2, 7]


def test_tokens_that_the_host_has_not_read_stay_on_the_devices():
    host, step = np.array([[1], [2], [3]], np.int32), step_of(on_devices=True)
    (found,) = handed_tokens(host, {2: DeviceToken(step, 0), 1: DeviceToken(step, 1)})
    assert host[:, 0].tolist() == [1, 2, 3]
    assert found.number == 4
    assert found.source.tolist() == [-1, 0, 1]
