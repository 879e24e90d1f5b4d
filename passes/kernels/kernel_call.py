"""Calls of kernels: a function with the meaning, the name of the kernel and its settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from graphgen.analysis.fingerprint import function_fingerprint
from graphgen.build import Builder
from graphgen.ir import AttrValue, Function, Loc, Module, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.loc import UNKNOWN
from graphgen.ir.names import claim_name
from graphgen.ops import make_attrs
from graphgen.passes.core import NoMatch
from graphgen.passes.weights.derived import PreparedValues


class _BodyCloner(Cloner):
    """Copies ops without names and places, so that the bodies of equal calls are equal."""

    def loc(self, where: Loc) -> Loc:
        return UNKNOWN


@dataclass(slots=True)
class KernelCalls:
    """Makes calls of kernels; calls that compute the same share a function.

    Attributes:
        module: receives the functions.
        via: name of the pass, for locations.
    """

    module: Module
    via: str
    _bodies: dict[str, Function] = field(default_factory=dict[str, Function])

    def body(self, arguments: Mapping[str, Value]) -> tuple[Function, Cloner]:
        """An empty function with these arguments, and a cloner of ops into it.

        Args:
            arguments: by name, the values that a call hands over.
        """
        function = Function("kernel")
        cloner = _BodyCloner(names=False, shardings=False)
        for name, value in arguments.items():
            cloner.mapping[value] = function.block.add_arg(value.type, name)
        return function, cloner

    def call(
        self,
        kernel: str,
        config: Mapping[str, object],
        body: Function,
        cloner: Cloner,
        operands: Mapping[str, Value],
        ops: Sequence[Op],
    ) -> Sequence[Value]:
        """Insert a call before the last of ``ops``, and return its results, which are the same.

        Args:
            kernel: the name, such as ``linear``.
            config: settings of the kernel.
            body: the meaning, to which copies of ``ops`` are appended.
            cloner: maps what the ops read to values of the body.
            operands: of the call.
            ops: what the call computes, in order; the last one gives the results.
        """
        for op in ops:
            cloner.op(op, body.block)
        end = ops[-1]
        body.outputs = result_names([cloner.mapping[value] for value in end.results])
        types = tuple([result.type for result in end.results])
        attrs = {
            "to_apply": self._named(kernel, body).name,
            "results": types,
            "kernel": f"graphgen.{kernel}",
            "config": json.dumps(dict(config), separators=(",", ":")),
        }
        where = end.loc.through(self.via)
        given = tuple(operands.values())
        made = Op(
            "call",
            given,
            types,
            make_attrs("call", attrs),
            where,
            [result.name for result in end.results],
        )
        block = end.block
        assert block is not None
        block.insert_before(made, end)
        return made.results

    def insert(
        self,
        b: Builder,
        stem: str,
        target: str,
        config: str,
        body: Function,
        operands: Sequence[Value],
    ) -> Op:
        """Insert a call where ``b`` does, of a body that is built rather than copied.

        Args:
            b: at the place of the call.
            stem: names the function.
            target: the custom call.
            config: its configuration.
            body: the meaning, complete.
            operands: of the call.
        """
        types = tuple([value.type for _, value in body.outputs])
        attrs: dict[str, AttrValue] = {
            "to_apply": self._named(stem, body).name,
            "results": types,
            "kernel": target,
            "config": config,
        }
        return b.emit("call", operands, attrs)

    def _named(self, kernel: str, body: Function) -> Function:
        """The function of the module that equals ``body``, made if there is none."""
        key = function_fingerprint(body)
        if key not in self._bodies:
            named = Function(claim_name(f"kernel.{kernel}", set(self.module.functions), 2))
            Cloner().function(body, named)
            self.module.add(named)
            self._bodies[key] = named
        return self._bodies[key]

    def put_first(self) -> None:
        """Put the functions before their callers in the module."""
        made = {item.name: item for item in self._bodies.values()}
        self.module.functions = {**made, **self.module.functions}


def result_names(values: Sequence[Value]) -> list[tuple[str, Value]]:
    """The outputs of a meaning: ``result``, or ``result0``, ``result1`` and so on."""
    if len(values) == 1:
        return [("result", values[0])]
    return [(f"result{i}", value) for i, value in enumerate(values)]


def appending(function: Function) -> Builder:
    """A builder at the end of a body."""
    return Builder(function, loc=UNKNOWN)


def present(**operands: Value | None) -> Mapping[str, Value]:
    """The operands that a call has, by name."""
    return {name: value for name, value in operands.items() if value is not None}


class KernelMatch(Protocol):
    """The ops that one call of a kernel computes."""

    @property
    def ops(self) -> list[Op]:
        """All ops, in an order in which they can run; the last has the results."""
        ...

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call before the last of the ops; return a value for each of its results.

        Args:
            b: appends ops before the last of the ops: for the operands, and of what the call gives.
            calls: makes the call and the function that is its meaning.
        """
        ...


@dataclass(frozen=True, slots=True)
class KernelRule:
    """Ops at which a kernel is looked for, and how.

    Attributes:
        kernel: its name.
        root: name of the ops that it is looked for at.
        match: finds the ops around such an op, or says what the kernel lacks.
        whole_prompts: whether programs that call it take prompts from their first token on alone.
    """

    kernel: str
    root: str
    match: Callable[[Op, PreparedValues], KernelMatch | NoMatch]
    whole_prompts: bool = False
