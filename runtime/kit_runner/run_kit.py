"""Runs the cases of a kit: compilers beside each other, one program at a time on the device."""

from __future__ import annotations

import argparse
import errno
import fnmatch
import hashlib
import json
import os
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import cast

from graphgen.runtime.kit_runner.compile_case import Compilers
from graphgen.runtime.kit_runner.device_client import AUTO, DeviceProcess, choose_device, not_run
from graphgen.runtime.kit_runner.kit_types import (
    FORMAT,
    KIT,
    MANIFEST,
    RESULTS,
    CaseResult,
    KitCase,
    Manifest,
    Results,
    SdkFacts,
)
from graphgen.runtime.kit_runner.log_text import counted
from graphgen.runtime.kit_runner.sdk_facts import (
    NoCompilerError,
    find_compiler,
    instance_type,
    sdk_facts,
    target_of,
)


class Arguments(argparse.Namespace):
    """The options of one call."""

    only: list[str]
    target: str
    jobs: int
    timeout: float
    run_timeout: float
    repeat: int
    output: Path
    work: Path
    compiler: str
    device: str
    retry: bool
    list: bool


def parse(words: Sequence[str], kit: Path) -> Arguments:
    """Read the words of the command line; wrong ones end the program with status 2."""
    parser = argparse.ArgumentParser(
        "run.py",
        description="Compile and run every case of this kit with the Neuron SDK that is here, "
        "and write what came of it as one JSON. It may be stopped at any time: the same command "
        "goes on where it was.",
    )
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="PATTERN", help="such as 'op/add' or '*f8*'")
    add("--target", default="", help="by default that of the machine")
    add("--jobs", type=int, default=0, help="compilers at a time; by default one a core, at most 8")
    add("--timeout", type=float, default=1800.0, metavar="S", help="seconds of a compiler")
    add("--run-timeout", type=float, default=120.0, metavar="S", help="seconds of an execution")
    add("--repeat", type=int, default=5, metavar="N", help="runs to be timed after the first")
    add("-o", "--output", type=Path, default=Path("results.json"), help="the results")
    add("--work", type=Path, default=kit / "work", help="folder for files and finished cases")
    add("--compiler", default="neuronx-cc", help="the compiler, a name or a path")
    add("--device", default=AUTO, metavar="NAME", help="auto, nrt, jax, or none to compile only")
    add("--retry", action="store_true", help="run again cases that did not end well")
    add("--list", action="store_true", help="name the cases and end")
    return parser.parse_args(list(words), Arguments())


class KitError(Exception):
    """The kit cannot be used."""


def read_manifest(kit: Path) -> tuple[Manifest, str]:
    """The manifest and its SHA-256 (KitError)."""
    try:
        data = _read(kit, MANIFEST)
        content = cast(Manifest, json.loads(data))
        if content["kind"] != KIT or content["format"] != FORMAT:
            raise KitError(f"{MANIFEST} is none of this runner's kits")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KitError(f"{MANIFEST} cannot be read: {error}; unpack the kit again") from error
    return content, hashlib.sha256(data).hexdigest()


