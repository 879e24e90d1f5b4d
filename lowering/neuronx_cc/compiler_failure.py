"""Failures of the compiler explained: code, op, the line of it, the rule of ``check``, a remedy."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.check.check import Finding
from graphgen.lowering.check.compiler_rules import CompilerRule, module_rules, rules_by_op
from graphgen.lowering.hlo_proto.fields import InstructionField, MetadataField
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.neuronx_cc.command_line import CommandLine
from graphgen.lowering.neuronx_cc.worker import RunResult

_NAMED = re.compile(r"%([A-Za-z_][\w.\-]*)")
_FILE, _LINE = re.compile(r'source_file="([^"]+)"'), re.compile(r"source_line=(\d+)")
_SCOPE = re.compile(r'op_name="([^"]+)"')
_WORD = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclass(frozen=True, slots=True)
class BlamedOp:
    """An instruction that a log names.

    Attributes:
        name: of the instruction; empty where only its metadata is in the log.
        opcode: HLO's; empty where it is not known.
        where: the user's line and scope, as far as they are known.
    """

    name: str
    opcode: str
    where: str


def blamed_op(text: str, hlo: Path) -> BlamedOp | None:
    """The instruction that a text names by its name or its metadata; ``None`` if there is none.

    Args:
        text: of a log.
        hlo: the file that was compiled.
    """
    file, line, scope = _FILE.search(text), _LINE.search(text), _SCOPE.search(text)
    stated = _place(file[1] if file else "", int(line[1]) if line else 0, scope[1] if scope else "")
    words = [*_NAMED.findall(text), *_WORD.findall(text)]
    found = _instruction(words, hlo)
    if found is None:
        return BlamedOp("", "", stated) if stated else None
    return BlamedOp(found.name, found.opcode, stated or found.where)


def _instruction(words: list[str], hlo: Path) -> BlamedOp | None:
    """The first of the words that names an instruction of the file.

    Words that are plain opcodes name none: every log is full of them.
    """
    try:
        module = open_hlo(hlo.read_bytes())
    except (OSError, GraphgenError):
        return None
    wanted = {word.rstrip(".") for word in words}
    names: dict[str, BlamedOp] = {}
    for computation in module.computations:
        for item in computation.instructions():
            name = item.text(InstructionField.NAME)
            if name in wanted:
                names[name] = _described(name, item)
    ordered = (names[word.rstrip(".")] for word in words if word.rstrip(".") in names)
    return next((item for item in ordered if item.name != item.opcode), None)


def _described(name: str, item: Message) -> BlamedOp:
    about = item.message(InstructionField.METADATA)
    where = ""
    if about is not None:
        where = _place(
            about.text(MetadataField.SOURCE_FILE),
            about.integer(MetadataField.SOURCE_LINE),
            about.text(MetadataField.OP_NAME),
        )
    return BlamedOp(name, item.text(InstructionField.OPCODE), where)


def _place(file: str, line: int, scope: str) -> str:
    """``file:line scope``, without the passes that the scope lists."""
    scope = scope.split(" via ", 1)[0]
    place = f"{file}:{line}" if file and line else file
    return f"{place} {scope}".strip()


_REPORT = "nothing public explains it: read the log, and report it with the HLO file"


@dataclass(frozen=True, slots=True)
class CodeHelp:
    """A code explained.

    Attributes:
        meaning: one line.
        remedy: what to do.
    """

    meaning: str
    remedy: str


@cache
def _codes() -> Mapping[str, Mapping[str, str]]:
    text = files("graphgen.targets").joinpath("neuron_error_codes.json").read_text("utf-8")
    return cast("Mapping[str, Mapping[str, str]]", json.loads(text)["codes"])


def known_codes() -> frozenset[str]:
    """The codes that have an explanation."""
    return frozenset(_codes())


def help_of(code: str) -> CodeHelp:
    """The meaning of a code; by its first letters where it is not listed."""
    found = _codes().get(code) or _codes().get(code.rstrip("0123456789"))
    if found is None and code.startswith("NCC_I"):
        found = _codes()["NCC_I"]
    if found is None:
        return CodeHelp(f"{code} is not in the published list", _REPORT)
    return CodeHelp(found["meaning"], found["remedy"])


def log_tail(text: str, lines: int = 12) -> str:
    """The last ``lines`` lines of a text, without blank ones at its ends."""
    return "\n".join(text.strip().splitlines()[-lines:])


CODE = re.compile(r"\bNCC_[A-Z]+\d+\b")
_LESS_MEMORY = (
    "run fewer at a time: --jobs 1, or a smaller --memory; or compile on a larger machine"
)
_ARGUMENT = re.compile(
    r"(?:unrecognized arguments?: (?P<unknown>\S+)|argument (?P<bad>\S+?)(?:/\S+)?: .*)"
)


@dataclass(frozen=True, slots=True)
class CompilerFailure:
    """A compilation that gave no program.

    Attributes:
        program: its name.
        kind: ``refused``, ``internal``, ``arguments``, ``time-out``, ``killed``, ``no memory``,
            ``crash``, ``disk full``, ``damaged output``, ``version`` or ``failed``.
        code: the compiler's, ``NCC_...``; empty without one.
        what: one line.
        op: the opcode that the log names; empty for none.
        where: the user's line of it.
        rule: the rule of ``graphgen check`` about it; empty where there is none.
        predicted: the rule had fired on this program.
        remedy: what to do.
        tail: the last lines of the log.
        log: the file.
    """

    program: str
    kind: str
    what: str
    remedy: str
    code: str = ""
    op: str = ""
    where: str = ""
    rule: str = ""
    predicted: bool = False
    tail: str = ""
    log: str = ""

    @property
    def lasting(self) -> bool:
        """True where the same compilation would fail again, on any machine."""
        return self.kind in ("refused", "internal", "crash", "failed")

    def to_json(self) -> dict[str, Json]:
        """All fields by name."""
        return dict(asdict(self))


@dataclass(frozen=True, slots=True)
class FailedRun:
    """Everything that a failure is explained by.

    Attributes:
        program: its name.
        result: the end of the process.
        text: of the log and the output.
        command: the options, with their origins.
        findings: of ``graphgen check`` for the program.
        hlo: the file that was compiled.
        damage: of the output, where the compiler ended without an error.
        log: the file with the log.
        limit: seconds that it had.
    """

    program: str
    result: RunResult
    text: str
    command: CommandLine
    findings: Sequence[Finding]
    hlo: Path
    damage: str = ""
    log: str = ""
    limit: float = 0.0

    def failure(self, kind: str, what: str, remedy: str) -> CompilerFailure:
        """A failure of this program."""
        return CompilerFailure(self.program, kind, what, remedy)


def explain(run: FailedRun) -> CompilerFailure:
    """Explain a failure by the first of the explanations that fits."""
    for explanation in _EXPLANATIONS:
        made = explanation(run)
        if made is not None:
            return replace(made, tail=log_tail(run.text), log=run.log)
    raise AssertionError("the last explanation fits every failure")


def _time_out(run: FailedRun) -> CompilerFailure | None:
    if not run.result.timed_out:
        return None
    return run.failure(
        "time-out",
        f"the compiler was ended after {run.limit:.0f} s without a result",
        "allow more with --timeout SECONDS, or compile a smaller bucket or with -O1",
    )


def _full_disk(run: FailedRun) -> CompilerFailure | None:
    if "No space left on device" not in run.text:
        return None
    return run.failure(
        "disk full",
        "the compiler found no space left on the device",
        "free some space, or choose another folder with -o and TMPDIR; what is done is kept",
    )


def _killed(run: FailedRun) -> CompilerFailure | None:
    # A shell between the process and the compiler says 128 and the signal.
    status = run.result.status
    number = -status if status < 0 else status - 128 if status > 128 else 0
    if number == 0:
        return None
    if number == signal.SIGKILL:
        peak = run.result.peak_bytes / 1e9
        return run.failure(
            "killed",
            f"the compiler was killed, most likely for its memory ({peak:.1f} GB at its worst)",
            _LESS_MEMORY,
        )
    name = signal.Signals(number).name if number in [*map(int, signal.Signals)] else str(number)
    return run.failure(
        "crash",
        f"the compiler crashed with {name}",
        "try -O1, another bucket or another version of the compiler; report it with the HLO file",
    )


def _arguments(run: FailedRun) -> CompilerFailure | None:
    found = _ARGUMENT.search(run.text)
    if run.result.status != 2 or found is None:
        return None
    name = (found["unknown"] or found["bad"]).partition("=")[0]
    origin = next(
        (item.origin for item in run.command.options if item.option.name == name), "the driver"
    )
    return run.failure(
        "arguments",
        found[0].strip(),
        f"{name} comes from {origin}: take it out there, or use a compiler that knows it",
    )


def _coded(run: FailedRun) -> CompilerFailure | None:
    """A code in the log: the first one, as later ones follow from it."""
    line = next((line for line in run.text.splitlines() if CODE.search(line)), "")
    found = CODE.search(line)
    if found is None:
        return None
    code = found[0]
    blamed = blamed_op(line, run.hlo) or blamed_op(run.text, run.hlo)
    known = _rule(code, blamed, run.findings)
    advice = help_of(code)
    return CompilerFailure(
        run.program,
        "internal" if code.startswith("NCC_I") else "refused",
        _message(line, advice),
        (known[2] if known else "") or advice.remedy,
        code=code,
        op=blamed.opcode if blamed else "",
        where=blamed.where if blamed else "",
        rule=known[0] if known else "",
        predicted=known[1] if known else False,
    )


def _message(line: str, advice: CodeHelp) -> str:
    """The text after the code, else what the code means."""
    text = CODE.split(line, maxsplit=1)[1].lstrip("]): ").strip()
    text = text.split(", metadata=", 1)[0]
    return text or advice.meaning


def _rule(
    code: str, blamed: BlamedOp | None, findings: Sequence[Finding]
) -> tuple[str, bool, str] | None:
    """The rule about a code: its id, whether it had fired, and its remedy."""
    fired = [item for item in findings if code in item.code]
    fired.sort(key=lambda item: blamed is None or item.op != blamed.opcode)
    if fired:
        return fired[0].rule, True, fired[0].fix
    rules: list[CompilerRule] = [item for rows in rules_by_op().values() for item in rows]
    rules += module_rules().values()
    known = [item for item in rules if code in item.code]
    known.sort(key=lambda item: blamed is None or item.op != blamed.opcode)
    return (known[0].id, False, known[0].fix) if known else None


# Lines without a code that people report, with the code whose remedy is theirs.
_LINES_WITHOUT_CODE = (
    (re.compile(r"too many instructions", re.IGNORECASE), "NCC_EVRF007"),
    (re.compile(r"exceeds the typical limit of [\d,]+", re.IGNORECASE), "NCC_EVRF007"),
)
_OUT_OF_MEMORY = re.compile(r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory")


def _known_line(run: FailedRun) -> CompilerFailure | None:
    """A line without a code that says as much as one."""
    for pattern, code in _LINES_WITHOUT_CODE:
        line = next((line for line in run.text.splitlines() if pattern.search(line)), "")
        if line:
            known = _rule(code, None, run.findings)
            return CompilerFailure(
                run.program,
                "refused",
                line.split("]: ", 1)[-1].strip(),
                help_of(code).remedy,
                rule=known[0] if known else "",
                predicted=known[1] if known else False,
            )
    return None


def _no_memory(run: FailedRun) -> CompilerFailure | None:
    """An allocation of the compiler that failed."""
    if run.result.status == 0 or not _OUT_OF_MEMORY.search(run.text):
        return None
    peak = run.result.peak_bytes / 1e9
    return run.failure(
        "no memory",
        f"the compiler found no memory ({peak:.1f} GB at its worst)",
        _LESS_MEMORY,
    )


def _bad_output(run: FailedRun) -> CompilerFailure | None:
    if run.result.status != 0:
        return None
    return run.failure(
        "damaged output",
        f"the compiler ended without an error, but its output is damaged: {run.damage}",
        "compile again; if it stays, look for a full disk, and report it with the HLO file",
    )


def _crashed(run: FailedRun) -> CompilerFailure | None:
    if "Traceback (most recent call last)" not in run.text:
        return None
    return run.failure(
        "crash",
        f"the compiler crashed: {run.text.strip().splitlines()[-1]}",
        "try -O1 or another version of the compiler; report it with the HLO file",
    )


def _failed(run: FailedRun) -> CompilerFailure:
    return run.failure(
        "failed",
        f"the compiler ended with status {run.result.status}",
        "read the log; no code in it is known here",
    )


_EXPLANATIONS: tuple[Callable[[FailedRun], CompilerFailure | None], ...] = (
    *(_time_out, _full_disk, _killed, _arguments, _coded, _known_line, _no_memory),
    *(_bad_output, _crashed, _failed),
)


def failure_of_json(values: Mapping[str, Json]) -> CompilerFailure:
    """The failure that :meth:`CompilerFailure.to_json` wrote."""
    return CompilerFailure(**values)  # pyright: ignore[reportArgumentType]
