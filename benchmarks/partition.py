"""What partitioning makes ranks send each other, beside XLA's own partitioners.

Each case is a mini model in f32, one program of a phase, on a mesh. Ours is the program of one rank
after ``partition`` and ``merge-collectives``. The peers are XLA's partitioners, GSPMD and Shardy,
which get the same program, whole, with the same layouts of inputs, weights, caches and outputs, and
of the values that rules name, such as the tokens of prompts that ranks share, and choose everything
in between; their collectives are those of the HLO that XLA compiled for this CPU.
Bytes are what one rank receives in a step, by ring algorithms: of n ranks, (n-1)/n of the whole in
an all-gather, a reduce-scatter or an all-to-all, twice that in an all-reduce, and all of it in a
permutation. Nothing is run.
"""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from graphgen.analysis import called
from graphgen.atomic_write import write_whole
from graphgen.ir import Function, Module, Op, Sharding, attrs_of, dtype
from graphgen.ir.clone import clone_function, clone_module
from graphgen.lowering.cpu.pjrt import QUICK
from graphgen.lowering.hlo.annotations import FRONTEND, frontend_text
from graphgen.lowering.hlo.module_annotations import PARTITIONS
from graphgen.lowering.stablehlo import emit_stablehlo, shardy
from graphgen.models import FAMILIES, SHAPES, build, known_shape
from graphgen.ops import OPS
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.pipelines import parse
from graphgen.passes.sharding.collective_cost import groups_of
from graphgen.passes.sharding.rank_axes import CP

MESHES: Mapping[str, str] = {
    "tp 4": "heads{tp=4},shard{tp=4},pad-to-mesh",
    "dp 2 x tp 4": "heads{tp=4},shard{mesh=[dp:2,tp:4],rules=[batch:dp,rows:dp]},pad-to-mesh",
    "cp 2 x tp 2": "heads{tp=4},shard{tp=4,cp=2},pad-to-mesh",
    "cp 2 x tp 2, gather": "heads{tp=4},shard{tp=4,cp=2,cp_form=gather},pad-to-mesh",
    "cp 2 x tp 2, ring": "heads{tp=4},shard{tp=4,cp=2,cp_form=ring},pad-to-mesh",
}
FRONT = (
    "canonicalize,unfuse-projections,specialize{batch=[4],context=[16],tokens=[32],in_place=true}"
)
OURS = "partition,merge-collectives,cse,dce"
# Minis are so small that fewer collectives are worth more bytes to ours: here bytes alone count, as
# over several axes they are not the same.
OURS_BY_BYTES = "partition{latency=0,memory=0},merge-collectives,cse,dce"
PEERS = ("gspmd", "shardy")
# Times of the operand, or the result, that a rank of a ring of n receives, over (n - 1) / n.
_SHARE = {"all_gather": 1, "all_reduce": 2, "reduce_scatter": 1, "all_to_all": 1}
_COLLECTIVE = re.compile(
    r"= (\([^)]*\)|\S+) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\((.*)$"
)
_ARRAY = re.compile(r"(pred|[suf]\d+|bf16)\[([\d,]*)\]")


# Kind, bytes of the whole, and ranks of a group (0 for a permutation).
Collective = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Collectives of a program.

    Attributes:
        count: of them.
        received: bytes that a rank receives through them.
        by_op: the same by the ops that they serve.
    """

    count: int
    received: int
    by_op: Mapping[str, int]

    @property
    def largest(self) -> str:
        """The kind of op that the most bytes are for, by the name that XLA keeps of it."""
        name = max(self.by_op, key=lambda each: self.by_op[each], default="")
        return f"{name} {self.by_op[name]}" if name else ""

    def __str__(self) -> str:
        return f"{self.received} in {self.count}"


@dataclass(frozen=True, slots=True)
class Case:
    """One program by all partitioners; ``None`` where one refuses it, ``refused`` has why."""

    family: str
    phase: str
    mesh: str
    ours: Traffic | None
    gspmd: Traffic | None
    shardy: Traffic | None
    refused: str = ""

    @property
    def worse(self) -> bool:
        """True where a peer's rank receives less."""
        found = [peer.received for peer in (self.gspmd, self.shardy) if peer is not None]
        return self.ours is not None and any(self.ours.received > size for size in found)


def shape_of_family(family: str) -> str:
    """The known shape of a family with the fewest layers."""
    known = [name for name, config in SHAPES.items() if config["model_type"] == family]
    return min(known, key=lambda name: int(str(known_shape(name).get("num_hidden_layers", 99))))


def annotated(family: str, phase: str, mesh: str) -> Module:
    """The mini of a family with layouts, before it is partitioned."""
    module = build(known_shape(shape_of_family(family)), dtype("f32"), mini=True, phases=(phase,))
    run_pipeline(module, parse(f"{FRONT},{MESHES[mesh]}"))
    return module


