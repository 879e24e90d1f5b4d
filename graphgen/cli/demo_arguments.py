"""The grammar of ``inference_demo``: flags of the model, the word ``run``, flags of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_regular
from graphgen.cli.printed_dashes import dashed_flag
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.json_value import parse_json
from graphgen.limits import JSON_BYTES
from graphgen.runtime.aws_config.demo_flags import CHOICES, DEMO_FLAGS, DemoFlag

USAGE = (
    "inference_demo --model-type TYPE --task-type causal-lm run --model-path MODEL "
    "--compiled-model-path FOLDER --prompt TEXT [flags]"
)
_CHOICES = {row.flag: row for row in CHOICES}


@dataclass(slots=True)
class DemoArguments:
    """The flags of a command line, values in their normal form.

    Attributes:
        values: value by flag, in the order of the command line; a repeated flag has a list.
        texts: the words of each flag as they were given.
    """

    values: dict[str, object] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def get(self, flag: str, default: object = None) -> object:
        """The value of a flag, or ``default``."""
        return self.values.get(flag, default)


def read_arguments(words: Sequence[str]) -> DemoArguments:
    """Read a command line without the program's name.

    Raises:
        GraphgenError: GG0705 for another grammar, an unknown flag, or a dash that is not a hyphen;
            GG0902 for a value of another kind.
    """
    _check_dashes(words)
    made = DemoArguments()
    known: Mapping[str, DemoFlag] = _CHOICES
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if word != "run" or known is DEMO_FLAGS:
                raise _error(f"'{word}' is neither a flag nor a value of one")
            known = DEMO_FLAGS
            continue
        _take(made, word, rest, known)
    if known is not DEMO_FLAGS:
        raise _error("the word run is missing")
    return made


def _error(what: str, help: str = "") -> GraphgenError:
    return GraphgenError("GG0705", what, help=help or f"usage: {USAGE}")


def no_effect(flag: str, other: str) -> GraphgenError:
    """The error of a flag that needs another one (GG0705)."""
    return GraphgenError("GG0705", f"{flag} has no effect without {other}", help=f"add {other}")


def _check_dashes(words: Sequence[str]) -> None:
    """Refuse flags with the dashes of printed text, which look like hyphens."""
    for found in filter(None, map(dashed_flag, words)):
        raise GraphgenError("GG0705", found.what, help=found.help)


def _take(made: DemoArguments, word: str, rest: list[str], known: Mapping[str, DemoFlag]) -> None:
    """Read a flag and its values, which are removed from ``rest``."""
    name, equals, attached = word.partition("=")
    row, positive = _row(name, known)
    if row.form in ("switch", "negatable"):
        if equals:
            raise _error(f"{name} takes no value, and got '{attached}'", f"write {name} alone")
        value: object = row.value if positive else False
        _put(made, row, value, name)
        return
    texts: list[str] = []
    if equals:
        texts = [attached]
    elif row.form == "list":
        while rest and not rest[0].startswith("--"):
            texts.append(rest.pop(0))
    elif rest and not rest[0].startswith("--"):
        texts = [rest.pop(0)]
    if not texts:
        raise _error(f"{name} needs a value", f"it is {row.accepted.noun}: {row.help}")
    shown = " ".join([name, *texts])
    _put(made, row, _value(row, texts, shown), shown)


def _row(name: str, known: Mapping[str, DemoFlag]) -> tuple[DemoFlag, bool]:
    """The row of a flag, and False for its negative form (GG0705)."""
    positive = "--" + name.removeprefix("--no-")
    if name in known:
        return known[name], True
    if name.startswith("--no-") and positive in known and known[positive].form == "negatable":
        return known[positive], False
    if name in _CHOICES or name in DEMO_FLAGS:
        place = "before" if name in _CHOICES else "after"
        raise _error(f"{name} belongs {place} the word run")
    raise _error(
        f"there is no flag {name}",
        did_you_mean(name.replace("_", "-"), known) or "inference_demo --help lists all",
    )


def _put(made: DemoArguments, row: DemoFlag, value: object, text: str) -> None:
    """Keep a value; a flag that is given twice must say the same (GG0705)."""
    if row.form == "repeated":
        kept = cast("list[object]", made.values.get(row.flag, []))
        made.values[row.flag] = [*kept, value]
    elif made.values.setdefault(row.flag, value) != value:
        raise _error(f"{row.flag} is given twice, with different values", "give it once")
    made.texts[row.flag] = text


def _value(row: DemoFlag, texts: Sequence[str], shown: str) -> object:
    """The normal form of a flag's words (GG0902)."""
    if row.form == "file":
        return _json(Path(texts[0]), shown)
    if row.form == "repeated":
        return texts[0]
    numbers = [_number(text) for text in texts]
    if row.form == "list" and not row.owner:
        return numbers
    candidates = [numbers, list(texts)] if row.form == "list" else [numbers[0], texts[0]]
    for candidate in candidates:
        try:
            row.accepted.read(candidate)
        except (TypeError, ValueError):
            continue
        return candidate
    raise GraphgenError(
        "GG0902",
        f"{shown}: it must be {row.accepted.noun}",
        help=row.help,
    )


def _number(text: str) -> object:
    """An integer or another number if the text is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _json(path: Path, shown: str) -> object:
    try:
        return parse_json(read_regular(path, JSON_BYTES))
    except (OSError, ValueError) as error:
        raise GraphgenError(
            "GG0705", f"{shown}: cannot read the file: {error}", help="give a JSON file"
        ) from error
