"""The intermediate representation.

Glossary, one word for each thing everywhere:

* **Module**: a whole program set, with its interface table and functions.
* **Function**: one program: arguments, a block, outputs.
* **Block**: the op list; its order is the program order.
* **Op**: one operation; its kind is a key of the op table (``graphgen.ops``).
* **Value**: a tensor: an op's result or a function's argument.
* **operands / results**: what an op reads and makes. **attrs**: its static data.
* **Loc**: where an op comes from: source line, scope, passes.
* **Entry**: a row of the interface table: input, weight, param, state or output.
* **Domain**: the values that a row may hold, a range or a set.

Read ``module.py`` first, then ``graph.py``.
"""

from __future__ import annotations

from graphgen.ir.attrs import Attrs, AttrValue, Literal, attrs_of
from graphgen.ir.dims import Dim, Poly, bind, parse_dim, symbol
from graphgen.ir.domain import Bound, Domain, DomainLike, as_domain
from graphgen.ir.dtype import DType, dtype
from graphgen.ir.graph import Block, Op, Value
from graphgen.ir.interface import HELD_ROLES, Entry, Role, entry
from graphgen.ir.loc import Loc, loc
from graphgen.ir.module import (
    ADAPTER_IDS,
    ADAPTER_RANK,
    MAIN,
    PROMPT_PHASES,
    RANK,
    VERIFY,
    VERIFY_TREE,
    VERIFYING,
    WEIGHTS_GLOBAL,
    WEIGHTS_RANK,
    WHOLE_ARRAYS,
    WHOLE_PROMPTS,
    Function,
    Module,
)
from graphgen.ir.sharding import Sharding, replicated, sharding
from graphgen.ir.types import TensorType, tensor

__all__ = [
    "ADAPTER_IDS",
    "ADAPTER_RANK",
    "HELD_ROLES",
    "MAIN",
    "PROMPT_PHASES",
    "RANK",
    "VERIFY",
    "VERIFYING",
    "VERIFY_TREE",
    "WEIGHTS_GLOBAL",
    "WEIGHTS_RANK",
    "WHOLE_ARRAYS",
    "WHOLE_PROMPTS",
    "AttrValue",
    "Attrs",
    "Block",
    "Bound",
    "DType",
    "Dim",
    "Domain",
    "DomainLike",
    "Entry",
    "Function",
    "Literal",
    "Loc",
    "Module",
    "Op",
    "Poly",
    "Role",
    "Sharding",
    "TensorType",
    "Value",
    "as_domain",
    "attrs_of",
    "bind",
    "dtype",
    "entry",
    "loc",
    "parse_dim",
    "replicated",
    "sharding",
    "symbol",
    "tensor",
]