def of_ours(module: Module) -> Traffic:
    """The collectives of our program of one rank."""
    made = clone_module(module)
    run_pipeline(made, parse(OURS_BY_BYTES if CP in module.mesh else OURS))
    (program,) = made.programs()
    every = [op for each in (program, *called(made, program)) for op in each.block]
    ops = [op for op in every if OPS[op.name].collective]
    return _sum((_group_of_ours(op), op.loc.scope.rpartition(".")[2]) for op in ops)


def _group_of_ours(op: Op) -> Collective:
    whole = max(sum(v.type.nbytes for v in side) for side in (op.operands, op.results))
    groups = groups_of(op)
    if op.name == "collective_permute":
        return op.name, whole if any(a != b for a, b in groups) else 0, 0
    return op.name, whole, len(groups[0])


def _ring(kind: str, whole: int, ranks: int) -> int:
    return _SHARE[kind] * whole * (ranks - 1) // ranks


def of_peer(module: Module, peer: str) -> Traffic:
    """The collectives of the HLO that XLA makes of the whole program."""
    text = whole_program(module, peer)
    return of_hlo(compiled_hlo(text, prod(module.mesh.values()), peer))


def of_hlo(text: str) -> Traffic:
    """The collectives of HLO text."""
    return _sum(_collectives(text))


def whole_program(module: Module, peer: str) -> str:
    """StableHLO of the whole program with the layouts that the interface states."""
    alone = Module(module.name, module.level, {}, {}, dict(module.interface))
    (program,) = module.programs()
    for each in (*called(module, program), program):
        alone.add(clone_function(each))
    _constrain(module, alone.function(program.name), peer)
    Legalize(min_rows=1).run(alone, Rewriter("legalize"))
    function = alone.function(program.name)
    ranks = prod(module.mesh.values())
    alone.meta = {PARTITIONS: str(ranks)}
    if peer == "shardy":
        axes = ", ".join(f'"{axis}"={size}' for axis, size in module.mesh.items())
        meshes = {shardy.MESHES: f"{{mesh = #sdy.mesh<[{axes}]>}}"}
        alone.meta[FRONTEND] = frontend_text(meshes)
    _annotate(module, function, peer)
    return emit_stablehlo(alone, function, locs=False)


def _annotate(module: Module, function: Function, peer: str) -> None:
    """Write the layout of each argument and result as the partitioner reads it."""
    results: dict[str, str] = {}
    for value in function.args:
        found = _layout(module, value.name or "", value.type.rank, peer, value.sharding)
        value.annotations = attrs_of(found)
    for index, (name, value) in enumerate(function.outputs):
        for key, text in _layout(module, name, value.type.rank, peer).items():
            results[f"hlo.result{index}.{key.removeprefix('hlo.')}"] = text
    function.annotations = attrs_of(results)


def _constrain(module: Module, function: Function, peer: str) -> None:
    """State the layouts of values that rules give, as a call that partitioners keep."""
    rewriter = Rewriter("constrain")
    for op in list(function.block):
        for value in op.results:
            stated, after = value.sharding, op.next
            if stated is None or stated.replicated or after is None:
                continue
            readers = list(value.users)
            (kept,) = rewriter.before(function, after).custom_call(
                "Sharding", [value], [value.type]
            )
            assert kept.op is not None
            if peer == "gspmd":
                kept.op.annotations = attrs_of({"hlo.sharding": tiles(stated.dims, module.mesh)})
            else:
                each = f"#sdy.sharding_per_value<[<@mesh, [{_axes(stated.dims)}]>]>"
                kept.op.annotations = attrs_of({FRONTEND: frontend_text({shardy.SHARDING: each})})
            for reader in readers:
                reader.set_operands(tuple([kept if x is value else x for x in reader.operands]))


def _layout(
    module: Module, name: str, rank: int, peer: str, own: Sharding | None = None
) -> dict[str, str]:
    row = module.interface.get(name)
    stated = own or (row.sharding if row is not None else None)
    dims = stated.dims if isinstance(stated, Sharding) and stated.dims else ((),) * rank
    if peer == "gspmd":
        return {"hlo.sharding": tiles(dims, module.mesh)}
    return {FRONTEND: frontend_text({shardy.SHARDING: f"#sdy.sharding<@mesh, [{_axes(dims)}]>"})}


def _axes(dims: Sequence[Sequence[str]]) -> str:
    """A layout as Shardy writes it: ``{"tp"}, {}``."""
    return ", ".join("{" + ", ".join(f'"{axis}"' for axis in split) + "}" for split in dims)


def tiles(dims: Sequence[Sequence[str]], mesh: Mapping[str, int]) -> str:
    """A layout as HLO writes it: ``{devices=[2,1,4]<=[8] last_tile_dim_replicate}``."""
    used = [axis for split in dims for axis in split]
    if not used:
        return "{replicated}"
    order = [*used, *[axis for axis in mesh if axis not in used]]
    counts = [prod(mesh[axis] for axis in split) for split in dims]
    rest = prod(mesh.values()) // prod(counts)
    sizes, names = [*mesh.values()], [*mesh]
    turned = [names.index(axis) for axis in order]
    devices = f"<=[{','.join(map(str, sizes))}]T({','.join(map(str, turned))})"
    if turned == sorted(turned):
        devices = f"<=[{prod(sizes)}]"
    last = " last_tile_dim_replicate" if rest > 1 else ""
    shown = ",".join(map(str, [*counts, *([rest] if rest > 1 else [])]))
    return f"{{devices=[{shown}]{devices}{last}}}"


