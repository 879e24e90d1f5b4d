"""A process of its own: opens a compiled folder on the stand-in's device and generates."""

from __future__ import annotations

import json
import sys
from typing import Any

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.lowering.cpu import pjrt
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent

TOKENS = 8


def main(folder: str, ranks: int) -> dict[str, object]:
    """What happened, as JSON."""
    request, options = (
        GenerationRequest(TOKENS, frozenset()),
        EngineOptions(CompileConfig.of(tp=ranks)),
    )
    engine, prompts = open_engine(folder, options, lambda t: [t.encode("Hello")], TOKENS, Silent())
    session = engine.session
    states = [row.name for row in session.module.entries(Role.STATE)]
    weights = dict(session.weights)
    said: dict[str, object] = {"first": engine.generate(prompts, request).completions[0].tokens}
    before: dict[str, Any] = {name: session.state(name) for name in states}
    sent: list[int] = []
    put = pjrt.put_here

    def counted(arrays: Any, ranks: int) -> Any:
        sent.append(sum(array.nbytes for array in arrays))
        return put(arrays, ranks)

    pjrt.put_here = counted
    session.decode([1])
    said["sent"] = sum(sent)
    said["states"] = sum(session.module.interface[name].physical.nbytes for name in states)
    said["donated"] = all(value.is_deleted() for value in before.values())
    said["kept"] = all(session.weights[name] is value for name, value in weights.items())
    said["platform"] = sorted({str(d.platform) for v in weights.values() for d in v.devices()})
    try:
        session.copy_row(0, 0)
    except GraphgenError as error:
        said["copy"] = error.code
    said["copies"] = session.copies_rows
    session.reset()
    said["again"] = engine.generate(prompts, request).completions[0].tokens
    from jax_plugins import neuron_stand_in  # pyright: ignore[reportMissingImports]

    said["loaded"] = neuron_stand_in.LOADED
    return said


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
