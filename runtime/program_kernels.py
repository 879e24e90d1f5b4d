"""List the kernels that programs call, and remark on kernels missing on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from graphgen.ir import Function, Module, Op
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from graphgen.ops.control import callees, kernel_of

_PRODUCTS = ("dot", "dot_general", "convolution")


def kernels_called(module: Module) -> list[str]:
    """The names of the kernels that a module calls, in order of the alphabet."""
    every = (op for function in module.functions.values() for op in function.block)
    return sorted({kernel for op in every if (kernel := kernel_of(op))})


def plans_products(module: Module, program: str) -> bool:
    """True if XLA has products of its own to plan at a program's first launch."""
    return any(op.name in _PRODUCTS for op in _own_ops(module, module.function(program)))


def missing_kernels(module: Module) -> str:
    """The remark on programs that call kernels this machine lacks; empty if there are none."""
    library = kernel_library()
    missing = [name for name in kernels_called(module) if name not in library.targets]
    if not missing:
        return ""
    return (
        f"these programs were compiled for {' and '.join(missing)}, and there are no kernels here, "
        f"{library.missing}: weights are unpacked at every call, with the same answers but many "
        "times slower; build the kernels, or compile the model again on this machine"
    )


def _own_ops(module: Module, function: Function) -> Iterator[Op]:
    """The ops that XLA runs: those of the function and of all it calls, without kernels."""
    there = kernel_library().targets
    work, seen = [function], {function.name}
    while work:
        for op in work.pop().block:
            yield op
            names = () if kernel_of(op) in there else callees(op)
            work += [module.function(name) for name in names if name not in seen]
            seen.update(names)
