"""Write a bill of materials in CycloneDX 1.6: what graphgen runs on, and what its tree holds.

    make sbom

Python packages are those of ``requirements/runtime.txt``, with the licences that the installed ones
state and the hashes of ``requirements/hashed``; the vendored JavaScript is named with its version.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from graphgen.json_value import Json
from graphgen.version import __version__
from tests.hashed_requirements import ROOT

PAGES: Final = ROOT / "graphgen" / "pages"
_PIN = re.compile(r"^([\w.-]+)==([\w.]+)")
_VENDORED = re.compile(r"npm package `(?P<name>[^`]+)`, version (?P<version>[\d.]+)")


def packages(name: str = "runtime") -> dict[str, tuple[str, list[str]]]:
    """The version and the SHA-256 hashes of each package of a file of hashed requirements."""
    text = (ROOT / "requirements" / "hashed" / f"{name}.txt").read_text("utf-8")
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        if pin := _PIN.match(entry):
            found[pin[1]] = pin[2], re.findall(r"--hash=sha256:([0-9a-f]{64})(?!\S)", entry)
    return found


def licence_of(package: str) -> str:
    """The licence that an installed package states; empty without one."""
    try:
        facts = metadata(package)
    except PackageNotFoundError:
        return ""
    fields = facts.json
    stated = str(fields.get("license_expression") or "")
    classified = [c for c in facts.get_all("Classifier") or () if c.startswith("License :: ")]
    # An old field may hold the whole text.
    short = str(fields.get("license") or "").strip().partition("\n")[0]
    return stated or (classified[0].rpartition(" :: ")[2] if classified else short[:80])


def component(package: str, version: str, hashes: list[str]) -> Json:
    """A Python package."""
    licence = licence_of(package)
    files: Json = [
        {"type": "distribution", "url": f"https://pypi.org/project/{package}/{version}/",
         "hashes": [{"alg": "SHA-256", "content": value} for value in hashes]}
    ]  # fmt: skip
    return {
        "type": "library",
        "name": package,
        "version": version,
        "purl": f"pkg:pypi/{canonicalize_name(package)}@{version}",
        "licenses": [{"license": {"name": licence}}] if licence else [],
        "externalReferences": files,
    }


def vendored() -> list[Json]:
    """The JavaScript of others that pages hold."""
    return [_library(note) for note in sorted(PAGES.glob("*.VERSION.md"))]


def _library(note: Path) -> Json:
    text = note.read_text("utf-8")
    found, file = _VENDORED.search(text), re.match(r"`([^`]+)`", text)
    assert found is not None, f"{note.name} names no version"
    assert file is not None, f"{note.name} names no file"
    name, version = found["name"], found["version"]
    digest = hashlib.sha256((PAGES / file[1]).read_bytes()).hexdigest()
    stated = re.search(r"([A-Z][\w.-]+(?: or [\w.-]+)*), see `[\w.]+LICENSE`", text)
    assert stated is not None, f"{note.name} names no licence"
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:npm/{name.replace('@', '%40')}@{version}",
        "licenses": [{"expression": stated[1].replace(" or ", " OR ")}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def bill() -> Json:
    """The bill of materials."""
    own: Json = {
        "type": "application",
        "name": "graphgen",
        "version": __version__,
        "purl": f"pkg:pypi/graphgen@{__version__}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    rows = [component(name, *facts) for name, facts in sorted(packages().items())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [*rows, *vendored()],
    }


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
    print()