def compiled_hlo(text: str, ranks: int, peer: str) -> str:
    """The HLO text of one device, after XLA's passes."""
    import jax
    import numpy as np
    from jax._src.lib import xla_client
    from jax.extend import backend
    from jax.extend.mlir import ir
    from jax.interpreters.mlir import make_ir_context

    options: Any = xla_client.CompileOptions()
    build = options.executable_build_options
    options.env_option_overrides = list(QUICK.items())
    options.num_replicas = build.num_replicas = 1
    options.num_partitions = build.num_partitions = ranks
    build.use_spmd_partitioning, build.use_shardy_partitioner = True, peer == "shardy"
    ids = np.arange(ranks).reshape(1, ranks)
    build.device_assignment = xla_client.DeviceAssignment.create(ids)
    with make_ir_context():
        module = ir.Module.parse(text)
        devices = xla_client.DeviceList(tuple(jax.devices("cpu")[:ranks]))
        program = backend.get_backend("cpu").compile_and_load(module, devices, options)
    return "\n".join(each.to_string() for each in program.hlo_modules())


def _collectives(text: str) -> Iterator[tuple[Collective, str]]:
    """The collectives of HLO text, and the op that each serves."""
    for line in text.splitlines():
        found = _COLLECTIVE.search(line)
        if found is None:
            continue
        types, kind, rest = found.groups()
        kind = kind.replace("-", "_")
        result = _bytes(types)
        ranks = _group(rest)
        whole = result * ranks if kind == "reduce_scatter" else result
        named = re.search(r'op_name="([\w-]+)', rest)
        yield (kind, whole, ranks), named[1] if named else "-"


def _bytes(types: str) -> int:
    sizes = [
        int(re.sub(r"\D", "", name) or 8) // 8 * prod(map(int, filter(None, dims.split(","))))
        for name, dims in _ARRAY.findall(types)
    ]
    return sum(sizes)


def _group(rest: str) -> int:
    """Ranks of a group: of a list, of ``[groups,ranks]<=[...]``, or of axes of a mesh."""
    if "source_target_pairs=" in rest:
        return 0
    short = re.search(r"replica_groups=\[(\d+),(\d+)\]<=", rest)
    if short:
        return int(short[2])
    axes = re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", rest)
    if axes:
        sizes = dict(part.split("=") for part in axes[1].split(","))
        return prod(int(sizes[name]) for name in axes[2].split(","))
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", rest)
    if listed is None:
        raise ValueError(f"replica groups of another form: {rest[:200]}")
    return len(listed[1].split(","))


def _sum(found: Iterable[tuple[Collective, str]]) -> Traffic:
    count, by_op = 0, Counter[str]()
    for (kind, whole, ranks), name in found:
        count += 1
        by_op[name] += whole if kind == "collective_permute" else _ring(kind, whole, ranks)
    return Traffic(count, by_op.total(), dict(by_op))


def measured(family: str, phase: str, mesh: str) -> Case:
    """One case; what a partitioner raises is said, not counted."""
    found: dict[str, Traffic | None] = {}
    refused = ""
    try:
        module = annotated(family, phase, mesh)
    except Exception as error:
        return Case(family, phase, mesh, None, None, None, _first_line(error))
    for name in ("ours", *PEERS):
        try:
            found[name] = of_ours(module) if name == "ours" else of_peer(module, name)
        except Exception as error:
            found[name], refused = None, f"{refused} {name}: {_first_line(error)}".strip()
    return Case(family, phase, mesh, found["ours"], found["gspmd"], found["shardy"], refused)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def main() -> None:
    """Print a line a case, and the cases in which a peer's rank receives less."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="families, with commas; by default all")
    parser.add_argument("--mesh", choices=[*MESHES], help="one mesh; by default all")
    parser.add_argument("--json", type=Path, help="write rows of JSON here")
    given = parser.parse_args()
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
    families = given.only.split(",") if given.only else [*FAMILIES]
    cases: list[Case] = []
    for mesh in [given.mesh] if given.mesh else MESHES:
        for family in families:
            for phase in ("prefill", "decode"):
                cases.append(measured(family, phase, mesh))
                case = cases[-1]
                columns = [str(part or "-") for part in (case.ours, case.gspmd, case.shardy)]
                mark = "WORSE " if case.worse else case.refused
                if case.shardy is not None:
                    mark += f"most of shardy: {case.shardy.largest}"
                print(f"{mesh:12} {family:14} {phase:8}", *[f"{c:>18}" for c in columns], mark)
    worse = [case for case in cases if case.worse]
    print(f"{len(cases)} cases: a rank of ours receives more in {len(worse)}")
    if given.json:
        write_whole(given.json, json.dumps([asdict(case) for case in cases], indent=1).encode())


if __name__ == "__main__":
    main()
