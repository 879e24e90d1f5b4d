"""Share of HLO texts written elsewhere that are read and written without loss, by XLA's own parser.

Every ``*.hlo`` file of a folder is one module. XLA (jaxlib) is the judge: of the texts it takes,
the table gives the number that are parsed here, whose protobuf from here XLA takes and has as the
same module, whose protobuf from XLA is printed here as text that XLA has as the same module, and
whose graph is read from either form. A second table counts what is left, by reason. The texts are
read in child processes, since XLA ends its process on some of them.
"""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.child_process import EachInAChild
from graphgen.errors import GraphgenError

T = TypeVar("T")
Verdict = dict[str, str]
ENVIRONMENT = "GRAPHGEN_HLO_CORPUS"
CRITERIA = {
    "parsed": "text parsed",
    "taken": "our protobuf is taken by XLA",
    "same": "and is XLA's module, entry layouts aside",
    "whole": "and with the entry layouts",
    "back": "our text of XLA's protobuf is the same module",
    "graph": "graph read, from text",
    "graph_proto": "graph read, from XLA's protobuf",
}
_ENTRY_LAYOUT = re.compile(r", entry_computation_layout=\{.*?->.*?\}(?=, [a-z_]+=|\n)")


def measure(files: Sequence[Path]) -> dict[str, Verdict]:
    """The verdict of each file XLA takes: per criterion, an empty text or the reason it fails."""
    return {path.name: verdict for path, verdict in JUDGED(files) if verdict is not None}


def judge(text: str) -> Verdict | None:
    """The verdict of one text, ``None`` where XLA refuses it."""
    from graphgen.lowering.hlo import read_hlo
    from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
    from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text

    try:
        proto = _from_text(text)
    except RuntimeError:
        return None
    verdict: Verdict = {}
    ours = _attempt(verdict, "parsed", lambda: parse_hlo_text(text))
    _attempt(verdict, "graph", lambda: read_hlo(_there(ours)))
    _attempt(verdict, "graph_proto", lambda: read_hlo(proto))
    try:
        wanted = _shown(proto)
    except RuntimeError:
        unjudged = dict.fromkeys(CRITERIA, "XLA refuses its own protobuf of the text")
        return {**unjudged, **verdict}
    shown = _attempt(verdict, "taken", lambda: _shown(_there(ours)))
    verdict["same"] = _difference(_plain(wanted), shown and _plain(shown), verdict["taken"])
    verdict["whole"] = _difference(wanted, shown, verdict["taken"])
    back = _attempt(verdict, "back", lambda: _shown(_from_text(print_hlo_text(proto))))
    verdict["back"] = _difference(wanted, back, verdict["back"])
    return verdict


def _there(data: bytes | None) -> bytes:
    if data is None:
        raise GraphgenError("GG0201", "not parsed")
    return data


def _attempt(verdict: Verdict, name: str, step: Callable[[], T]) -> T | None:
    try:
        made = step()
    except GraphgenError as error:
        verdict[name] = f"{error.code} {error.what}"
    except Exception as error:
        verdict[name] = f"{type(error).__name__}: {_said(error)}"
    else:
        verdict[name] = ""
        return made
    return None


def _said(error: Exception) -> str:
    """The message of XLA, without the place and the lines of the text around it."""
    lines = str(error).splitlines() or [""]
    told = [line for line in lines if "error:" in line]
    return re.sub(r"was parsing \d+:\d+: ", "", told[0] if told else lines[0])[:300]


def _difference(wanted: str, shown: str | None, before: str) -> str:
    if shown is None:
        return before
    if shown == wanted:
        return ""
    pairs = zip(wanted.splitlines(), shown.splitlines(), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), ("", "more lines"))
    return f"differs: {first[0].strip()[:1500]} | {first[1].strip()[:1500]}"


def _plain(text: str) -> str:
    return _ENTRY_LAYOUT.sub("", text)


def _from_text(text: str) -> bytes:
    from jaxlib import _hlo

    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def _shown(proto: bytes) -> str:
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return _hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string(options)


JUDGED = EachInAChild[Verdict | None](
    "benchmarks.third_party_texts",
    lambda path: judge(path.read_text(errors="replace")),
    dict.fromkeys(CRITERIA, "the process ended"),
)


def reasons(found: Mapping[str, Verdict], criterion: str) -> list[tuple[int, str, str]]:
    """Reasons for which a criterion fails: count, reason without names and numbers, one file."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for name, verdict in found.items():
        reason = verdict[criterion]
        if reason:
            key = _kind(reason)
            counts[key] += 1
            example.setdefault(key, name)
    return [(count, reason, example[reason]) for reason, count in counts.most_common()]


def _kind(reason: str) -> str:
    """A reason without what differs from file to file."""
    if reason.startswith("differs: "):
        wanted, _, shown = reason.removeprefix("differs: ").partition(" | ")
        pieces = (set(re.split(r", (?=[a-z_]+=)", text)) for text in (wanted, shown))
        lost, more = (sorted(a) for a in _apart(*pieces))
        words = [f"-{_key(item)}" for item in lost] + [f"+{_key(item)}" for item in more]
        return "differs: " + " ".join(dict.fromkeys(words))
    return re.sub(r"\d+", "N", re.sub(r"%[\w.\-]+", "%_", reason))[:110]


def _apart(one: set[str], other: set[str]) -> tuple[set[str], set[str]]:
    return one - other, other - one


def _key(piece: str) -> str:
    found = re.match(r"([a-z_\-]+)=", piece)
    return f"{found[1]}=" if found else "line"


def report(found: Mapping[str, Verdict], shown: int) -> str:
    """Both tables."""
    total = len(found)
    lines = [f"{total} texts that XLA takes"]
    for key, what in CRITERIA.items():
        good = sum(not verdict[key] for verdict in found.values())
        lines.append(f"{what:48}{good:6}{100 * good / max(total, 1):7.1f} %")
    for key, what in CRITERIA.items():
        left = reasons(found, key)
        if left:
            lines += ["", f"left: {what}"]
            lines += [f"{count:5}  {reason}  ({name})" for count, reason, name in left[:shown]]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line; see the module's own text."""
    parser = argparse.ArgumentParser(description=__doc__, prog="third_party_texts")
    parser.add_argument("--corpus", type=Path, default=os.environ.get(ENVIRONMENT))
    parser.add_argument("--every", type=int, default=1, help="take every n-th file")
    parser.add_argument("--only", default="", help="take files whose name holds this")
    parser.add_argument("--reasons", type=int, default=12, help="reasons shown per criterion")
    parser.add_argument("--json", type=Path, help="write the verdict of every file here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        JUDGED.work()
        return
    if options.corpus is None:
        parser.error(f"give --corpus or {ENVIRONMENT}: a folder of *.hlo files")
    files = [path for path in sorted(options.corpus.glob("*.hlo")) if options.only in path.name]
    found = measure(files[:: options.every])
    sys.stdout.write(report(found, options.reasons) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
