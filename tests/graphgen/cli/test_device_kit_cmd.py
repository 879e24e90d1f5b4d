"""``graphgen device-kit`` and ``graphgen check --evidence``."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from tests.graphgen.cli.conftest import done, error, facts, graphgen
from tests.runtime.device_kit.test_reading import case, results

ADD = """\
module @m level=target {
}

func @f {
  arg %x : f64[4]
  %y = add(%x, %x) : f64[4]
  return y = %y
}
"""


def test_a_kit_is_written_whole_and_results_are_read(tmp_path: Path):
    kit = tmp_path / "kit.tar.gz"
    said = facts("device-kit", "-o", kit, "--target", "trn2", "--only", "op/add/f32")
    assert said["cases"] == {"trn2": 1}
    with tarfile.open(kit) as archive:
        names = archive.getnames()
    assert {"graphgen-device-kit/run.py", "graphgen-device-kit/manifest.json"} <= {*names}
    assert error("device-kit", "write", "-o", kit, "--only", "nothing").startswith("error[GG0705]")
    assert error("device-kit", "-o", kit, "--target", "h100").startswith("error[GG0302]")

    file, evidence = tmp_path / "results.json", tmp_path / "evidence.json"
    bad = case("op/add/f64", "refused", "compiled", right=True, rule="dtype f64")
    file.write_text(json.dumps(results(bad, case("op/dot/f32", "accepted", "compiled"))))
    words = ("-o", evidence, "--issues", tmp_path / "issues")
    text = done("device-kit", "read", file, *words).stdout
    assert "2 cases on trn1.2xlarge, neuronx-cc 2.27.1.0, executed by nrt" in text
    assert "trn1: dot of f64: right, against dtype f64" in text
    (issue,) = (tmp_path / "issues").iterdir()
    assert issue.read_text().startswith("# trn1: dot of f64: right, against dtype f64\n")
    found = facts("device-kit", "read", file)
    assert [item["hlo"] for item in found["contradictions"]] == ["hlo/1.pb"]
    assert {row["rule"] for row in found["rules"]} == {"dtype f64", "a-rule"}
    assert error("device-kit", "read", tmp_path / "none.json").startswith("error[GG1004]")


def test_check_weighs_findings_by_evidence(tmp_path: Path):
    module, file, evidence = tmp_path / "m.gg", tmp_path / "results.json", tmp_path / "e.json"
    module.write_text(ADD)
    bad = case("op/add/f64", "refused", "compiled", right=True, rule="dtype f64")
    file.write_text(json.dumps(results(bad)))
    done("device-kit", "read", file, "-o", evidence)
    assert graphgen("check", module, "--target", "trn1").exit_code == 1
    weighed = facts("check", module, "--target", "trn1", "--evidence", evidence)
    assert {(item["severity"], item["trust"]) for item in weighed["findings"]} == {
        ("warn", "device: contradicted by neuronx-cc 2.27.1.0 (0 of 1 case)")
    }
    # Another target's rules are as they were.
    assert graphgen("check", module, "--target", "trn2", "--evidence", evidence).exit_code == 1
    rate = case("rate/memory", "accepted", "compiled", right=True)
    file.write_text(json.dumps(results(rate)))
    done("device-kit", "read", file, "-o", evidence)
    said = graphgen("cost", module, "--target", "trn1", "--evidence", evidence).stderr
    assert "measured by a device kit, memory, GB/s: 67.1 (410.0 published)" in said
    assert error("check", module, "--evidence", file).startswith("error[GG1004]")
