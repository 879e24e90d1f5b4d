"""Conditions of asynchronous steps, which start before the tokens of the step before are read."""

from __future__ import annotations

from graphgen.analysis.stage_chain import stage_count
from graphgen.errors import GraphgenError
from graphgen.runtime.session.session import Session


def check_async(session: Session) -> None:
    """Refuse programs whose tokens cannot go from one launch to the next on the devices.

    Raises:
        GraphgenError: GG0705 for programs that give logits, whose tokens the host has to choose,
            for programs that take embeddings, and for modules without decode programs; GG1005 on a
            device, where no program is compiled for it.
    """
    if stage_count(session.module) > 1:
        raise GraphgenError(
            "GG0705",
            "async_mode hands tokens over on the devices, and stages of a pipeline have others",
            help="leave async_mode out, or pp_degree",
        )
    if not session.chooses:
        raise GraphgenError(
            "GG0705",
            "async_mode needs programs that choose tokens, but these give logits",
            help="compile with --on-device-sampling, or leave async_mode out",
        )
    session.programs.require_open("the program that hands tokens from step to step")
    if session.input_name != "tokens":
        raise GraphgenError(
            "GG0705",
            f"async_mode needs programs that take tokens, but these take {session.input_name}",
            help="compile without inputs_embeds, or leave async_mode out",
        )
    if not session.table.batches("decode"):
        raise GraphgenError(
            "GG0705",
            "async_mode needs decode programs, but there are none",
            help="compile for generation, or leave async_mode out",
        )
