"""Reads the results of a kit, which come from other machines: checked before they are believed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.device_kit.runner.kit_types import FORMAT, RESULTS, Results
from graphgen.targets import accelerator_names

T = TypeVar("T")
_HELP = "run.py of a kit writes results: graphgen device-kit -o kit.tar.gz"


def read_results(path: Path) -> Results:
    """The results in a file.

    Raises:
        GraphgenError: GG1004 if it cannot be read, is something else, or was changed in form.
    """
    try:
        content = json.loads(path.read_bytes())
        _require(content)
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _refused(path, f"it is not JSON, or is cut off: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
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
