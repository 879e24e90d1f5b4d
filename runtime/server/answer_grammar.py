"""Forms of answers (``response_format``): masks of the tokens that a grammar allows next.

The library is llguidance, of the extra ``serve``; it is loaded with the first grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt

from graphgen.foreign_calls import ForeignCalls
from graphgen.json_value import Json
from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.serving.request_choice import Mask, MaskError
from graphgen.runtime.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_FIELD = "response_format"
# Characters of a schema, and of a string in it: the time of each step grows with the longest one.
_LONGEST: Final = 1 << 16
_LONGEST_STRING: Final = 1 << 13
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
# Limits of llguidance for a grammar and for the tokens of a step: its own defaults, stated here as
# they bound the time for which other rows wait.
_LIMITS: Final[Mapping[str, int]] = {
    "initial_lexer_fuel": 1_000_000,
    "max_grammar_size": 500_000,
    "max_lexer_states": 250_000,
    "max_items_in_row": 2_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
}


class AnswerGrammars:
    """Grammars over the tokens of one model.

    Args:
        tokenizer: of the model.
        vocabulary: V, number of logits.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._tokenizer: Final = tokenizer
        self._vocabulary: Final = vocabulary

    def masks(self, form: Mapping[str, object], count: int) -> list[Mask]:
        """The masks of some answers in a form, one each.

        Args:
            form: the field ``response_format``, of another type than ``text``.
            count: number of answers.

        Raises:
            ApiError: status 400 for a schema that is missing, wrong or too complex, or without the
                library.
        """
        schema: Json = {"type": "object"}
        if form["type"] == "json_schema":
            schema = _schema_of(form)
        matcher = self._matcher(schema)
        return [_GrammarMask(matcher.deep_copy(), self._vocabulary) for _ in range(count)]

    def _matcher(self, schema: Json) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        text = json.dumps(schema)
        if len(text) > _LONGEST:
            raise _wrong(f"it has {len(text)} characters, and {_LONGEST} are the most")
        longest = max((len(found[0]) - 2 for found in _STRING.finditer(text)), default=0)
        if longest > _LONGEST_STRING:
            raise _wrong(f"a string has {longest} characters, and {_LONGEST_STRING} are the most")
        with ForeignCalls(_wrong):
            grammar = LLMatcher.grammar_from_json_schema(text)
            # An error may not hold the grammar.
            limits = LLParserLimits(verbose_errors=False, precompute_large_lexemes=True, **_LIMITS)
            matcher = LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
            if not matcher.is_error():
                # The first one takes the longest: not in the thread of the engine.
                matcher.compute_logit_bias()
        if matcher.is_error():
            raise _wrong(matcher.get_error().partition("\n")[0][:300])
        return matcher

    @cached_property
    def _tokens(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        parts = self._tokenizer.parts
        ends = sorted(self._tokenizer.eos_ids)
        return LLTokenizer(parts.backend.to_str(), n_vocab=self._vocabulary, eos_token=ends)


def check_grammar_library() -> None:
    """Refuse a form of answers without the library (status 400)."""
    from importlib.util import find_spec

    if find_spec("llguidance") is None:
        what = "response_format needs llguidance, which this server does not have"
        raise ApiError(400, what, param=_FIELD, code="unsupported_parameter")


def _schema_of(form: Mapping[str, object]) -> Json:
    given = cast("Mapping[str, object] | None", form["json_schema"])
    if given is None or given["schema"] is None:
        path = f"{_FIELD}.json_schema" + ("" if given is None else ".schema")
        what = f"Missing required parameter: '{path}'"
        raise ApiError(400, what, param=path, code="missing_required_parameter")
    return cast(Json, given["schema"])


def _wrong(reason: str) -> ApiError:
    path = f"{_FIELD}.json_schema.schema"
    return ApiError(400, f"Invalid schema: {reason}", param=path, code="invalid_json_schema")


class _GrammarMask:
    """The tokens that may follow an answer; it grows by some tokens between two calls."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher: Final = matcher
        self._vocabulary: Final = vocabulary
        self._taken: list[int] = []

    def __call__(self, tokens: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Bool [V]: true for the tokens that may follow."""
        kept = len(self._taken)
        if list(tokens[:kept]) != self._taken:
            self._matcher.reset()
            kept = 0
        new = list(tokens[kept:])
        with ForeignCalls(_failed):
            if new and not self._matcher.consume_tokens(new):
                raise self._given_up()
            self._taken = list(tokens)
            allowed = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8) != 0
        if self._matcher.is_error():
            raise self._given_up()
        return allowed[: self._vocabulary]

    def _given_up(self) -> MaskError:
        return _failed(self._matcher.get_error().partition("\n")[0][:300])


def _failed(reason: str) -> MaskError:
    return MaskError("GG0705", f"The grammar of the answer fails: {reason}")
