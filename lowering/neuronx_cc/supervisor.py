"""Run a command and kill it when its parent process ends, for any reason.

``python supervisor.py FD COMMAND...``: FD is the read end of a pipe whose write end the other
process holds and never writes to. When that process ends, by a kill too, the pipe ends, and the
whole process group of the command is killed: a compiler would run on for hours. This is a program
of its own, of the standard library alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    """The command's exit status; 128 and the number of the signal that ended it."""
    pipe, words = int(sys.argv[1]), sys.argv[2:]
    try:
        process = subprocess.Popen(words)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=_follow, args=(pipe,), daemon=True).start()
    status = process.wait()
    return 128 - status if status < 0 else status


def _follow(pipe: int) -> None:
    """Kill this process group when the pipe ends."""
    os.read(pipe, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
