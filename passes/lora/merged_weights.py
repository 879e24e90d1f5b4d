"""Merge an adapter into its base weights, ``W + delta``: the reference semantics of adapters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphgen.build import Builder
from graphgen.eval import Array
from graphgen.exec.adapters import LORA_A, LORA_B, adapter_rows
from graphgen.ir import Function, Module, Role, TensorType, Value, entry, tensor
from graphgen.ir.clone import clone_module
from graphgen.passes.lora.product_sites import AdapterSite, ExpertSite, program_sites

# A weight of the merged module: what is added to the matrix of a projection.
_DELTA = ".lora_delta"


def merged_module(module: Module, adapted: Module) -> Module:
    """A copy whose projections read ``W + delta`` in the place of W.

    Args:
        module: without adapters.
        adapted: what ``multi-lora`` made of it; says which projections have adapters.
    """
    made, known = clone_module(module), adapter_rows(adapted)
    for function in made.programs():
        sites = program_sites(made, function)
        for site in sites.sites:
            if site.module in known:
                _merge(made, function, site)
        for mixture in sites.mixtures:
            if known.keys() >= {*mixture.modules}:
                _merge_mixture(made, function, mixture)
    return made


def merged_weights(adapted: Module, tensors: Mapping[str, Array], slot: int) -> dict[str, Array]:
    """The addends of the matrices of the merged module for the adapter in ``slot``; 0 for none.

    ``B A`` [out, in] in f64 (PEFT, whose B is not scaled yet: arXiv 2106.09685, equation 3).
    """
    found: dict[str, Array] = {}
    for name in adapter_rows(adapted):
        a, b = (tensors[name + last].astype(np.float64) for last in (LORA_A, LORA_B))
        found[name + _DELTA] = (
            b[slot] @ a[slot] if 0 <= slot < len(b) else np.zeros((*b.shape[1:-1], a.shape[-1]))
        )
    return found


def _merge(module: Module, function: Function, site: AdapterSite) -> None:
    op = site.op
    with Builder(function, before=op, loc=op.loc) as b:
        if site.chain is None:
            table, tokens = op.operands
            delta = b.transpose(_delta(module, function, site, table), (1, 0))
            made = b.emit(op.name, (table + delta, tokens), dict(op.attrs))
        else:
            matrix = site.chain.matrix
            scaled = site.last is not op
            delta = _delta(module, function, site, op.operands[1] if scaled else matrix)
            value = delta if site.chain.depth else b.transpose(delta, (1, 0))
            value = value if scaled else matrix + value
            for step, _, _ in site.chain.steps:
                value = b.emit(step.name, (value,), dict(step.attrs)).result
            if scaled:
                # Narrow numbers have no delta of their type: x (s W + D) = s x W + x D.
                _add_product(function, site, value)
                return
            value = b.convert(value, op.operands[1].dtype)
            made = b.emit(op.name, (op.operands[0], value), dict(op.attrs))
    function.replace_uses(op.result, made.result)
    function.block.erase(op)


def _add_product(function: Function, site: AdapterSite, value: Value) -> None:
    """Add the product with ``value`` to the scaled product of a site."""
    op, last = site.op, site.last
    with Builder(function, before=last, loc=last.loc) as b:
        scaled = b.emit(last.name, last.operands, dict(last.attrs)).result
        more = b.emit(op.name, (op.operands[0], value), dict(op.attrs)).result
        made = scaled + b.convert(more, scaled.dtype)
    function.replace_uses(last.result, made)
    function.block.erase(last)


def _merge_mixture(module: Module, function: Function, site: ExpertSite) -> None:
    op, operands = site.op, list(site.op.operands)
    with Builder(function, before=op, loc=op.loc) as b:
        for place, name in enumerate(site.modules, 3):
            matrix = operands[place]
            operands[place] = matrix + _addend(module, function, name, matrix.type)
        made = b.emit(op.name, operands, dict(op.attrs))
    function.replace_uses(op.result, made.result)
    function.block.erase(op)


def _delta(module: Module, function: Function, site: AdapterSite, like: Value) -> Value:
    type_ = tensor(like.dtype, (site.outputs, site.inputs))
    return _addend(module, function, site.module, type_)


def _addend(module: Module, function: Function, projection: str, type_: TensorType) -> Value:
    name = projection + _DELTA
    module.interface.setdefault(name, entry(Role.WEIGHT, name, type_))
    return function.arg(name) or function.block.add_arg(type_, name)
