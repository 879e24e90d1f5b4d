"""A pipeline with every pass in it, and the part of it before each: where a pass can be tried."""

from __future__ import annotations

from dataclasses import replace

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import AttrValue, Function, Literal, Module, dtype, tensor
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.core.registry import all_passes
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.text import parse as parse_text

# Passes that are in no default pipeline: behind which ones they are tried.
EXTRA = {
    "on-device-sampling{output_logits=true}": ("canonicalize",),
    "raise-composites": ("canonicalize",),
    "unroll-loops": ("specialize",),
    "simplify-shape": ("canonicalize", "specialize", "legalize"),
    "fold-constants{exact=true}": ("specialize", "legalize"),
    "roll-window-cache": ("specialize",),
    "gather-heads": ("partition",),
    "reduce-dtype{dtype=bf16}": ("merge-collectives",),
    "cast-logits{dtype=bf16},attention-dtype{dtype=f16}": ("specialize",),
    "page-cache{block=4}": ("partition",),
    "pad-cache-slots": ("cache-as-bits",),
    "select-kernels": ("fuse-projections",),
    "order-interface": ("lift-weights",),
    "f8-formats": ("quantize-weights",),
    "outline-layers,inline-calls": ("dce",),
}
# Tried by tests of their own: several steps are those of programs that choose tokens from the first
# pass on (tests/passes/programs, and an axis of the matrix), and fused speculation is that of a
# model # and its draft (tests/passes/programs); a softmax of another type takes
# attention apart, which kernels are selected for (tests/passes/precision, and an axis as well); so
# are products with 8-bit weights (tests/passes/quantization, and an axis); a limit on the tokens of
# an # expert makes another model (tests/passes/experts), and so do adapters (tests/passes/lora, and
# an axis); tokens are balanced, and windows exchanged, where ranks share prompts
# (tests/passes/sharding, and an axis);
# collectives are in stages where ranks fill several nodes (tests/passes/sharding);
# layers are marked for Neuron's compiler alone (tests/passes/outline); routers of another type are
# those of mixtures alone (tests/passes/precision).
ELSEWHERE = (
    *("unroll-steps", "softmax-dtype", "quantize-activations", "fuse-speculation"),
    *("limit-expert-capacity", "flash-decoding", "balance-tokens", "window-prompts"),
    *("multi-lora", "join-adapters", "adapter-forms"),
    *("pipeline-stages", "mark-layers", "router-dtype", "hierarchical-collectives"),
)
# Passes for quantized weights and caches alone, and the element type of such weights.
QUANTIZED = {
    "quantize-weights": "int8",
    "quantize-cache": "int8",
    "integer-products": "int8",
    "f8-formats": "f8e4m3",
}


def every_pass(
    buckets: CompileConfig, *, tp: int = 1, quantized: bool = False, dtype: str = "int8"
) -> list[Pass]:
    """The default pipeline with the other passes in between."""
    passes: list[Pass] = []
    done: set[str] = set()
    quantization = str(QuantizeWeights(dtype=dtype)) if quantized else ""
    config = replace(buckets, tp=tp, quantization=quantization, kv_cache_quant=quantized)
    for item in default(config):
        passes.append(item)
        if item.name not in done:
            for text, places in EXTRA.items():
                passes += parse_pipeline(text) if item.name in places else []
        done.add(item.name)
    return passes


def stage(name: str, buckets: CompileConfig, *, tp: int = 1) -> tuple[list[Pass], Pass]:
    """The passes before the last one called ``name``, and that one."""
    dtype = QUANTIZED.get(name, "int8")
    passes = every_pass(buckets, tp=tp, quantized=name in QUANTIZED, dtype=dtype)
    found = [number for number, item in enumerate(passes) if item.name == name]
    assert found, f"no pipeline here has {name}: give it a module in EXTRA, or name it in ELSEWHERE"
    return passes[: found[-1]], passes[found[-1]]