def require_files(kit: Path, content: Manifest) -> None:
    """Compare every file with its hash (KitError)."""
    try:
        _compare(kit, content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"{MANIFEST} has another form than this runner's: {error}"
        raise KitError(f"{what}; unpack the kit again") from error


def _compare(kit: Path, content: Manifest) -> None:
    for name, expected in content["files"].items():
        try:
            found = hashlib.sha256(_read(kit, name)).hexdigest()
        except OSError as error:
            raise KitError(f"{name} is missing; unpack the kit again") from error
        if found != expected:
            raise KitError(f"{name} was changed; unpack the kit again")
    for target in content["targets"].values():
        for case in target["cases"]:
            data = [item["data"] for item in [*case["inputs"], *case["outputs"]]]
            for name in [case["hlo"], *data]:
                if name and name not in content["files"]:
                    what = f"{MANIFEST} has no hash of {name}, which {case['name']} reads"
                    raise KitError(f"{what}; unpack the kit again")


def _read(kit: Path, name: str) -> bytes:
    """A regular file of the kit, by its name in the manifest (KitError, OSError)."""
    # The runner goes without graphgen: the rule of its names is here, too.
    if not all(part not in ("", ".", "..") and "\0" not in part for part in name.split("/")):
        raise KitError(f"{name!r} in {MANIFEST} is not the name of a file of the kit")
    opened = os.open(kit, os.O_RDONLY)
    for part in name.split("/"):
        parent = opened
        try:
            # The target of a link does not belong to the kit.
            opened = os.open(part, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise KitError(f"{name} is a symbolic link; unpack the kit again") from error
            raise
        finally:
            os.close(parent)
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise KitError(f"{name} is not a regular file; unpack the kit again")
        return file.read()


def chosen(cases: Sequence[KitCase], patterns: Sequence[str]) -> list[KitCase]:
    """The cases whose names match one of the patterns, or begin with one; all without patterns."""
    return [
        case
        for case in cases
        if not patterns or any(_matches(case["name"], pattern) for pattern in patterns)
    ]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")


class ResultStore:
    """A folder of results under keys of what they depend on.

    Args:
        folder: it is made.
        key: of everything but the case: compiler, device.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, case: KitCase) -> CaseResult | None:
        """The result of a case that was kept; ``None`` if there is none."""
        try:
            found = json.loads(self._path(case).read_bytes())
        except (OSError, ValueError):
            return None
        return cast(CaseResult, found) if isinstance(found, dict) else None

    def keep(self, case: KitCase, result: CaseResult) -> None:
        """Keep the result of a case."""
        write_whole(self._path(case), json.dumps(result).encode())

    def _path(self, case: KitCase) -> Path:
        text = json.dumps([self._key, case], sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that takes the place of ``path`` when it is complete (OSError)."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    # A new file: not what a link of this name points to.
    with part.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def joined(
    kit: str,
    graphgen: str,
    target: str,
    lnc: int,
    facts: SdkFacts,
    results: Sequence[CaseResult],
    missing: int,
) -> Results:
    """The content of the results file."""
    return {
        "kind": RESULTS,
        "format": FORMAT,
        "kit": kit,
        "graphgen": graphgen,
        "target": target,
        "lnc": lnc,
        "facts": facts,
        "missing": missing,
        "cases": sorted(results, key=lambda item: item["name"]),
    }


# Ends that say nothing about the case, which `--retry` runs again.
_UNSURE = ("time-out", "killed", "crash", "disk full", "no output")
_MOST_JOBS = 8
_WRITE_SECONDS = 20.0


def main(words: Sequence[str], kit: Path) -> int:
    """The exit status: 0 when every case has a result, 1 for a mistake, 130 when stopped."""
    arguments = parse(words, kit)
    # A kill by SIGTERM ends compilers as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(arguments, kit)
    except (KitError, NoCompilerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(arguments: Arguments, kit: Path) -> int:
    """The exit status (KitError, NoCompilerError, OSError)."""
    content, digest = read_manifest(kit)
    target = _target(arguments, content)
    cases = chosen(content["targets"][target]["cases"], arguments.only)
    if not cases:
        raise KitError(f"no case is called like {', '.join(arguments.only)}; --list names them")
    if arguments.list:
        print("\n".join(case["name"] for case in cases))
        return 0
    require_files(kit, content)
    return KitRun(arguments, kit, content, digest, target).run(cases)


def _target(arguments: Arguments, content: Manifest) -> str:
    there = ", ".join(content["targets"])
    found = arguments.target or target_of(instance_type())
    if not found:
        raise KitError(f"this machine is none of AWS's with a Neuron device; --target: {there}")
    if found not in content["targets"]:
        raise KitError(f"the kit has no cases for {found}, it has them for {there}")
    return found


class KitRun:
    """One run over some cases.

    Args:
        arguments: of the command line.
        kit: the folder of the kit.
        content: its manifest.
        digest: the manifest's SHA-256.
        target: whose cases are run.
    """

    def __init__(
        self, arguments: Arguments, kit: Path, content: Manifest, digest: str, target: str
    ) -> None:
        self._arguments = arguments
        self._kit = kit
        self._content = content
        self._digest = digest
        self._target = target
        path, self._version = find_compiler(arguments.compiler)
        self._compilers = Compilers(path, arguments.timeout)
        lnc = str(content["targets"][target]["lnc"])
        environment = {
            "NEURON_RT_NUM_CORES": "1",
            "NEURON_RT_VIRTUAL_CORE_SIZE": lnc,
            "NEURON_LOGICAL_NC_CONFIG": lnc,
        }
        name, why = choose_device(arguments.device)
        limits = arguments.run_timeout, arguments.repeat
        self._device = DeviceProcess(name, why, environment, *limits)
        self._device.check()
        key = f"{self._version} {self._device.name or 'compile only'}"
        self._store = ResultStore(arguments.work / "cases", key)
        self._done: list[CaseResult] = []
        self._wrote = 0.0

    def run(self, cases: Sequence[KitCase]) -> int:
        """Run the cases that have no result yet, and write the results (OSError)."""
        self._say(self._heading(len(cases)))
        waiting = [case for case in cases if not self._kept(case)]
        if len(waiting) < len(cases):
            done = len(cases) - len(waiting)
            self._say(f"{counted(done, 'case')} {'is' if done == 1 else 'are'} finished already")
        jobs = self._arguments.jobs or min(_MOST_JOBS, os.cpu_count() or 1)
        pool = ThreadPoolExecutor(jobs)
        status = 0
        try:
            futures = {pool.submit(self._one, case) for case in waiting}
            self._collect(futures, len(cases))
        except KeyboardInterrupt:
            self._say("stopped; the same command goes on from here")
            status = 130
        finally:
            self._compilers.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            self._device.close()
        self._write(len(cases))
        self._summary()
        return status

    def _heading(self, count: int) -> str:
        how = f"executed by {self._device.name}" if self._device.name else self._device.why_none
        how = how if self._device.name else f"compiled only: {how}"
        return f"{counted(count, 'case')} for {self._target}, neuronx-cc {self._version}, {how}"

    def _kept(self, case: KitCase) -> bool:
        found = self._store.find(case)
        if found is None or (self._arguments.retry and _is_unsure(found)):
            return False
        compiled = found["compilation"]["end"] == "compiled"
        lost = compiled and found["execution"]["end"] == "not run" and not case["why_not_run"]
        if lost and self._device.name:
            # The device was lost on the way.
            return False
        self._done.append(found)
        return True

    def _collect(self, futures: set[Future[CaseResult]], total: int) -> None:
        """Say and keep what ends, until all have ended."""
        while futures:
            ended, futures = wait(futures, timeout=_WRITE_SECONDS, return_when=FIRST_COMPLETED)
            for future in ended:
                result = future.result()
                self._done.append(result)
                self._say(f"[{len(self._done)}/{total}] {result['name']}: {_words(result)}")
            if time.monotonic() - self._wrote > _WRITE_SECONDS:
                self._write(total)

    def _one(self, case: KitCase) -> CaseResult:
        # Another name for each run: a compiler that outlived a kill may still write to the old one.
        folder = self._arguments.work / f"{os.getpid()}-{threading.get_ident()}"
        try:
            compilation = self._compilers.compile(case, self._kit / case["hlo"], folder)
            if compilation["end"] == "compiled":
                execution = self._device.run(case, folder.resolve(), self._kit.resolve())
            else:
                execution = not_run("it did not compile")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        result: CaseResult = {
            "name": case["name"],
            "subject": case["subject"],
            "hlo": case["hlo"],
            "bound_s": case["bound_s"],
            "compilation": compilation,
            "execution": execution,
        }
        self._store.keep(case, result)
        return result

    def _write(self, total: int) -> None:
        facts = sdk_facts(self._version, self._device.first_name, self._device.why_none)
        content = joined(
            self._digest,
            self._content["graphgen"],
            self._target,
            self._content["targets"][self._target]["lnc"],
            facts,
            self._done,
            total - len(self._done),
        )
        write_whole(self._arguments.output, json.dumps(content, indent=1).encode())
        self._wrote = time.monotonic()

    def _summary(self) -> None:
        counts: dict[str, int] = {}
        for result in self._done:
            counts[_words(result)] = counts.get(_words(result), 0) + 1
        for text, count in sorted(counts.items(), key=lambda item: -item[1]):
            self._say(f"{count:6} {text}")
        self._say(f"wrote {self._arguments.output}; it names no host, user or folder")

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _is_unsure(result: CaseResult) -> bool:
    end = result["execution"]["end"]
    return result["compilation"]["end"] in _UNSURE or end in ("failed", "time-out")


def _words(result: CaseResult) -> str:
    """The end of a case in a few words."""
    compilation, execution = result["compilation"], result["execution"]
    if compilation["end"] != "compiled":
        return " ".join([compilation["end"], *compilation["codes"][:1]])
    if execution["end"] != "ran":
        return "compiled" if execution["end"] == "not run" else f"compiled, run {execution['end']}"
    if not execution["outputs"]:
        return "ran, nothing to compare"
    return "right" if all(item["right"] for item in execution["outputs"]) else "wrong numbers"
