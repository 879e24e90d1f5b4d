"""Calls of kernels: a function with the meaning, the name of the kernel and its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.fingerprint import function_fingerprint
from graphgen.build import Builder
from graphgen.ir import Function, Loc, Module, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.loc import UNKNOWN
from graphgen.ir.names import claim_name
from graphgen.ops import make_attrs


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
        operands: Sequence[Value],
        end: Op,
    ) -> Op:
        """Insert a call before ``end``, whose result it has.

        Args:
            kernel: the name, such as ``linear``.
            config: settings of the kernel.
            body: the meaning: a function of the operands with one output.
            operands: of the call.
            end: the op that the call replaces.
        """
        key = function_fingerprint(body)
        known = self._bodies.get(key)
        if known is None:
            named = Function(claim_name(f"kernel.{kernel}", set(self.module.functions), 2))
            Cloner().function(body, named)
            self.module.add(named)
            known = self._bodies[key] = named
        types = (end.result.type,)
        made = Op(
            "call",
            tuple(operands),
            types,
            make_attrs(
                "call",
                {
                    "to_apply": known.name,
                    "results": types,
                    "kernel": f"graphgen.{kernel}",
                    "config": json.dumps(dict(config), separators=(",", ":")),
                },
            ),
            end.loc.through(self.via),
            [end.result.name],
        )
        block = end.block
        assert block is not None
        block.insert_before(made, end)
        return made

    def put_first(self) -> None:
        """Let the functions stand before those that call them."""
        made = {item.name: item for item in self._bodies.values()}
        self.module.functions = {**made, **self.module.functions}


def appending(function: Function) -> Builder:
    """A builder at the end of a body."""
    return Builder(function, loc=UNKNOWN)
