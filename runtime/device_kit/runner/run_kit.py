"""Runs the cases of a kit: compilers beside each other, one program at a time on the device."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from graphgen.runtime.device_kit.runner.arguments import Arguments, parse
from graphgen.runtime.device_kit.runner.compile_case import Compilers
from graphgen.runtime.device_kit.runner.device_client import DeviceProcess, choose_device, not_run
from graphgen.runtime.device_kit.runner.kit_files import (
    KitError,
    chosen,
    read_manifest,
    require_files,
)
from graphgen.runtime.device_kit.runner.kit_types import CaseResult, KitCase, Manifest
from graphgen.runtime.device_kit.runner.log_text import counted
from graphgen.runtime.device_kit.runner.result_store import ResultStore, joined, write_whole
from graphgen.runtime.device_kit.runner.sdk_facts import (
    NoCompilerError,
    find_compiler,
    instance_type,
    sdk_facts,
    target_of,
)

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
