"""Small modules for the tests of passes, given and compared as text."""

from __future__ import annotations

from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse, print_module


def function(*lines: str, level: str = "logical") -> str:
    """A module with the one function ``@f`` of these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"module @m level={level} {{\n}}\n\nfunc @f {{\n{body}\n}}\n"


def after(text: str, pipeline: str) -> str:
    """The module's text after the passes."""
    module = parse(text)
    verify(module)
    run_pipeline(module, parse_pipeline(pipeline))
    return print_module(module, locs=False)


def lines(text: str) -> list[str]:
    """The lines of ``@f`` in a module's text."""
    _, _, rest = text.partition("func @f")
    return [line.strip() for line in rest.splitlines()[1:] if line.startswith("  ")]
