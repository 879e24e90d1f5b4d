"""Work on files in child processes: one that ends or hangs costs the file it was at, no other."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
# Seconds for one file; after them the process ends.
PATIENCE = 120


class EachInAChild(Generic[T]):
    """Results of a function of one file, computed in processes of their own.

    Args:
        module: the module whose command line calls :meth:`work` for ``--worker``.
        judge: the function; its results are JSON.
        ended: the result of a file at which a process ended or did not come to an end.
    """

    def __init__(self, module: str, judge: Callable[[Path], T], ended: T) -> None:
        self.module, self.judge, self.ended = module, judge, ended

    def __call__(self, files: Sequence[Path]) -> Iterator[tuple[Path, T]]:
        """Each file with its result, in order."""
        waiting = list(files)
        while waiting:
            done = 0
            for result in self._child(waiting):
                yield waiting[done], result
                done += 1
            if done < len(waiting):
                yield waiting[done], self.ended
            waiting = waiting[done + 1 :]

    def _child(self, files: Sequence[Path]) -> Iterator[T]:
        """Results of the first files, as far as one process gets."""
        with subprocess.Popen(
            [sys.executable, "-m", self.module, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n".join(map(str, files)))
            child.stdin.close()
            for line in child.stdout:
                yield json.loads(line)

    def work(self) -> None:
        """Write the results of the files named on the standard input, a line of JSON each."""
        results = os.fdopen(os.dup(1), "w")
        # XLA's messages are not results.
        os.dup2(2, 1)
        for path in map(Path, sys.stdin.read().splitlines()):
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            results.write(json.dumps(self.judge(path)) + "\n")
            results.flush()
