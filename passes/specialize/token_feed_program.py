"""The program that hands the tokens of one launch to the next one, without the host."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Function, Module
from graphgen.ir.dtype import s32


def token_feed_module(module: Module, given: int, taken: int) -> Module:
    """A module with one program ``feed.bGIVEN.bTAKEN``.

    Its inputs are ``host`` s32 [taken,1], ``given`` s32 [given] and ``source`` s32 [taken]; its
    output ``fed`` s32 [taken,1] is ``given[source]`` in each row whose source is not negative, and
    ``host`` in the others.

    Args:
        module: for its ranks, which all do the same.
        given: rows of the launch that chose the tokens.
        taken: rows of the launch that processes them.
    """
    made = Module(f"{module.name}.feed", module.level, dict(module.mesh))
    function = made.add(Function(f"feed.b{given}.b{taken}", "feed"))
    with Builder(function, made) as b:
        host = b.input("host", s32, (taken, 1))
        tokens, source = b.input("given", s32, (given,)), b.input("source", s32, (taken,))
        from_host = b.compare(source, b.full(0, source.type), "LT")
        fed = b.select(from_host, b.reshape(host, (taken,)), b.take(tokens, source, 0))
        b.output("fed", b.reshape(fed, (taken, 1)))
    return made
