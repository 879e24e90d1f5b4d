"""Diagnostics of the verifier: an error with the location and the text of the op."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op


def verification_error(code: str, op: Op, function: Function, what: str) -> GraphgenError:
    """Build the error ``code`` about ``op`` in ``function``, with its location and its line."""
    where = f"{op.loc!r}, in @{function.name}"
    results = ", ".join(f"%{r.name or '?'}" for r in op.results)
    operands = ", ".join(f"%{v.name or '?'} : {v.type.text}" for v in op.operands)
    return GraphgenError(
        code, f"{op.name}: {what}", where=where, note=f"{results} = {op.name}({operands})"
    )
