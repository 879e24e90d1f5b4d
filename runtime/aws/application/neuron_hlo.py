"""HLO files of an application's programs for a Neuron target, as AWS's tools lay them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.lowering.hlo import hlo_chunks
from graphgen.runtime.aws.application.base_model import PHASES, ModelWrapper
from graphgen.runtime.buckets import ProgramTable
from graphgen.runtime.model import BuiltModel


def neuron_files(
    built: BuiltModel, models: Sequence[ModelWrapper], *, debug: bool
) -> Mapping[str, Sequence[bytes | memoryview]]:
    """Content by path: ``hlo/TAG/_tp0_bkN/model/graph.hlo``, and the compiler's arguments.

    N counts the programs of a tag by batch and bucket.

    Args:
        built: the module for the target.
        models: the sub-models.
        debug: write op types, op names and source lines into the HLO.

    Raises:
        GraphgenError: GG0401 for a program that HLO cannot express.
    """
    found: dict[str, Sequence[bytes | memoryview]] = {}
    table = ProgramTable(built.module)
    for model in models:
        phase = PHASES[model.tag]
        sizes = sorted(
            (size for size in table.sizes if size.phase == phase),
            key=lambda size: (size.batch, size.bucket),
        )
        for number, size in enumerate(sizes):
            home = f"hlo/{model.tag}/_tp0_bk{number}"
            function = built.module.function(size.name)
            found[f"{home}/model/graph.hlo"] = hlo_chunks(built.module, function, metadata=debug)
            found[f"{home}/compiler_args.txt"] = [f"{model.compiler_args}\n".encode()]
    return found