def our_passes() -> list[str]:
    """Names of the passes of this repository; tests and plugins may have registered more."""
    return [n for n, cls in all_passes().items() if cls.__module__.startswith("graphgen.passes.")]


def untidy(module: Module) -> None:
    """Turn the operands of sums there and back, and compute what nobody reads."""
    for function in module.programs():
        for op in function.block:
            if op.name != "add":
                continue
            b = Builder(function, before=op, loc=op.loc)
            first, *others = op.operands
            back = list(reversed(range(first.type.rank)))
            turned = b.transpose(b.transpose(first, back), back)
            op.set_operands((turned, *others))
            b.unary("negate", turned)


def scattered(module: Module) -> None:
    """Take every sum for all ranks in two steps: in parts, which are gathered."""
    for function in module.programs():
        for op in [op for op in function.block if op.name == "all_reduce"]:
            b = Builder(function, before=op, loc=op.loc)
            groups = op.attrs.groups("replica_groups")
            dim = next(d for d, n in enumerate(op.result.type.dims) if n % len(groups[0]) == 0)
            part = b.reduce_scatter(op.operands[0], groups, dim, op.attrs.text("kind"))
            function.replace_uses(op.result, b.all_gather(part, groups, dim))
            function.block.erase(op)


# A loop that turns a value around twice.
LOOP = """module @loop level=logical {
}

func @goes.NAME {
  arg %i : s32[]
  arg %x : TYPE
  %c = constant() value=s32[](2) : s32[]
  %t = compare(%i, %c) direction=LT : pred[]
  return t = %t
}

func @turns.NAME {
  arg %i : s32[]
  arg %x : TYPE
  %c = constant() value=s32[](1) : s32[]
  %j = add(%i, %c) : s32[]
  %y = negate(%x) : TYPE
  return i = %j
  return x = %y
}
"""


def looped(module: Module) -> None:
    """Turn every sum of floats around twice, in a loop."""
    bodies: dict[str, Function] = {}
    for function in module.programs():
        sums = [op for op in function.block if op.name == "add" and op.result.dtype.is_float]
        for op in sums:
            type_ = op.result.type
            name = type_.text_name
            if f"turns.{name}" not in bodies:
                text = LOOP.replace("NAME", name).replace("TYPE", type_.text)
                bodies |= parse_text(text).functions
            readers, returned = list(op.result.users), function.returns(op.result)
            b = Builder(function, before=op.next, loc=op.loc)
            start = b.op("constant", value=Literal.of(dtype("s32"), 0))
            names: dict[str, AttrValue] = {"condition": f"goes.{name}", "body": f"turns.{name}"}
            _, again = b.emit("while", (start, op.result), names).results
            for user in readers:
                user.set_operands(tuple([again if v is op.result else v for v in user.operands]))
            if returned:
                function.outputs.replace(op.result, again)
    module.functions = {**bodies, **module.functions}


def mixed(module: Module) -> None:
    """Add to every sum of hidden states f32 or bf16 that of two experts, on every token."""
    for function in module.programs():
        for op in [op for op in function.block if op.name == "add" and op.result.type.rank == 3]:
            type_, readers = op.result.type, list(op.result.users)
            b = Builder(function, before=op.next, loc=op.loc)
            shape = (*type_.shape[:-1], 2)
            indices = b.iota(dtype("s32"), shape, 2)
            weights = b.full(0.5, tensor(dtype("f32"), shape))
            wide = tensor(type_.dtype, (2, 4, type_.shape[2]))
            gate, up = b.full(0.1, wide), b.full(0.2, wide)
            down = b.full(0.1, tensor(type_.dtype, (2, type_.shape[2], 4)))
            given = (op.result, indices, weights, gate, up, down)
            made = b.emit("experts", given, {"dtype": type_.dtype}).result
            for user in readers:
                user.set_operands(tuple([made if v is op.result else v for v in user.operands]))
