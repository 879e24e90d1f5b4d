"""The table of kernels of Neuron: ops at which each is looked for, its name in NKI, its matcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Op
from graphgen.passes.core import NoMatch
from graphgen.passes.kernels.kernel_artifacts import read_artifacts
from graphgen.passes.kernels.kernel_call import KernelRule
from graphgen.passes.kernels.neuron_attention import ATTENTION_KERNEL, match_attention
from graphgen.passes.kernels.neuron_documented_calls import DOCUMENTED
from graphgen.passes.kernels.neuron_match import NativeMatch, NativeSettings
from graphgen.passes.kernels.neuron_narrow import (
    NARROW_MLP_KERNEL,
    ROWS_KERNEL,
    match_narrow_mlp,
    match_rows,
)
from graphgen.passes.kernels.neuron_projections import MLP_KERNEL, QKV_KERNEL, match_mlp, match_qkv
from graphgen.passes.weights.derived import PreparedValues
from graphgen.targets import accelerator

_Match = Callable[[Op, PreparedValues, NativeSettings], NativeMatch | NoMatch]


@dataclass(frozen=True, slots=True)
class NativeKernelRow:
    """A kernel in NKI.

    Attributes:
        option: its word in ``native_kernels``.
        kernel: the function's name in NKI, by which artifacts are found.
        root: name of the ops that it is looked for at.
        match: finds the ops around such an op, or says which limit of the kernel they exceed.
        whole_prompts: whether it reads no positions: a row begins at its first token.
    """

    option: str
    kernel: str
    root: str
    match: _Match
    whole_prompts: bool = False


# In the order in which they are looked for: a kernel takes in no op that an earlier one has taken.
NATIVE: Final = (
    NativeKernelRow("mlp", MLP_KERNEL, "dot_general", match_mlp),
    NativeKernelRow("quantized_mlp", NARROW_MLP_KERNEL, "dot_general", match_narrow_mlp),
    NativeKernelRow("rmsnorm_quantize", ROWS_KERNEL, "rms_norm_quantize", match_rows),
    NativeKernelRow("rmsnorm_quantize", ROWS_KERNEL, "quantize", match_rows),
    NativeKernelRow("qkv", QKV_KERNEL, "dot_general", match_qkv),
    NativeKernelRow("attention", ATTENTION_KERNEL, "attention", match_attention, True),
)


def neuron_rules(
    target: str, documented: bool, native: Sequence[str], artifacts: str, lnc: int
) -> tuple[KernelRule, ...]:
    """The kernels to look for: those in NKI that are requested or given, then documented calls.

    Args:
        target: a Neuron device.
        documented: also the custom calls that the compiler documents.
        native: kernels in NKI that are requested, by the words of :data:`NATIVE`.
        artifacts: the manifest of kernels; empty for none.
        lnc: physical cores of a logical core; 0 for the target's own.

    Raises:
        GraphgenError: GG0302 for a kernel without artifacts, an unknown one, and a manifest that
            cannot be read.
    """
    words = dict.fromkeys([row.option for row in NATIVE])
    for name in native:
        if name not in words:
            what = f"select-kernels: there is no kernel '{name}'"
            raise GraphgenError("GG0302", what, help=f"there are {', '.join(words)}")
    found = read_artifacts(artifacts)
    settings = NativeSettings(found, tuple(native), accelerator(target, lnc).lnc)
    given = {item.kernel for item in found}
    rows = [row for row in NATIVE if row.option in native or row.kernel in given]
    for row in rows:
        if row.kernel not in given:
            raise missing_artifact(row)
    return (*[_rule(row, settings) for row in rows], *(DOCUMENTED if documented else ()))


def missing_artifact(row: NativeKernelRow) -> GraphgenError:
    """Make the error for a kernel that is requested and not given."""
    return GraphgenError(
        "GG0302",
        f"the kernel '{row.option}' is {row.kernel} in NKI, and no artifact of it is given",
        help=f"trace it with NKI and list it in the file kernel_artifacts, or leave "
        f"'{row.option}' out: ordinary ops compute the same",
    )


def _rule(row: NativeKernelRow, settings: NativeSettings) -> KernelRule:
    def match(op: Op, prepared: PreparedValues) -> NativeMatch | NoMatch:
        return row.match(op, prepared, settings)

    return KernelRule(row.option, row.root, match, row.whole_prompts)
