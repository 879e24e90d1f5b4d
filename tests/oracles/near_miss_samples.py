"""Twenty rules that came near: a module, a pass that is asked about it, and where it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Module
from graphgen.passes.inspect.explain import ExplainQuery
from graphgen.text import parse


@dataclass(frozen=True, slots=True)
class NearMiss:
    """One question.

    Attributes:
        what: the user's question, in a few words.
        lines: the program; ``#`` lines begin another one.
        pass_name: which pass is asked, as the last of the pipeline.
        reason: the right answer.
        value: the value it was found at.
        place: where it is asked.
        pipeline: what runs before, and the pass.
        touched: the pass that last touched the value.
    """

    what: str
    lines: Sequence[str]
    pass_name: str
    reason: str
    value: str
    place: ExplainQuery
    pipeline: str = ""
    touched: str = ""

    @property
    def passes(self) -> str:
        """The pipeline."""
        return self.pipeline or self.pass_name


ROWS = """\
  input %x : f32[2,4]
  input %y : f32[3,4]
  input %z : f32[4,4]
  input %s : f32[B,8]
  weight %q : f32[6,4]
  weight %k : f32[3,4]
  weight %t : f32[2,3,4]
  weight %u : f32[4]
  output %a : f32[2,6]
"""
HEADS = """\
func @{name} phase={phase} {{
  arg %x : f32[2,4]
  arg %y : f32[3,4]
  arg %z : f32[4,4]
  arg %s : f32[B,8]
  arg %q : f32[6,4]
  arg %k : f32[3,4]
  arg %t : f32[2,3,4]
  arg %u : f32[4]
"""
ZERO = "%a = constant() value=f32[](0.0) : f32[]"
DOT = "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32"
FIRST, SECOND = f"%a = dot_general(%x, %q) {DOT} : f32[2,6]", f"(%x, %k) {DOT} : f32[2,3]"
FUSE, SHAPE, FOLD = "fuse-projections", "simplify-shape", "fold-constants"


def module_of(case: NearMiss) -> Module:
    """The module that is asked about."""
    programs: list[list[str]] = [[]]
    for line in case.lines:
        if line.startswith("#"):
            programs.append([])
        else:
            programs[-1].append(f"  {line}\n")
    text = f"module @m level=logical {{\n{ROWS}}}\n"
    for number, lines in enumerate(programs):
        name, phase = ("decode", "prefill")[number], ("decode", "prefill")[number]
        text += f"\n{HEADS.format(name=name, phase=phase)}{''.join(lines)}  return a = %a\n}}\n"
    return parse(text.replace("  output %a : f32[2,6]\n", _output(text)))


def _output(text: str) -> str:
    """The row of the output, of the type that is returned."""
    line = next(line for line in text.splitlines() if line.startswith("  %a = "))
    return f"  output %a : {line.rpartition(' : ')[2]}\n"


NEAR_MISSES = (
    NearMiss(
        "one projection alone",
        [FIRST],
        FUSE,
        "1 product of this value with a weight, and 2 are worth fusing",
        "%x : f32[2,4]",
        ExplainQuery("a"),
    ),
    NearMiss(
        "fewer siblings than asked for",
        [f"%b = dot_general{SECOND}", FIRST],
        FUSE,
        "2 products of this value with a weight, and 3 are worth fusing",
        "%x : f32[2,4]",
        ExplainQuery("a"),
        "fuse-projections{min_siblings=3}",
    ),
    NearMiss(
        "the second operand is an input",
        [f"%a = dot_general(%x, %y) {DOT} : f32[2,3]", f"%b = dot_general{SECOND}"],
        FUSE,
        "its right operand is not made of weights alone",
        "%y : f32[3,4]",
        ExplainQuery("a"),
    ),
    NearMiss(
        "a weight that is read twice",
        [FIRST, f"%b = dot_general{SECOND}", f"%c = dot_general(%y, %k) {DOT} : f32[3,3]"],
        FUSE,
        "the weight is read elsewhere too, and would be kept twice",
        "%k : f32[3,4]",
        ExplainQuery("b"),
    ),
    NearMiss(
        "a weight of three dimensions",
        [
            "%a = dot_general(%x, %t) lhs_contracting_dims=[1] rhs_contracting_dims=[2] dtype=f32"
            " : f32[2,2,3]",
            f"%b = dot_general{SECOND}",
        ],
        FUSE,
        "the weight has 2 output dimensions, not 1",
        "%t : f32[2,3,4]",
        ExplainQuery("a"),
    ),
    NearMiss(
        "a product with batch dimensions",
        [
            "%a = dot_general(%x, %t) lhs_batch_dims=[0] rhs_batch_dims=[0]"
            " lhs_contracting_dims=[1] rhs_contracting_dims=[2] dtype=f32 : f32[2,3]",
        ],
        FUSE,
        "it has batch dimensions",
        "%x : f32[2,4]",
        ExplainQuery("a"),
    ),
    NearMiss(
        "a product of two weights",
        [f"%a = dot_general(%q, %k) {DOT} : f32[6,3]"],
        FUSE,
        "its left operand is made of weights itself",
        "%q : f32[6,4]",
        ExplainQuery("a"),
    ),
    NearMiss(
        "another program does not fuse",
        [FIRST, f"%b = dot_general{SECOND}", "#", FIRST],
        FUSE,
        "another program of the module reads these weights otherwise",
        "%q : f32[6,4]",
        ExplainQuery("a", function="decode"),
    ),
    NearMiss(
        "a transpose that is none",
        ["%a = transpose(%z) permutation=[1,0] : f32[4,4]"],
        "canonicalize",
        "the permutation moves dimensions",
        "%z : f32[4,4]",
        ExplainQuery("a", rule="identity"),
    ),
    NearMiss(
        "a slice of everything that is none",
        ["%a = slice(%x) start_indices=[1,0] limit_indices=[2,4] : f32[1,4]"],
        "canonicalize",
        "the type changes",
        "%x : f32[2,4]",
        ExplainQuery("a", rule="identity"),
    ),
    NearMiss(
        "two reshapes with something between",
        [
            "%0 = reshape(%x) shape=[8] : f32[8]",
            "%1 = negate(%0) : f32[8]",
            "%a = reshape(%1) shape=[4,2] : f32[4,2]",
        ],
        "canonicalize",
        "the operand is not a reshape",
        "%negate = negate(%reshape)",
        ExplainQuery("a", rule="reshape-of-reshape"),
    ),
    NearMiss(
        "a constant on the left and on the right",
        [
            "%0 = constant() value=f32[](2.0) : f32[]",
            "%1 = constant() value=f32[](3.0) : f32[]",
            "%a = add(%0, %1) : f32[]",
        ],
        "canonicalize",
        "both operands are constant",
        "%constant = constant()",
        ExplainQuery("a", rule="constant-on-the-right"),
    ),
    NearMiss(
        "a slice over the seam of a concatenation",
        [
            "%0 = concatenate(%x, %y) dimension=0 : f32[5,4]",
            "%a = slice(%0) start_indices=[1,0] limit_indices=[4,4] : f32[3,4]",
        ],
        SHAPE,
        "the slice does not lie in one operand",
        "%concatenate = concatenate(%x, %y)",
        ExplainQuery("a", rule="slice-of-concatenate"),
    ),
    NearMiss(
        "a conversion there and back that rounds",
        [
            "%0 = convert(%x) dtype=bf16 : bf16[2,4]",
            "%a = convert(%0) dtype=f32 : f32[2,4]",
        ],
        SHAPE,
        "bf16 does not hold every value of f32",
        "%x : f32[2,4]",
        ExplainQuery("a"),
    ),
    NearMiss(
        "a computation with an input",
        ["%0 = constant() value=f32[4](1.0,2.0,3.0,4.0) : f32[4]", "%a = add(%0, %u) : f32[4]"],
        FOLD,
        "an operand is not constant",
        "%u : f32[4]",
        ExplainQuery("a"),
        "canonicalize,fold-constants",
    ),
    NearMiss(
        "a constant that would be large",
        [
            "%0 = constant() value=f32[](1.0) : f32[]",
            "%a = broadcast_in_dim(%0) shape=[4096,4096] : f32[4096,4096]",
        ],
        FOLD,
        "it has 16777216 elements, more than 4096",
        "%a = broadcast_in_dim(%constant)",
        ExplainQuery("a"),
        "canonicalize,fold-constants{max_elements=4096}",
        "",
    ),
    NearMiss(
        "a size that is a symbol",
        [
            "%0 = constant() value=f32[](1.0) : f32[]",
            "%a = broadcast_in_dim(%0) shape=[B] : f32[B]",
        ],
        FOLD,
        "its size is not known yet",
        "%a = broadcast_in_dim(%constant)",
        ExplainQuery("a"),
    ),
    NearMiss(
        "a product of many rows",
        [
            "%0 = convert(%x) dtype=bf16 : bf16[2,4]",
            "%1 = convert(%k) dtype=bf16 : bf16[3,4]",
            f"%a = dot_general(%0, %1) {DOT} : f32[2,3]",
        ],
        "legalize",
        "2 rows are enough",
        "%convert = convert(%x)",
        ExplainQuery("a", rule="pad-rows"),
        "specialize,legalize{min_rows=2}",
        "specialize",
    ),
    NearMiss(
        "a product in f32",
        [FIRST],
        "legalize",
        "the operands are f32, which is fast as it is",
        "%x : f32[2,4]",
        ExplainQuery("a", rule="wide-dot"),
        "specialize,legalize",
    ),
    NearMiss(
        "parts of a fused product that overlap",
        [
            f"%0 = dot_general(%x, %q) {DOT} : f32[2,6]",
            "%1 = slice(%0) start_indices=[0,0] limit_indices=[2,4] : f32[2,4]",
            "%2 = slice(%0) start_indices=[0,2] limit_indices=[2,6] : f32[2,4]",
            "%a = add(%1, %2) : f32[2,4]",
        ],
        "unfuse-projections",
        "the slices overlap, and parts would be computed twice",
        "%dot_general = dot_general(%x, %q)",
        ExplainQuery(rule="unfuse"),
    ),
)
