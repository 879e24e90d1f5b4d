"""Captured inputs of an application: by a hook of ``forward``, or by environment variables."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.numbers import is_digits
from graphgen.runtime.accuracy.input_capture import InputCapture
from graphgen.runtime.session.session import LaunchObserver, Session

_PREFIX = "NXD_INFERENCE_CAPTURE_"
_FORMATS = {"NUMPY_IMAGES": "npz", "npz": "npz", "safetensors": "safetensors"}


def capture_from_environment(
    environment: Mapping[str, str] | None = None,
) -> InputCapture | None:
    """The capture that ``NXD_INFERENCE_CAPTURE_SNAPSHOT`` and its settings request.

    ``_OUTPUT_PATH`` is the folder, ``_OUTPUT_FORMAT`` is ``NUMPY_IMAGES`` (an .npz file a launch)
    or ``safetensors``, ``_AT_REQUESTS`` are the launches of each program, ``_FOR_TOKENS`` the steps
    of a sequence, both counted from 0 and separated by commas.

    Args:
        environment: by default that of the process.

    Raises:
        GraphgenError: GG0902 for a value that is not understood, GG0904 for pickled snapshots.
    """
    given = os.environ if environment is None else environment
    if given.get(f"{_PREFIX}SNAPSHOT", "") in ("", "0", "false", "False"):
        return None
    path = given.get(f"{_PREFIX}OUTPUT_PATH")
    if not path:
        raise GraphgenError(
            "GG0902",
            f"{_PREFIX}SNAPSHOT is set, and {_PREFIX}OUTPUT_PATH is not",
            help="set it to a folder",
        )
    form = given.get(f"{_PREFIX}OUTPUT_FORMAT", "NUMPY_IMAGES")
    if form == "NUMPY_PICKLE":
        raise GraphgenError(
            "GG0904",
            f"{_PREFIX}OUTPUT_FORMAT=NUMPY_PICKLE: pickled files run code when they are read",
            help="set it to NUMPY_IMAGES or safetensors",
        )
    if form not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise GraphgenError(
            "GG0902", f"{_PREFIX}OUTPUT_FORMAT={form} is unknown", help=f"one of {known}"
        )
    requests = _numbers(given, "AT_REQUESTS")
    tokens = _numbers(given, "FOR_TOKENS")
    calls = requests if requests or tokens else [0]
    return InputCapture(Path(path), tokens, calls, _FORMATS[form])


def _numbers(given: Mapping[str, str], name: str) -> list[int]:
    text = given.get(_PREFIX + name, "")
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(is_digits(word) for word in words):
        raise GraphgenError(
            "GG0902",
            f"{_PREFIX}{name}={text!r} is not a list of numbers",
            help="numbers from 0 on, separated by commas",
        )
    return [int(word) for word in words]


class InputCaptureHook:
    """An ``input_capture_hook`` that writes the inputs of chosen steps, for ``graphgen run``.

    Args:
        session: of the application, ``application.running().session``.
        capture_indices: 0 for the prompt, n for the n-th token after it.
        input_capture_save_dir: folder of the files.
    """

    def __init__(
        self, session: Session, capture_indices: Collection[int], input_capture_save_dir: str | Path
    ) -> None:
        self.capture = InputCapture(Path(input_capture_save_dir), capture_indices)
        self._session = session

    def __call__(self, *inputs: object) -> None:
        """Observe the launches of the call that has these inputs, and of later ones."""
        observers: list[LaunchObserver] = self._session.observers
        if self.capture not in observers:
            observers.append(self.capture)

    def close(self) -> None:
        """Observe no further launch."""
        if self.capture in self._session.observers:
            self._session.observers.remove(self.capture)
