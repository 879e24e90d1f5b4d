"""HLO of a library written in PyHLO goes through inspect, import, raising, tensor parallelism."""

from __future__ import annotations

from pathlib import Path

import graphgen as gg
from graphgen.lowering.pyhlo import HloScribe
from tests.graphgen.cli.conftest import done, facts
from tests.runtime.aws_tnx.test_decoder import decoder


def test_a_decoder_is_imported_raised_split_and_compared(tmp_path: Path):
    dump, source, split = (tmp_path / name for name in ("dec.pb", "dec.gg", "two.gg"))
    proto = HloScribe()(decoder(1, 6, 1)).module_proto
    dump.write_bytes(proto.SerializeToString())
    assert len(facts("inspect", dump)["programs"]) == 1
    weights = [f"--weight=p{number}" for number in range(6, 17)]
    found = done("import", dump, *weights, "-o", source).stderr
    assert "found 2 rms_norm, 2 attention" in found
    done("opt", source, "-p", "default{tp=2,target=trn2}", "-o", split)
    module = gg.parse(split.read_text(encoding="utf-8"))
    assert module.interface["p2"].physical.dims == (6, 2, 2)
    assert [op.name for op in module.programs()[0].ops].count("all_reduce") == 2
    assert done("equiv", source, split).stdout.startswith("equal: ")
    assert "FAILED" not in done("validate", source, "-p", "default{tp=2}", "--no-rewrites").stdout
