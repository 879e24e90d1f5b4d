"""Requests with settings of logits: what is refused before it waits."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.serving.serving_engine import check_request
from graphgen.runtime.serving.serving_request import ServingRequest
from tests.runtime.serving.fake_session import VOCABULARY, FakeSession, as_session


def test_a_bias_is_for_any_token_of_the_vocabulary():
    session = as_session(FakeSession(1, 64, 0, 1))
    for token in (0, VOCABULARY - 1):
        check_request(session, ServingRequest("a", (1,), logit_bias={token: 2.0}), text=False)
    for token in (-1, VOCABULARY):
        request = ServingRequest("a", (1,), logit_bias={token: 2.0})
        with pytest.raises(GraphgenError, match=f"logit_bias of token {token} is"):
            check_request(session, request, text=False)
