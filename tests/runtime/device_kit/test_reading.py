"""Results of kits as they come from others: verdicts, bad files, and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.check.evidence import read_evidence
from graphgen.runtime.device_kit.reading import read_kit_results


def case(name: str, expects: str, end: str, codes: tuple[str, ...] = (), **more: Any) -> Any:
    """The result of a case; ``severity`` and ``code`` are those of its rule."""
    right = more.get("right")
    severity = {"refused": "error", "warned": "warn"}.get(expects, "")
    return {
        "name": name,
        "subject": {
            "op": "dot", "dtype": name.rpartition("/")[2], "expects": expects,
            "rules": [{
                "rule": more.get("rule", "a-rule"), "severity": severity,
                "code": more.get("code", ""), "trust": "official", "source": "a page",
            }],
        },
        "hlo": "hlo/1.pb",
        "bound_s": 0.001,
        "compilation": {
            "end": end, "status": 70, "seconds": 1.0, "codes": list(codes), "log_tail": "the end",
            "neff_bytes": 0, "neff_sha256": "",
        },
        "execution": {
            "end": "not run" if right is None else "ran", "why": "", "times_s": [0.002],
            "outputs": [] if right is None else [{
                "name": "y", "right": right, "wrong": 1, "count": 3, "worst": 2.0, "at": 1,
                "got": "1.0", "want": "2.0", "note": "",
            }],
        },
    }  # fmt: skip


def results(*cases: Any) -> Any:
    return {
        "kind": "graphgen device kit results", "format": 1, "kit": "abc", "graphgen": "1",
        "target": "trn1", "lnc": 1, "missing": 0, "cases": list(cases),
        "facts": {
            "compiler": "2.27.1.0", "driver": "2.2", "instance": "trn1.2xlarge", "python": "3.10.1",
            "packages": {}, "execution": "nrt", "why_compile_only": "",
        },
    }  # fmt: skip


# What is expected, the compiler's end and the numbers, and the verdict.
VERDICTS = (
    (case("op/a/f32", "refused", "refused", ("NCC_E1",), code="NCC_E1/NCC_E2"), "confirms", ""),
    (case("op/a/f32", "refused", "refused", ("NCC_E9",)), "confirms", ""),
    (case("op/a/f32", "refused", "refused", ("NCC_E9",), code="NCC_E1"), "contradicts", "NCC_E9"),
    (case("op/a/f32", "refused", "compiled"), "contradicts", "compiles"),
    (case("op/a/f32", "refused", "compiled", right=False), "contradicts", "wrong numbers"),
    (case("op/a/f32", "warned", "compiled", right=False), "confirms", ""),
    (case("op/a/f32", "warned", "refused", ("NCC_E1",)), "contradicts", "refused"),
    (case("op/a/f32", "accepted", "compiled", right=True), "confirms", ""),
    (case("op/a/f32", "accepted", "compiled", right=False), "contradicts", "expected 2.0"),
    (case("op/a/f32", "accepted", "bad option"), "contradicts", "refused"),
    (case("op/a/f32", "unknown", "refused", ("NCC_E1",)), "learned", ""),
    (case("op/a/f32", "accepted", "time-out"), "unsure", ""),
    (case("op/a/f32", "accepted", "internal error", ("NCC_ITEN404",)), "unsure", ""),
)


@pytest.mark.parametrize("at", range(len(VERDICTS)))
def test_verdicts_follow_from_prediction_and_outcome(at: int, tmp_path: Path):
    given, kind, said = VERDICTS[at]
    file = tmp_path / "results.json"
    file.write_text(json.dumps(results(given)))
    reading = read_kit_results(file)
    assert [item.kind for item in reading.verdicts] == [kind]
    assert len(reading.contradictions) == (kind == "contradicts")
    for item in reading.contradictions:
        assert said in f"{item.title} {item.body}"
        assert "the end" in item.body


@pytest.mark.parametrize(
    ("instance", "said"), [("trn1.2xlarge", "trn1.2xlarge"), ("", "no instance")]
)
def test_an_issue_says_on_what_instance_it_is_seen(instance: str, said: str, tmp_path: Path):
    content = results(case("op/a/f32", "refused", "compiled"))
    content["facts"]["instance"] = instance
    file = tmp_path / "results.json"
    file.write_text(json.dumps(content))
    (issue,) = read_kit_results(file).contradictions
    assert f"\n* target trn1, LNC 1, {said}\n" in issue.body


def without(*path: str | int) -> Callable[[Any], object]:
    def change(content: Any) -> object:
        *inner, last = path
        for key in inner:
            content = content[key]
        return content.pop(last)

    return change


BAD: dict[str, tuple[Callable[[Any], object] | str, str]] = {
    "cut": ('{"kind": "graphgen dev', "it is not JSON, or is cut off"),
    "list": ("[]", "the file is a list, not a dict"),
    "foreign": ('{"kind": "else"}', "its kind is 'else'"),
    "newer": (lambda content: content.update(format=2), "its format is 2, this graphgen reads 1"),
    "target": (lambda content: content.update(target="h100"), "'h100' is none of inf2, trn1"),
    "facts": (without("facts", "compiler"), "'compiler' is missing"),
    "case": (without("cases", 0, "compilation"), "'compilation' is missing"),
    "rule": (without("cases", 0, "subject", "rules", 0, "trust"), "'trust' is missing"),
    "times": (
        lambda content: content["cases"][0]["execution"].update(times_s=["fast"]),
        "cases[0].execution.times_s is not a number",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_results_are_one_clear_error(name: str, tmp_path: Path):
    change, said = BAD[name]
    content = results(case("op/a/f32", "accepted", "compiled"))
    file = tmp_path / "results.json"
    if isinstance(change, str):
        file.write_text(change)
    else:
        change(content)
        file.write_text(json.dumps(content))
    with pytest.raises(GraphgenError) as caught:
        read_kit_results(file)
    assert caught.value.code == "GG1004"
    assert said in str(caught.value)


def test_rates_are_less_the_launch(tmp_path: Path):
    file = tmp_path / "results.json"
    launch = case("op/a/f32", "accepted", "compiled", right=True)
    launch["execution"]["times_s"] = [0.0001]
    memory = case("rate/memory", "accepted", "compiled", right=True)
    memory["execution"]["times_s"] = [0.5, 0.0011]
    wrong = case("rate/products/bf16", "accepted", "compiled", right=False)
    file.write_text(json.dumps(results(launch, memory, wrong)))
    first, second = read_kit_results(file).figures
    assert (first.name, round(first.measured)) == ("launch, us", 100)
    assert (second.name, second.published) == ("memory, GB/s", 410.0)
    assert second.measured == pytest.approx(2 * 8192**2 / 1e9 / 0.001)


def test_evidence_of_two_runs_is_joined(tmp_path: Path):
    file, evidence = tmp_path / "results.json", tmp_path / "evidence.json"
    good = case("op/a/f32", "refused", "refused", ("NCC_E1",))
    bad = case("op/b/f32", "refused", "compiled")
    for content in (results(good), results(bad)):
        file.write_text(json.dumps(content))
        read_kit_results(file).keep(evidence)
    (row,) = read_evidence(evidence).rules.values()
    assert (row.verdict, row.trust) == (
        "mixed",
        "device: mixed by neuronx-cc 2.27.1.0 (1 of 2 cases)",
    )
    evidence.write_text("{}")
    with pytest.raises(GraphgenError, match="is not an evidence file"):
        read_kit_results(file).keep(evidence)
    assert evidence.read_text() == "{}"
