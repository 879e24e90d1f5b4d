"""Types of the names that ``__init__.py`` looks up."""

from graphgen.analysis.networkx_view import to_networkx as to_networkx
from graphgen.build import Builder as Builder
from graphgen.errors import GraphgenError as GraphgenError
from graphgen.eval import evaluate as evaluate
from graphgen.eval import evaluate_ranks as evaluate_ranks
from graphgen.ir import Dim as Dim
from graphgen.ir import Domain as Domain
from graphgen.ir import DType as DType
from graphgen.ir import Entry as Entry
from graphgen.ir import Function as Function
from graphgen.ir import Literal as Literal
from graphgen.ir import Loc as Loc
from graphgen.ir import Module as Module
from graphgen.ir import Op as Op
from graphgen.ir import Role as Role
from graphgen.ir import Sharding as Sharding
from graphgen.ir import TensorType as TensorType
from graphgen.ir import Value as Value
from graphgen.ir import dtype as dtype
from graphgen.ir import sharding as sharding
from graphgen.ir import symbol as symbol
from graphgen.ir import tensor as tensor
from graphgen.lowering.explorer import explore as explore
from graphgen.ops import verify as verify
from graphgen.runtime.api import compile as compile
from graphgen.runtime.api import load as load
from graphgen.text import parse as parse
from graphgen.text import print_function as print_function
from graphgen.text import print_module as print_module

__all__ = [
    "Builder",
    "DType",
    "Dim",
    "Domain",
    "Entry",
    "Function",
    "GraphgenError",
    "Literal",
    "Loc",
    "Module",
    "Op",
    "Role",
    "Sharding",
    "TensorType",
    "Value",
    "dtype",
    "evaluate",
    "evaluate_ranks",
    "explore",
    "load",
    "parse",
    "print_function",
    "print_module",
    "sharding",
    "symbol",
    "tensor",
    "to_networkx",
    "verify",
]
