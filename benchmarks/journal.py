"""What the journal costs where nobody asks for one, beside a build without its hooks.

The peer is the same rewriter with every ``if self.journal is not None`` taken out of its source.
Both compile the same model in this process, by turns; seconds are CPU seconds of the passes. The
cost is the median over turns of one over the other: a busy machine slows both of a turn alike.
"""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import Rewriter, rewriter, run_pipeline
from graphgen.passes.pipelines import default

HOOKED = ("replace", "erase", "note", "_try_rules")


class WithoutHooks(ast.NodeTransformer):
    """Takes the journal's hooks out of a syntax tree.

    Attributes:
        removed: how many there were.
    """

    def __init__(self) -> None:
        self.removed = 0

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Drop a statement that is there for the journal."""
        if ast.unparse(node.test) == "self.journal is not None":
            assert not node.orelse
            self.removed += 1
            return None
        return self.generic_visit(node)


def without_hooks() -> dict[str, Callable[..., object]]:
    """The methods of the rewriter compiled from a source without hooks."""
    stripper = WithoutHooks()
    tree = ast.fix_missing_locations(stripper.visit(ast.parse(inspect.getsource(rewriter))))
    assert stripper.removed >= len(HOOKED)
    space: dict[str, object] = {"__name__": rewriter.__name__}
    exec(compile(tree, "rewriter without hooks", "exec"), space)
    return {name: getattr(space["Rewriter"], name) for name in HOOKED}


def seconds(model: str) -> float:
    """CPU seconds of the default pipeline."""
    module = build(known_shape(model), dtype("bf16"))
    start = time.process_time()
    run_pipeline(module, default(CompileConfig(context=(128,), tokens=(128,))), verify=0)
    return time.process_time() - start


def compare(model: str, best_of: int) -> Row:
    """The best of several runs of either build, by turns."""
    builds = {"ours": {name: getattr(Rewriter, name) for name in HOOKED}, "peer": without_hooks()}
    runs: dict[str, list[float]] = {name: [] for name in builds}
    for turn in range(best_of + 1):
        # Who comes first in a turn changes, so that neither is helped by the other's leavings.
        for name in sorted(builds, reverse=turn % 2 == 0):
            methods = builds[name]
            for method, function in methods.items():
                setattr(Rewriter, method, function)
            gc.collect()
            spent = seconds(model)
            # The first turn fills caches of types and attributes.
            runs[name] += [spent] if turn else []
    for method, function in builds["ours"].items():
        setattr(Rewriter, method, function)
    ours, peer = (min(runs[name]) for name in ("ours", "peer"))
    ratio = median(a / b for a, b in zip(runs["ours"], runs["peer"], strict=True))
    return Row(model, ours, "no hooks", peer, {"cost_percent": 100 * (ratio - 1)})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="The journal's cost where it is off.")
    parser.add_argument("--best-of", type=int, default=15, metavar="N", help="runs of each build")
    parser.add_argument("--model", default="llama-3.1-70b")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    given = parser.parse_args()
    rows = [compare(given.model, given.best_of)]
    print(table(rows, ("cost_percent",)))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
