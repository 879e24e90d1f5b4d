"""What the verifier says of an op: where it stands, what it reads and makes."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op


def wrong(code: str, op: Op, function: Function, what: str) -> GraphgenError:
    """An error about ``op``, with its place and its line."""
    where = f"{op.loc!r}, in @{function.name}"
    results = ", ".join(f"%{r.name or '?'}" for r in op.results)
    operands = ", ".join(f"%{v.name or '?'} : {v.type.text}" for v in op.operands)
    return GraphgenError(
        code, f"{op.name}: {what}", where=where, note=f"{results} = {op.name}({operands})"
    )
