"""Put random small faults into the packages and run the tests that belong to each file.

    python -m tests.mutants --count 300 --seed 15            # goes on where it was interrupted
    python -m tests.mutants --file 'passes/gqa/*' --per-file 10
    python -m tests.mutants --report                         # runs nothing, prints the table

Outcomes are kept in ``benchmarks/results/mutants.jsonl``, which is committed: a mutant is run again
only after its file has changed or, if it survived, one of the tests that belong to its file.
Survivors are listed in ``survivors.json`` with a reason. The exit code is 0 when at least 90 % of
the mutants are killed and every survivor is in that list.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.mutants.belonging_tests import belonging_tests, quickest_first
from tests.mutants.mutant_results import SURVIVORS, Judged, Results, report, verdicts
from tests.mutants.mutant_run import Outcome, import_what_is_slow, run_mutant
from tests.mutants.mutations import PACKAGES, ROOT, Mutation, mutated_files, mutations

RESULTS = ROOT / "benchmarks" / "results" / "mutants.jsonl"
TEST_FILES = 24


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sample of mutants; returns the exit code."""
    args = _parser().parse_args(arguments)
    # As after Ctrl-C: the process of the mutant ends with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = Results(args.results)
    judged = verdicts()
    chosen = sample(args.file or ["*"], args.leave_out, args.seed, args.count, args.per_file)
    if not args.report:
        # Judged survivors take longest and say least.
        order = sorted(chosen, key=lambda mutation: mutation.key in judged)
        run_sample(order, results, args.enough, args.limit)
    outdated = [m.key for m in chosen if not _known(m, results, enough_s=0.0)]
    summary = report(chosen, results, judged, outdated)
    print(json.dumps(summary.as_json(), indent=1) if args.json else summary.as_text())
    for key in gone(judged):
        _tell(f"{SURVIVORS.name} judges what is not in the source: {key}")
    return 0 if summary.good_enough else 1


def sample(
    patterns: Sequence[str], left_out: Sequence[str], seed: int, count: int, per_file: int | None
) -> list[Mutation]:
    """Draw mutations; a change of the source elsewhere leaves most of the sample as it is.

    Args:
        patterns: of file names, of which one matches.
        left_out: patterns of files that are not mutated.
        seed: of the order in which mutations are drawn.
        count: how many at most.
        per_file: how many at most of one file.
    """
    found: list[tuple[str, Mutation]] = []
    for file in mutated_files():
        if _matches(file, patterns) and not _matches(file, left_out):
            drawn = sorted((_rank(seed, mutation), mutation) for mutation in mutations(file))
            found += drawn[:per_file]
    chosen = [mutation for _, mutation in sorted(found)[:count]]
    return sorted(chosen, key=lambda mutation: _rank(seed, mutation))


def run_sample(
    chosen: Sequence[Mutation], results: Results, enough_s: float, limit_s: float
) -> None:
    """Run the mutants whose outcome is not known, and write each outcome at once."""
    waiting = [mutation for mutation in chosen if not _known(mutation, results, enough_s)]
    _tell(f"{len(chosen)} mutants, {len(waiting)} to run")
    if waiting:
        import_what_is_slow()
    revision = _revision()
    for number, mutation in enumerate(waiting, 1):
        found = _outcome(mutation, results, enough_s, limit_s)
        judged = Judged(revision, _digest(mutation.file), _tests_digest(mutation.file), enough_s)
        results.add(mutation, judged, found)
        where = f"{number}/{len(waiting)} {mutation.file}:{mutation.line}: {mutation.change}"
        ending = f"killed by {found.by} {found.how}" if found.killed else "SURVIVED"
        _tell(f"{where}: {found.seconds:.1f} s, {ending}")


def gone(keys: Iterable[str]) -> list[str]:
    """Keys of mutations that the packages do not have, or no longer."""
    files = set(mutated_files())
    in_file = {key: key.partition(" | ")[0] for key in keys}
    return [
        key
        for key, file in in_file.items()
        if file not in files or key not in {mutation.key for mutation in mutations(file)}
    ]


def _outcome(mutation: Mutation, results: Results, enough_s: float, limit_s: float) -> Outcome:
    """Run one mutant, without tests that fail on the program as it is."""
    file = mutation.file
    tests = quickest_first(_tests(file), file, results.killers(file), results.test_seconds())
    while True:
        found = run_mutant(mutation, tests, enough_s, limit_s)
        if not found.killed or passes(found.by, limit_s / 2 if found.hung else limit_s):
            return found
        _tell(f"{found.by} fails or hangs without a fault too, which says nothing")
        tests = [test for test in tests if test != found.by.partition("::")[0]]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _known(mutation: Mutation, results: Results, enough_s: float) -> bool:
    file = mutation.file
    return results.known(mutation, _digest(file), lambda: _tests_digest(file), enough_s)


@cache
def passes(test: str, limit_s: float) -> bool:
    """Whether a test, or all of a file, passes in time on the program as it is."""
    return not run_mutant(None, [test], 0.0, limit_s).killed


def _revision() -> str:
    """The commit of the checkout, with ``+`` where its source differs, or ``""`` without git."""
    if not (ROOT / ".git").exists():
        return ""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, check=True)
    source = [*PACKAGES, "tests"]
    same = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *source], check=False)
    return head.stdout.decode().strip() + "+" * same.returncode


@cache
def _tests(file: str) -> tuple[str, ...]:
    return tuple(belonging_tests(file, TEST_FILES))


@cache
def _digest(file: str) -> str:
    return sha256((ROOT / file).read_bytes()).hexdigest()[:16]


@cache
def _tests_digest(file: str) -> str:
    tests = [path for name in _tests(file) for path in _files_of(ROOT / name)]
    return sha256(b"".join(path.read_bytes() for path in tests)).hexdigest()[:16]


def _files_of(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def _rank(seed: int, mutation: Mutation) -> str:
    return sha256(f"{seed} {mutation.key}".encode()).hexdigest()


def _matches(file: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(file, pattern) for pattern in patterns)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--count", type=int, default=300, help="mutants at most")
    add("--seed", type=int, default=15, help="another seed draws other mutants")
    add("--file", action="append", help="pattern of files to mutate, may be repeated")
    add("--leave-out", action="append", default=[], help="pattern of files to leave as they are")
    add("--per-file", type=int, help="mutants of one file at most")
    add("--results", type=Path, default=RESULTS, help="file of JSON lines to go on with")
    add(
        "--enough",
        type=float,
        default=25.0,
        help="start no further test after these CPU seconds of tests that execute the fault",
    )
    add("--limit", type=float, default=90.0, help="CPU seconds after which a test file hangs")
    add("--report", action="store_true", help="run nothing, show the outcomes that are there")
    add("--json", action="store_true", help="print the report as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
