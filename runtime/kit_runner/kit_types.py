"""The JSON of a kit's manifest and of its results."""

from __future__ import annotations

from typing import TypedDict

KIT, RESULTS, FORMAT = "graphgen device kit", "graphgen device kit results", 1
MANIFEST = "manifest.json"
# The verdict of the rules on a case, from the worst to the best; `unknown` promises nothing.
REFUSED, WARNED, UNKNOWN, ACCEPTED = "refused", "warned", "unknown", "accepted"


class RuleNote(TypedDict):
    """A rule that speaks about a case."""

    rule: str
    severity: str
    code: str
    trust: str
    source: str


class Subject(TypedDict):
    """The claim that a case tests.

    ``op`` and ``dtype`` name the use of an op that it is about, both empty for whole programs;
    ``expects`` is one of the words above, ``rules`` those that say so.
    """

    op: str
    dtype: str
    expects: str
    rules: list[RuleNote]


class KitTensor(TypedDict):
    """An argument or a result: row-major, little-endian; ``data`` is empty where none is known.

    An element counts as right if it is within ``atol + rtol * |expected|``.
    """

    name: str
    dtype: str
    dims: list[int]
    data: str
    rtol: float
    atol: float


class KitCase(TypedDict):
    """One program for one target.

    ``words`` are the compiler's arguments in a folder that holds the HLO as ``graph.hlo``.
    ``aliases`` says which argument a result takes the place of. ``why_not_run`` is empty for a
    program that is executed. ``bound_s`` is the time by the published figures; 0 for none.
    """

    name: str
    subject: Subject
    hlo: str
    words: list[str]
    inputs: list[KitTensor]
    outputs: list[KitTensor]
    aliases: dict[str, str]
    why_not_run: str
    bound_s: float


class TargetCases(TypedDict):
    """The cases of a target, and its cores to a logical one."""

    lnc: int
    cases: list[KitCase]


class Manifest(TypedDict):
    """All of a kit; ``files`` has the SHA-256 of every other file."""

    kind: str
    format: int
    graphgen: str
    targets: dict[str, TargetCases]
    files: dict[str, str]


class KitCompilation(TypedDict):
    """The end of a compiler: ``end`` is ``compiled``, ``refused`` or another word of its own."""

    end: str
    status: int
    seconds: float
    codes: list[str]
    log_tail: str
    neff_bytes: int
    neff_sha256: str


class Comparison(TypedDict):
    """A result beside the expected one; ``worst`` is the error in units of what is allowed."""

    name: str
    right: bool
    wrong: int
    count: int
    worst: float
    at: int
    got: str
    want: str
    note: str


class Execution(TypedDict):
    """A run: ``end`` is ``ran``, ``failed``, ``time-out`` or ``not run``, ``why`` says why."""

    end: str
    why: str
    times_s: list[float]
    outputs: list[Comparison]


class CaseResult(TypedDict):
    """The outcome of a case."""

    name: str
    subject: Subject
    hlo: str
    bound_s: float
    compilation: KitCompilation
    execution: Execution


class SdkFacts(TypedDict):
    """Versions; no names of hosts, users or folders."""

    compiler: str
    driver: str
    instance: str
    python: str
    packages: dict[str, str]
    execution: str
    why_compile_only: str


class Results(TypedDict):
    """The results of a kit; ``missing`` counts cases that are not in them."""

    kind: str
    format: int
    kit: str
    graphgen: str
    target: str
    lnc: int
    facts: SdkFacts
    missing: int
    cases: list[CaseResult]
