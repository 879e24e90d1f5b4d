"""Errors for users: a stable code, the mistake, its place and a remedy.

Every mistake a user can make raises :class:`GraphgenError`; the command line prints it without a
traceback and exits with status 1. A traceback therefore always means a defect of graphgen itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CODES: dict[str, str] = {
    # 01xx: dims, types, ops and the builder
    "GG0101": "unknown dtype",
    "GG0102": "bad dimension expression",
    "GG0103": "unknown op",
    "GG0104": "bad op attribute",
    "GG0105": "operands do not fit the op",
    "GG0106": "a symbol has no value",
    "GG0107": "name defined twice",
    "GG0108": "bad domain of an interface row",
    # 02xx: IR text and the verifier
    "GG0201": "syntax error in IR text",
    "GG0202": "undefined value",
    "GG0203": "stated type differs from the inferred type",
    "GG0204": "module is not well formed",
    "GG0205": "interface and function disagree",
    "GG0206": "op is not legal at this level",
    # 03xx: passes and pipelines
    "GG0301": "unknown pass",
    "GG0302": "bad pass option",
    "GG0303": "pass order",
    "GG0304": "pass cannot be applied",
    "GG0305": "pass does not keep its word",
    "GG0306": "rules do not end",
    # 04xx: lowering and execution
    "GG0401": "op has no lowering for this target",
    "GG0402": "inputs do not fit the program",
    "GG0403": "op cannot be evaluated",
    "GG0404": "loop does not end",
    # 05xx: models and configurations
    "GG0501": "unknown architecture",
    "GG0502": "unsupported configuration value",
    "GG0503": "bad configuration value",
    "GG0504": "unknown model",
    # 06xx: checkpoints and tokenizers
    "GG0601": "cannot read checkpoint file",
    "GG0602": "checkpoint does not match the model",
    "GG0603": "cannot read tokenizer",
    "GG0604": "checkpoint wants to run code",
    "GG0605": "weights are not numbers",
    # 07xx: generation and artifacts
    "GG0701": "prompt longer than the largest bucket",
    "GG0702": "empty prompt",
    "GG0703": "artifact cannot be used",
    "GG0704": "cannot write file",
    "GG0705": "bad argument",
    "GG0706": "token outside the vocabulary",
    "GG0707": "kernels cannot be built",
    "GG0708": "process is lost",
    "GG0709": "processes disagree",
    "GG0710": "certificate does not hold",
    "GG0711": "answer was not finished",
    # 08xx: HLO and Neuron files
    "GG0801": "cannot read HLO file",
    "GG0802": "not a Neuron file or folder",
    # 09xx: AWS's configurations and applications
    "GG0901": "unknown attribute",
    "GG0902": "bad attribute value",
    "GG0903": "attributes exclude each other",
    "GG0904": "feature is not built",
    "GG0905": "configuration is in use",
    "GG0906": "cannot read configuration file",
    "GG0907": "accuracy check failed",
    "GG0908": "application is not ready",
    # 10xx: neuronx-cc
    "GG1001": "neuronx-cc cannot be run",
    "GG1002": "programs did not compile",
    "GG1003": "neuronx-cc will refuse programs",
    "GG1004": "results of a device cannot be used",
    "GG1005": "a Neuron device cannot be used here",
    "GG1006": "models do not fit an instance",
    # 11xx: limits of what is read
    "GG1101": "nested too deeply",
    "GG1102": "too large",
    "GG1103": "no reader names the fault",
}

# Control characters (C0 but for newline and tab, and C1), marks that turn the direction of text,
# separators of lines, and halves of surrogate pairs.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

_COLOR = re.compile("(\x1b\\[[0-9;]*m)")


def printable(text: str) -> str:
    """The text as a terminal can show it: control characters are written as ``repr`` does.

    Names of tensors, ops and files come from others. Their escape sequences would clear a
    terminal, or show another text than there is. Newlines and tabs stay.
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def colored_text(text: str) -> str:
    """As :func:`printable`, but the codes of colors stay."""
    pieces = _COLOR.split(text)
    return "".join([part if n % 2 else printable(part) for n, part in enumerate(pieces)])


def _indented(text: str) -> str:
    """The text with blanks before its further lines, which then cannot look like an error."""
    return re.sub(r"\n(?! )", "\n  ", text)


class GraphgenError(Exception):
    """A mistake of the user, not of graphgen.

    Args:
        code: a key of :data:`CODES`; stable, so that scripts and documentation can refer to it.
        what: what is wrong, naming the op, tensor or file, with the actual and the wanted value.
        where: where in the user's world it is: ``file:line``, an IR value, a file path.
        note: more lines to print below, such as the program text with a caret under the operand.
        help: what to do next.
    """

    def __init__(
        self, code: str, what: str, *, where: str = "", note: str = "", help: str = ""
    ) -> None:
        assert code in CODES, f"undeclared error code {code}"
        self.code = code
        self.what = what
        self.where = where
        self.note = note
        self.help = help
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"error[{self.code}]: {_indented(self.what)}"]
        if self.where:
            lines.append(f"  --> {_indented(self.where)}")
        if self.note:
            lines.extend(f"   |  {line}" for line in self.note.split("\n"))
        if self.help:
            lines.append(f"  help: {_indented(self.help)}")
        return printable("\n".join(lines))

    def to_json(self) -> dict[str, str]:
        """The same error as one flat JSON object (keys ``code what where note help``)."""
        return {
            "code": self.code,
            "what": self.what,
            "where": self.where,
            "note": self.note,
            "help": self.help,
        }


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean NAME?`` with the nearest known name, or two about as near; else empty.

    Args:
        name: the unknown name; its first 100 characters are compared.
        known: the names that exist.
    """
    from difflib import SequenceMatcher, get_close_matches

    name = name[:100]
    near = get_close_matches(name, list(dict.fromkeys(known)), 2)
    scores = [SequenceMatcher(None, each, name).ratio() for each in near]
    near = [each for each, score in zip(near, scores, strict=True) if score > scores[0] - 0.1]
    return f"did you mean {either_of(near)}?" if near else ""


def either_of(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *front, last = words
    return f"{', '.join(front)} or {last}" if front else last
