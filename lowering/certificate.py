"""Certificates of proofs about compilations, checked again from the files alone.

A certificate is JSON beside the programs. It names the module before and after the passes and every
program's file, each with its SHA-256; it states the relation of their interfaces, the verdict on
each output and state, the rules that were used, and what none of it covers. To check it is to prove
all again from these files: no pass runs, and nothing that passes record is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import cast

from graphgen.atomic_write import plain_name, read_inside, write_inside, write_whole
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.json_value import Json, JsonError, parse_json
from graphgen.limits import JSON_BYTES, TEXT_BYTES
from graphgen.lowering.open import Source, open_source
from graphgen.lowering.read_back import first_difference
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import RefinementProof
from graphgen.passes.proof.verdict_json import interface_json, not_covered, verdicts
from graphgen.read_file import read_file
from graphgen.text import print_module
from graphgen.version import __version__

FORM = "graphgen proof 1"
ENDING = ".certificate.json"
SAME = "the same, op by op"
_HELP = "graphgen lower --prove and graphgen compile --prove write a new one"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a certificate, all inside of its folder.

    Attributes:
        home: the folder.
        source: name of the module before the passes.
        target: name of the module after them.
        programs: names of the files of programs, by program.
    """

    home: Path
    source: str
    target: str
    programs: Mapping[str, str]


def write_certificate(
    source: Module, target: Module | None, files: CertificateFiles, name: str
) -> tuple[Path, RefinementProof]:
    """Prove a compilation from its files, and write the certificate and the modules.

    Args:
        source: before the passes.
        target: after them; ``None`` where its file is there.
        files: those of programs are there.
        name: of the certificate.

    Raises:
        GraphgenError: GG0704, and GG0710 for a program's file that is not the program.
    """
    for file, module in ((files.source, source), (files.target, target)):
        if module is not None:
            text = print_module(module).encode()
            write_inside(files.home, files.home / file, text, parents=True)
    content, proof = _content(files)
    for row in _rows(content["programs"]):
        if row["read back"] != SAME:
            raise _refused(files.home / str(row["file"]), str(row["read back"]))
    path = files.home / name
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
    return path, proof


def check_certificate(path: Path) -> RefinementProof:
    """Prove again, from the files alone, what a certificate states.

    Args:
        path: of the certificate; its files are in the same folder or below.

    Raises:
        GraphgenError: GG0705 if a file cannot be read; GG0710 if it is not a certificate, a file is
            another one than it names, or the proof gives anything else than it states.
    """
    try:
        stated = parse_json(read_file(path, JSON_BYTES), unique=True, finite=True)
    except JsonError as error:
        raise _refused(path, f"it is not JSON: {error.reason}") from error
    given = _object(stated)
    if given.get("form") != FORM:
        raise _refused(path, f"it is not a certificate of the form '{FORM}'")
    files = _files(path, given)
    # Hashes first: a damaged file need not be proved.
    for row in (_object(given["source"]), _object(given["target"]), *_rows(given["programs"])):
        _require_hash(files.home, row)
    found, proof = _content(files)
    wrong = _first_other(given, found, "")
    if wrong:
        raise _refused(path, wrong)
    return proof


def _content(files: CertificateFiles) -> tuple[dict[str, Json], RefinementProof]:
    """All that a certificate states, made from the files."""
    source, target = _module(files, files.source), _module(files, files.target)
    proof = prove_refinement(source, target)
    content: dict[str, Json] = {
        "form": FORM,
        "graphgen": __version__,
        "source": _file(files, files.source),
        "target": _file(files, files.target),
        "options": {key: target.meta[key] for key in sorted(target.meta)},
        "ranks": target.ranks,
        "programs": [
            {
                "program": name,
                **_file(files, file),
                "read back": _read_back(files, target, name, file),
            }
            for name, file in sorted(files.programs.items())
        ],
        "interface": interface_json(target),
        **verdicts(proof),
        "not covered": [*not_covered(target), *_without_file(target, files)],
    }
    return {**content, "sha256": _digest(content)}, proof


def _without_file(target: Module, files: CertificateFiles) -> list[str]:
    missing = [f.name for f in target.programs() if f.name not in files.programs]
    return [f"a file of the program {name}" for name in missing]


def _digest(content: Mapping[str, object]) -> str:
    text = json.dumps({**content, "sha256": None}, sort_keys=True)
    return sha256(text.encode()).hexdigest()


def _read_back(files: CertificateFiles, target: Module, name: str, file: str) -> str:
    if name not in target.functions:
        return f"the module has no program {name}"
    read = open_source(Source(file, _bytes(files.home, file)))
    return first_difference(target, target.function(name), read) or SAME


def _file(files: CertificateFiles, name: str) -> dict[str, Json]:
    return {"file": name, "sha256": sha256(_bytes(files.home, name)).hexdigest()}


def _module(files: CertificateFiles, name: str) -> Module:
    return open_source(Source(name, _bytes(files.home, name)))


def _bytes(home: Path, name: str) -> bytes:
    try:
        return read_inside(home, home / plain_name(name), TEXT_BYTES)
    except OSError as error:
        what = f"cannot read the file: {error.strerror or error}"
        raise GraphgenError("GG0705", what, where=str(home / name)) from error


# ---- what is stated ------------------------------------------------------------------------------


def _files(path: Path, given: Mapping[str, object]) -> CertificateFiles:
    """The files that a certificate names (GG0710)."""
    try:
        rows = _rows(given["programs"])
        programs = {str(row["program"]): plain_name(row["file"]) for row in rows}
        source, target = (plain_name(_object(given[key])["file"]) for key in ("source", "target"))
    except (KeyError, ValueError) as error:
        raise _refused(path, f"it names no files: {error}") from error
    return CertificateFiles(path.parent, source, target, programs)


def _object(value: object) -> Mapping[str, object]:
    """A JSON object; an empty one in the place of anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _rows(value: object) -> Sequence[Mapping[str, object]]:
    rows = cast("Sequence[object]", value) if isinstance(value, list) else ()
    return [_object(row) for row in rows]


def _require_hash(home: Path, row: Mapping[str, object]) -> None:
    name = plain_name(row["file"])
    if sha256(_bytes(home, name)).hexdigest() != row.get("sha256"):
        raise _refused(home / name, "the file is not the one that the certificate names")


def _first_other(stated: object, found: object, place: str) -> str:
    """The first place at which a certificate states something else than the proof gives."""
    if isinstance(stated, dict) and isinstance(found, dict):
        ours = cast("Mapping[str, object]", stated)
        theirs = cast("Mapping[str, object]", found)
        for key in dict.fromkeys((*theirs, *ours)):
            where = f"{place}/{key}"
            if key not in ours or key not in theirs:
                return f"{where} is {'missing' if key not in ours else 'not of a certificate'}"
            wrong = _first_other(ours[key], theirs[key], where)
            if wrong:
                return wrong
        return ""
    if isinstance(stated, list) and isinstance(found, list):
        given, made = cast("Sequence[object]", stated), cast("Sequence[object]", found)
        if len(given) != len(made):
            return f"{place} has {len(given)} entries, the proof gives {len(made)}"
        pairs = enumerate(zip(given, made, strict=True))
        return next((w for n, (a, b) in pairs if (w := _first_other(a, b, f"{place}/{n}"))), "")
    plain = (str, bool, int, type(None))
    if (
        not isinstance(found, plain)
        or isinstance(stated, bool) != isinstance(found, bool)
        or stated != found
    ):
        return f"{place} is not what the proof gives"
    return ""


def _refused(path: Path, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0710", f"the certificate does not hold: {why}", where=str(path), help=_HELP
    )
