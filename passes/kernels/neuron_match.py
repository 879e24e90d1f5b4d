"""Settings, match and call that all kernels in NKI share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import DType, Op, TensorType, Value, tensor
from graphgen.ops.custom_calls import NKI
from graphgen.passes.core import NoMatch
from graphgen.passes.kernels.kernel_artifacts import KernelArtifact, WantedKernel, find_artifact
from graphgen.passes.kernels.kernel_call import KernelCalls, appending, result_names

# (builder, arguments of the kernel) -> its results, in ops: what the kernel computes.
Meaning = Callable[[Builder, Sequence[Value]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class NativeSettings:
    """Settings of the choice of kernels in NKI.

    Attributes:
        artifacts: the kernels that there are.
        requested: kernels that are requested by name.
        cores: physical cores of a logical core.
    """

    artifacts: tuple[KernelArtifact, ...]
    requested: tuple[str, ...]
    cores: int


@dataclass(slots=True)
class NativeMatch:
    """The ops that one call of a kernel computes.

    Attributes:
        kernel: a word for it, in names of functions.
        ops: in an order in which they can run; the last has the results.
        operands: makes the operands, in the kernel's own layouts, by name.
        meaning: what the kernel computes of them.
        finish: makes the results of the ops of those of the kernel.
        results: types of the kernel's results.
        config: of the custom call.
    """

    kernel: str
    ops: list[Op]
    operands: Callable[[Builder], Mapping[str, Value]]
    meaning: Meaning
    finish: Callable[[Builder, Sequence[Value]], Sequence[Value]]
    results: tuple[TensorType, ...]
    config: str = ""

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call, with what changes layouts and element types around it."""
        given = self.operands(b)
        body, _ = calls.body(given)
        body.outputs = result_names(self.meaning(appending(body), list(body.args)))
        made = calls.insert(b, self.kernel, NKI, self.config, body, list(given.values()))
        return self.finish(b, made.results)


def with_artifact(
    match: NativeMatch,
    settings: NativeSettings,
    kernel: str,
    operands: Sequence[TensorType],
    arguments: Mapping[str, object],
) -> NativeMatch | NoMatch:
    """The match with the artifact for it, if that is given.

    Args:
        match: of all that the kernel needs beside.
        settings: have the artifacts.
        kernel: the function's name in NKI.
        operands: types of the operands that the match will make.
        arguments: what the kernel must have been traced with.
    """
    wanted = WantedKernel(kernel, tuple(operands), match.results, arguments)
    found = find_artifact(settings.artifacts, wanted, match.ops[-1].results[0])
    if isinstance(found, NoMatch):
        return found
    match.config = found.config
    return match


def converted(wide: DType) -> Callable[[Builder, Sequence[Value]], Sequence[Value]]:
    """Finish results that the ops have in another element type."""
    return lambda b, values: [b.convert(value, wide) for value in values]


def row(b: Builder, vector: Value) -> Value:
    """[N] as [1,N], the form of a norm's weight in these kernels."""
    return b.reshape(vector, (1, *vector.type.dims))


def row_type(vector: Value) -> TensorType:
    """The type of :func:`row`."""
    return tensor(vector.dtype, (1, *vector.type.dims))
