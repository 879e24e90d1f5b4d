"""The tasks of a program on a host whose figures were measured, op by op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphgen.ir import Function, Op
from graphgen.lowering.simulate.step_simulation import Task
from graphgen.ops import Trait, has_trait

# Messages that follow each other in a ring of n ranks, by n - 1: gloo's algorithms.
_TURNS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


@dataclass(frozen=True, slots=True)
class HostFigures:
    """Seconds of one core.

    Attributes:
        ops: of one run of each op that runs alone, by :func:`op_key`.
        kernel: of a small kernel, with values that are in the cache.
        launch: of a launch without arguments.
        argument: of each argument of a launch.
        exchange: of a collective beside its rounds.
        turn: of one round of a collective without bytes.
        turn_byte: of each byte of a round.
    """

    ops: Mapping[str, float]
    kernel: float
    launch: float
    argument: float
    exchange: float
    turn: float
    turn_byte: float


def op_key(op: Op) -> str:
    """Equal for ops that take the same time."""
    types = [value.type.text for value in (*op.operands, *op.results)]
    kernel = op.attrs.text("kernel") if "kernel" in op.attrs else ""
    return f"{op.name} {kernel} {types}"


def runs_alone(op: Op) -> bool:
    """True for ops that are kernels of their own, whatever stands beside them."""
    return op.name in ("call", "dot_general", "gather", "reduce")


def program_tasks(function: Function, figures: HostFigures) -> Iterator[Task]:
    """The tasks of a rank, in order.

    Views and constants take nothing. Of the ops between two that run alone, XLA makes one kernel
    for each value that such an op, or the end of the program, reads.

    Args:
        function: the program of a rank.
        figures: of the host; the ops that run alone are among them.
    """
    yield Task("launch", figures.launch + figures.argument * len(function.args))
    for op in function.block:
        if has_trait(op, Trait.COLLECTIVE):
            yield _exchange(op, figures)
        elif runs_alone(op):
            yield Task(_name(op), figures.ops[op_key(op)])
        elif _is_kernel(function, op):
            yield Task(_name(op), figures.kernel)


def _name(op: Op) -> str:
    return op.attrs.text("kernel") if "kernel" in op.attrs else op.name


def _is_kernel(function: Function, op: Op) -> bool:
    """True for the last op of those that become one kernel."""
    if has_trait(op, Trait.VIEW) or not op.operands:
        return False
    value = op.results[0]
    readers = [user for user in value.users if not has_trait(user, Trait.VIEW)]
    ends = any(runs_alone(user) or has_trait(user, Trait.COLLECTIVE) for user in readers)
    return ends or function.returns(value)


def _exchange(op: Op, figures: HostFigures) -> Task:
    """A collective in a ring of each group of ranks, of whose bytes a round has 1/n."""
    groups = op.attrs.groups("replica_groups")
    ranks = len(groups[0])
    whole = max(op.operands[0].type.nbytes, op.results[0].type.nbytes)
    turn = figures.turn + figures.turn_byte * whole / ranks
    return Task(op.name, figures.exchange, _TURNS[op.name] * (ranks - 1), turn, rings=groups)
