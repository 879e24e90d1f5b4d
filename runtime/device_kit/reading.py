"""The results of a kit, read: verdicts, contradictions and measured times together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.json_value import OTHER_FORM, Json, JsonError, parse_json
from graphgen.limits import JSON_BYTES
from graphgen.runtime.device_kit.contradictions import Contradiction, contradictions
from graphgen.runtime.device_kit.evidence_file import add_evidence, evidence_of
from graphgen.runtime.device_kit.figures import Figure, figures
from graphgen.runtime.device_kit.verdicts import CaseVerdict, verdicts
from graphgen.runtime.kit_runner.kit_types import FORMAT, RESULTS, Results
from graphgen.targets import accelerator_names

T = TypeVar("T")
_HELP = "run.py of a kit writes results: graphgen device-kit -o kit.tar.gz"


def read_results(path: Path) -> Results:
    """The results in a file.

    Raises:
        GraphgenError: GG1004 if it cannot be read, is something else, or was changed in form.
    """
    try:
        content = parse_json(read_regular(path, JSON_BYTES))
        _require(content)
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror or error}") from error
    except JsonError as error:
        raise _refused(path, f"it is not JSON, or is cut off: {error}") from error
    except OTHER_FORM as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise _refused(path, what) from error
    return cast(Results, content)


def _refused(path: Path, why: str) -> GraphgenError:
    return GraphgenError("GG1004", f"results '{path}' cannot be used: {why}", help=_HELP)


def _require(content: object) -> None:
    """Check the form (ValueError, TypeError, KeyError)."""
    top = _mapping(content, "the file")
    if top.get("kind") != RESULTS:
        raise ValueError(f"it is not '{RESULTS}', its kind is {top.get('kind')!r}")
    if top.get("format") != FORMAT:
        raise ValueError(f"its format is {top.get('format')!r}, this graphgen reads {FORMAT}")
    if top["target"] not in accelerator_names():
        raise ValueError(
            f"its target {top['target']!r} is none of {', '.join(accelerator_names())}"
        )
    facts = _mapping(top["facts"], "facts")
    for key in ("compiler", "driver", "instance", "execution"):
        _of(str, facts[key], f"facts.{key}")
    for key in ("lnc", "missing"):
        _of(int, top[key], key)
    for at, case in enumerate(_list(top["cases"], "cases")):
        _require_case(case, f"cases[{at}]")


def _require_case(content: object, where: str) -> None:
    case = _mapping(content, where)
    _of(str, case["name"], f"{where}.name")
    _number(case["bound_s"], f"{where}.bound_s")
    subject = _mapping(case["subject"], f"{where}.subject")
    for key in ("op", "dtype", "expects"):
        _of(str, subject[key], f"{where}.subject.{key}")
    for rule in _list(subject["rules"], f"{where}.subject.rules"):
        row = _mapping(rule, f"{where}.subject.rules")
        for key in ("rule", "severity", "code", "trust", "source"):
            _of(str, row[key], f"{where}.subject.rules.{key}")
    compilation = _mapping(case["compilation"], f"{where}.compilation")
    for key in ("end", "log_tail"):
        _of(str, compilation[key], f"{where}.compilation.{key}")
    _strings(compilation["codes"], f"{where}.compilation.codes")
    execution = _mapping(case["execution"], f"{where}.execution")
    for key in ("end", "why"):
        _of(str, execution[key], f"{where}.execution.{key}")
    for item in _list(execution["times_s"], f"{where}.execution.times_s"):
        _number(item, f"{where}.execution.times_s")
    for item in _list(execution["outputs"], f"{where}.execution.outputs"):
        row = _mapping(item, f"{where}.execution.outputs")
        _of(bool, row["right"], f"{where}.execution.outputs.right")


def _mapping(value: object, where: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", _of(dict, value, where))


def _list(value: object, where: str) -> Sequence[object]:
    return cast("Sequence[object]", _of(list, value, where))


def _of(kind: type[T], value: object, where: str) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{where} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _number(value: object, where: str) -> None:
    if not isinstance(value, int | float):
        raise TypeError(f"{where} is not a number")


def _strings(value: object, where: str) -> None:
    for item in _list(value, where):
        _of(str, item, where)


@dataclass(frozen=True, slots=True)
class KitReading:
    """The results of a kit and what they say.

    Attributes:
        results: as they were written.
        verdicts: of each case.
        contradictions: as issues.
        evidence: rows of rules, of uses and of times.
        figures: measured rates.
    """

    results: Results
    verdicts: Sequence[CaseVerdict]
    contradictions: Sequence[Contradiction]
    evidence: Mapping[str, Sequence[Mapping[str, Json]]]
    figures: Sequence[Figure]

    @property
    def counts(self) -> Mapping[str, int]:
        """Cases by the kind of their verdict."""
        return Counter(item.kind for item in self.verdicts)

    def keep(self, path: Path) -> None:
        """Add the evidence to a file (GG0704, GG1004)."""
        rows = {name: [dict(row) for row in items] for name, items in self.evidence.items()}
        add_evidence(path, rows, self.results)


def read_kit_results(path: Path) -> KitReading:
    """Read the results of a kit (GG1004)."""
    results = read_results(path)
    found = verdicts(results["cases"])
    measured = figures(results)
    evidence = evidence_of(found, results, measured)
    return KitReading(results, found, contradictions(found, results), evidence, measured)
