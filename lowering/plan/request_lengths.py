"""A histogram of the prompts and answers of real requests, in tokens, read from a file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import cast

from graphgen.atomic_write import unreadable
from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.numbers import is_digits
from graphgen.read_file import read_named

_COLUMNS = ("prompt", "answer", "count")
_FORM = "a CSV with the header 'prompt,answer' or 'prompt,answer,count', or one JSON object a line"


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """Requests by the lengths of prompt and answer.

    Attributes:
        counts: by tokens of the prompt and of the answer, all at least 1; not empty.
    """

    counts: Mapping[tuple[int, int], int]

    @property
    def requests(self) -> int:
        """Number of requests."""
        return sum(self.counts.values())

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt."""
        return max(prompt for prompt, _ in self.counts)

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return max(prompt + answer for prompt, answer in self.counts)

    @property
    def mean_prompt(self) -> float:
        """Tokens of a prompt."""
        return sum(p * n for (p, _), n in self.counts.items()) / self.requests

    @property
    def mean_answer(self) -> float:
        """Tokens of an answer."""
        return sum(a * n for (_, a), n in self.counts.items()) / self.requests

    def prefills(self) -> list[int]:
        """Prefill calls by the tokens of the prompt: item n is the number for n tokens."""
        made = [0] * (self.longest_prompt + 1)
        for (prompt, _), count in self.counts.items():
            made[prompt] += count
        return made

    def steps(self) -> list[int]:
        """Decode steps by the slots a row attends to: item n is the number for n slots.

        Prefill returns the first token of an answer of ``a`` tokens; each of the other ``a - 1``
        is one step, which attends to all tokens before the one it returns.
        """
        changes = [0] * (self.longest_sequence + 1)
        for (prompt, answer), count in self.counts.items():
            changes[prompt + 1] += count
            changes[prompt + answer] -= count
        return list(accumulate(changes))


def read_request_lengths(path: Path) -> RequestLengths:
    """Read a file of lengths: ``prompt``, ``answer`` and, where given, ``count`` for each line.

    Raises:
        GraphgenError: GG0705 with the line, for a file of another form, for lengths and counts that
            are not whole numbers of at least 1, and for a file without requests.
    """
    try:
        text = read_named(path).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error, f"--lengths takes {_FORM}") from error
    records = _json_lines if text.lstrip().startswith("{") else _csv_rows
    counts: Counter[tuple[int, int]] = Counter()
    for line, record in records(text, str(path)):
        where = f"{path}:{line}"
        prompt, answer = (_number(record, key, where) for key in _COLUMNS[:2])
        counts[prompt, answer] += _number(record, "count", where) if "count" in record else 1
    if not counts:
        raise _refused(f"'{path}' has no requests", str(path))
    return RequestLengths(counts)


def _csv_rows(text: str, name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    rows = csv.reader(StringIO(text))
    header: Sequence[str] = ()
    for row in rows:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        where = f"{name}:{rows.line_num}"
        if not header:
            header = cells
            _check_keys(header, where)
        elif len(cells) != len(header):
            raise _refused(f"{len(cells)} values for {len(header)} columns", where)
        else:
            # Python reads 1_0 and +1 as numbers too.
            numbers = [int(c) if is_digits(c) else c for c in cells]
            yield rows.line_num, dict(zip(header, numbers, strict=True))


def _json_lines(text: str, name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            record: object = parse_json(line)
        except ValueError as error:
            raise _refused(f"this line is not JSON: {error}", where) from error
        if not isinstance(record, dict):
            raise _refused("this line is not a JSON object", where)
        found = cast("dict[str, object]", record)
        _check_keys(list(found), where)
        yield number, found


def _check_keys(keys: Sequence[str], where: str) -> None:
    """Refuse columns that are missing, unknown or repeated."""
    wrong = [key for key in keys if key not in _COLUMNS or keys.count(key) > 1]
    missing = [key for key in _COLUMNS[:2] if key not in keys]
    if wrong or missing:
        parts = [f"unknown or repeated: {', '.join(dict.fromkeys(wrong))}"] * bool(wrong)
        parts += [f"missing: {', '.join(missing)}"] * bool(missing)
        raise _refused(f"columns {'; '.join(parts)}", where)


def _number(record: Mapping[str, object], key: str, where: str) -> int:
    value = record[key]
    # JSON's true is an int of Python.
    if type(value) is not int or value < 1:
        raise _refused(f"{key} {value!r} is not a whole number of at least 1", where)
    return value


def _refused(what: str, where: str) -> GraphgenError:
    return GraphgenError("GG0705", what, where=where, help=f"--lengths takes {_FORM}")
