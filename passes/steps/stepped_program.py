"""The program of several tokens a row: its arguments, and the inputs of each of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from graphgen.build import Builder
from graphgen.exec.decode_steps import (
    COUNT,
    STEP_COUNTS,
    STEP_RANDOM,
    STEP_TOKENS,
    STEPS,
    STOP_TOKENS,
    STOPS,
)
from graphgen.ir import Function, Loc, Module, Role, TensorType, Value, entry, symbol, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.passes.sampling.token_rule import RANDOM, TOKENS

# Inputs of a decode step, beside weights and states.
STEP_INPUTS = ("tokens", "positions", "lengths", "seq_ids")


class SteppedProgram:
    """Builds a program of the phase ``steps`` from calls of other programs.

    Args:
        module: to whose interface its inputs and its output are added.
        decode: the program of one step.
        name: of the program.
        count: N, number of tokens.
        loc: of its ops.

    Attributes:
        function: the program.
        b: at its end.
        rows: B.
        column_type, row_type: s32 [B,1] and [B].
    """

    def __init__(self, module: Module, decode: Function, name: str, count: int, loc: Loc) -> None:
        self.function = Function(name, STEPS, {**decode.dims, COUNT: count})
        self.b = Builder(self.function, loc=loc)
        self.module, self.decode, self.count = module, decode, count
        self.rows = cast(int, decode.dims["B"])
        self.row_type, self.column_type = tensor(s32, (self.rows,)), tensor(s32, (self.rows, 1))

    def declare_arguments(self, random: Sequence[int] = ()) -> None:
        """Declare those of the decode program, and the new ones after its last input.

        Args:
            random: further sizes of the random numbers of each step.
        """
        roles = {row.name: row.role for row in self.module.interface.values()}
        given = [v for v in self.decode.args if v.name != RANDOM]
        inputs = [v for v in given if roles.get(v.name or "") is Role.INPUT]
        for value in inputs:
            self.function.block.add_arg(value.type, value.name or "")
        rows = self.module.interface[TOKENS].logical.shape[0]
        self._declare(Role.INPUT, STEP_COUNTS, tensor(s32, (rows,)))
        self._declare(Role.INPUT, STOP_TOKENS, tensor(s32, (rows, STOPS)))
        if self.decode.arg(RANDOM) is not None:
            numbers = tensor(f32, (rows, symbol(COUNT), *random))
            self._declare(Role.INPUT, STEP_RANDOM, numbers)
        self._declare(Role.OUTPUT, STEP_TOKENS, tensor(s32, (rows, symbol(COUNT))))
        for value in given:
            if value not in inputs:
                self.function.block.add_arg(value.type, value.name or "")

    def _declare(self, role: Role, name: str, type_: TensorType) -> None:
        self.module.interface.setdefault(name, entry(role, name, type_))
        if role is Role.INPUT:
            self.function.block.add_arg(type_.bind(self.function.dims), name)

    def argument(self, name: str) -> Value:
        """The argument of that name, which there is."""
        found = self.function.arg(name)
        assert found is not None, name
        return found

    def idle(self) -> dict[str, Value]:
        """The inputs of rows that take no part in a step, which leaves their caches as they are."""
        rows = self.decode.dims["R"]
        assert isinstance(rows, int)
        return {
            "positions": self.b.full(-1, self.column_type),
            "lengths": self.b.full(0, self.row_type),
            # Row R does not exist: what is written there is dropped.
            "seq_ids": self.b.full(rows, self.row_type),
        }

    def inputs(
        self, number: int, active: Value, first: Mapping[str, Value], idle: Mapping[str, Value]
    ) -> dict[str, Value]:
        """The inputs of a step: those of the first one, ``number`` positions further.

        Args:
            number: of the step, from 0.
            active: pred [B], the rows that take part.
            first: the inputs of the first step, but with the tokens of this one.
            idle: of rows that do not take part.
        """
        b, inputs = self.b, {"tokens": first["tokens"]}
        for name, none in idle.items():
            further = number if name != "seq_ids" else 0
            value = b.binary("add", first[name], further) if further else first[name]
            takes = active if none.type.rank == 1 else b.broadcast_in_dim(active, none.shape, [0])
            inputs[name] = b.select(takes, value, none)
        return inputs

    def ended(self, token: Value) -> Value:
        """S32 [B]: 1 where ``token`` ends its row, else 0."""
        b, stops = self.b, self.argument(STOP_TOKENS)
        same = b.compare(b.broadcast_in_dim(token, stops.type.shape, [0]), stops, "EQ")
        return b.reduce(b.convert(same, s32), [1], "maximum")
