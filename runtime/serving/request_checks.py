"""Refusals of requests that an engine cannot answer as they are, before they wait."""

from __future__ import annotations

import math

from graphgen.errors import GraphgenError
from graphgen.runtime.launching.session_checks import check_token_ids
from graphgen.runtime.on_device_sampling import check_choice
from graphgen.runtime.serving.serving_request import ServingRequest
from graphgen.runtime.session import Session


def check_request(session: Session, request: ServingRequest, *, text: bool) -> None:
    """Refuse a request that cannot be answered.

    Args:
        session: the programs.
        request: the request.
        text: the engine has a tokenizer.

    Raises:
        GraphgenError: GG0702 for an empty prompt, GG0706 for one with a token outside the
            vocabulary, GG0701 for one that no program takes, GG0705 for no new token and for
            settings that the programs or the engine do not have.
    """
    if not request.prompt:
        raise GraphgenError("GG0702", "the prompt is empty", help="give at least one token")
    check_token_ids(request.prompt, session.token_ids, "the prompt")
    if request.max_new_tokens < 1:
        raise GraphgenError("GG0705", "max_new_tokens must be at least 1")
    _check_stop(request, text=text)
    _check_logits(session, request)
    check_choice(session, [request.sampling])
    session.table.prompt_programs(1, len(request.prompt))
    _check_room(session, len(request.prompt))


def _check_room(session: Session, size: int) -> None:
    """Refuse a prompt that all blocks of a paged cache do not hold (GG0701)."""
    if session.blocks is not None and size > session.blocks.longest:
        raise GraphgenError(
            "GG0701",
            f"a prompt of {size} tokens has no room in the {session.blocks.blocks} blocks of "
            f"{session.blocks.block} tokens",
            help="compile with more blocks",
        )


def _check_stop(request: ServingRequest, *, text: bool) -> None:
    if "" in request.stop:
        raise GraphgenError("GG0705", "a stop string is empty", help="leave it out")
    if request.stop and not text:
        raise GraphgenError(
            "GG0705",
            "this engine has no tokenizer, so it cannot find stop strings",
            help="give the serving engine a tokenizer, or end answers by eos_ids",
        )


def _check_logits(session: Session, request: ServingRequest) -> None:
    """Refuse settings that need logits where the programs have chosen already, and bad values."""
    logits = session.vocabulary
    if request.logprobs is not None:
        if not logits:
            raise _needs_logits("logprobs", "with on-device-sampling{output_logits=true}, or ")
        if not 0 <= request.logprobs <= logits:
            raise GraphgenError(
                "GG0705", f"logprobs is {request.logprobs}, not from 0 to {logits}, the vocabulary"
            )
    for name, given in _logits_settings(request).items():
        if session.chooses and given:
            raise _needs_logits(name)
    for token, added in request.logit_bias.items():
        if not 0 <= token < logits or not math.isfinite(added):
            raise GraphgenError(
                "GG0705",
                f"logit_bias of token {token} is {added}",
                help=f"give finite numbers, for tokens from 0 to {logits - 1}",
            )


def _logits_settings(request: ServingRequest) -> dict[str, bool]:
    """Names of settings that change logits, and whether a request has them (GG0705).

    Raises:
        GraphgenError: for a penalty that is infinite or NaN.
    """
    penalties = {
        "frequency_penalty": request.frequency_penalty,
        "presence_penalty": request.presence_penalty,
    }
    for name, value in penalties.items():
        if not math.isfinite(value):
            raise GraphgenError("GG0705", f"{name} is {value}, not a finite number")
    return {
        "logit_bias": bool(request.logit_bias),
        "mask": request.mask is not None,
        "repetition_penalty": request.sampling.repetition_penalty != 1,
        **{name: value != 0 for name, value in penalties.items()},
    }


def _needs_logits(name: str, also: str = "") -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"{name} needs logits, but these programs choose tokens themselves",
        help=f"compile {also}without --on-device-sampling",
    )
