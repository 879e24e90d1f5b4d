"""Bucket specialization: one program for each size that will be compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Function, Module, Role
from passes.core import Pass, Rewriter, register
from passes.core.clone import Binder


@register
@dataclass(frozen=True)
class Specialize(Pass):
    """Replace each symbolic program by one program a bucket, over one shared cache.

    A prefill program of bucket n takes S = n tokens a row and attends to C = n slots; a decode
    program of bucket n takes one token a row and attends to C = n slots. All of them share the
    weights and a cache of R rows and M slots.

    Options:
        batch: sizes of B.
        context: buckets of the prefill programs.
        tokens: buckets of the decode programs.
        rows: R; by default the largest batch.
        slots: M; by default the largest bucket.
        in_place: promise that row b of a call is cache row b or idle, where B = R.

    Given:
        module @m level=logical {
          input %positions : s32[B,S]
          input %lengths : s32[B]
          output %m : pred[B,S,C]
        }

        func @decode phase=decode dims={S=1} {
          arg %positions : s32[B,1]
          arg %lengths : s32[B]
          %m = attention_mask(%positions, %lengths) attended=C : pred[B,1,C]
          return m = %m
        }

    Result (``specialize{batch=[2],tokens=[64,128]}``):
        module @m level=logical {
          input %positions : s32[B,S]
          input %lengths : s32[B]
          output %m : pred[B,S,C]
        }

        func @decode.b2.c64 phase=decode dims={S=1,B=2,C=64,R=2,M=128} {
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          %m = attention_mask(%positions, %lengths) attended=64 : pred[2,1,64]
          return m = %m
        }

        func @decode.b2.c128 phase=decode dims={S=1,B=2,C=128,R=2,M=128} {
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          %m = attention_mask(%positions, %lengths) attended=128 : pred[2,1,128]
          return m = %m
        }
    """

    name: ClassVar[str] = "specialize"
    batch: tuple[int, ...] = (1,)
    context: tuple[int, ...] = (128,)
    tokens: tuple[int, ...] = (128,)
    rows: int = 0
    slots: int = 0
    in_place: bool = False

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Clone every program once a bucket with its sizes bound."""
        self._check()
        rows = self.rows or max(self.batch)
        slots = self.slots or max((*self.context, *self.tokens))
        shared: dict[str, Dim] = {"R": rows, "M": slots}
        functions: dict[str, Function] = {}
        for function in module.functions.values():
            if not function.phase:
                # What packs a state knows its rows and slots by the same symbols.
                made = functions[function.name] = Function(function.name, dims=function.dims)
                Binder(shared).clone(function, made, self.name)
                continue
            for name, dims in self._buckets(function.phase):
                made = Function(f"{function.name}.{name}", phase=function.phase)
                made.dims = {**function.dims, **dims, **shared}
                override = {"rows": "in_place"} if self.in_place and dims["B"] == rows else {}
                Binder(made.dims, override).clone(function, made, self.name)
                functions[made.name] = made
                rewriter.note(made, f"bucket {name}")
        module.functions = functions
        for row in module.entries(Role.STATE):
            module.interface[row.name] = replace(
                row, logical=row.logical.bind(shared), physical=row.physical.bind(shared)
            )

    def _check(self) -> None:
        for key in ("batch", "context", "tokens"):
            sizes: tuple[int, ...] = getattr(self, key)
            if not sizes or any(size <= 0 for size in sizes):
                raise GraphgenError(
                    "GG0302", f"specialize: {key}={list(sizes)} needs sizes above 0"
                )
        if self.slots and self.slots < max((*self.context, *self.tokens)):
            raise GraphgenError("GG0302", f"specialize: slots={self.slots} is less than a bucket")
        if self.rows and self.rows < max(self.batch):
            raise GraphgenError("GG0302", f"specialize: rows={self.rows} is less than a batch")

    def _buckets(self, phase: str) -> Iterator[tuple[str, dict[str, Dim]]]:
        """Name and sizes of each program of a phase."""
        for batch in sorted(set(self.batch)):
            if phase == "decode":
                for size in sorted(set(self.tokens)):
                    yield f"b{batch}.c{size}", {"B": batch, "C": size}
            else:
                for size in sorted(set(self.context)):
                    yield f"b{batch}.s{size}", {"B": batch, "S": size, "C": size}
