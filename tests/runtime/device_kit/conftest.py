"""Kits unpacked in empty folders, and a Neuron SDK that is none, to run them with."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphgen.runtime.device_kit.build_kit import build_kit, wanted_by
from graphgen.runtime.device_kit.kit_archive import FOLDER, write_kit
from graphgen.runtime.kit_runner.kit_types import REFUSED
from graphgen.targets import accelerator
from tests.fake_compiler.fake_device import FakeDevice
from tests.fake_compiler.fake_neuron import FakeNeuron

TARGET = "trn2"


class UnpackedKit:
    """A kit on a machine with nothing but Python and the stand-ins for the SDK.

    Attributes:
        folder: of the kit.
        fake: the compiler, which refuses what the rules say it does.
        device: the device.
    """

    def __init__(self, root: Path, only: Sequence[str]) -> None:
        builder = build_kit([accelerator(TARGET)], wanted_by(only))
        write_kit(root / "kit.tar.gz", builder)
        with tarfile.open(root / "kit.tar.gz") as archive:
            archive.extractall(root, filter="data")
        self.folder = root / FOLDER
        self.fake = FakeNeuron(root / "fake")
        self.device = FakeDevice(root / "device")
        self.cases: dict[str, Any] = {
            case["name"]: case for case in builder.targets[TARGET]["cases"]
        }
        self.refuse({})

    def hlo_hash(self, case: str) -> str:
        """SHA-256 of the HLO of a case."""
        return hashlib.sha256((self.folder / self.cases[case]["hlo"]).read_bytes()).hexdigest()

    def refuse(self, changes: dict[str, list[str]], *failures: dict[str, Any]) -> None:
        """Let the compiler agree with the rules, but for some cases: their codes, or none."""
        refused: dict[str, list[str]] = {}
        for name, case in self.cases.items():
            # Options are read by the stand-in itself.
            if case["subject"]["expects"] == REFUSED and not name.startswith("flag/"):
                codes = [rule["code"] for rule in case["subject"]["rules"] if rule["code"]]
                code = codes[0].split("/")[0] if codes else "NCC_EVRF001"
                refused[self.hlo_hash(name)] = [code, case["subject"]["op"]]
        for name, codes in changes.items():
            refused.pop(self.hlo_hash(name), None)
            if codes:
                refused[self.hlo_hash(name)] = codes
        self.fake.order(*failures, refused=refused)

    def command(self, *words: str) -> list[str]:
        # The interpreter below the tests' environment, without site-packages.
        python = str(Path(sys.executable).resolve())
        return [python, "-S", "run.py", "--target", TARGET, "--jobs", "2", "--repeat", "1", *words]

    @property
    def environment(self) -> dict[str, str]:
        fake = self.fake.environment
        path = f"{self.fake.binary.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return {**fake, "PATH": path, "HOME": str(self.folder), **self.device.environment}

    def run(self, *words: str, status: int = 0) -> tuple[Any, str]:
        """The results and what was said."""
        ran = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert ran.returncode == status, ran.stderr
        results = self.folder / "results.json"
        return (json.loads(results.read_text()) if results.exists() else None), ran.stderr


@pytest.fixture(scope="module")
def small_kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnpackedKit]:
    """Few cases, of every kind of prediction."""
    kit = UnpackedKit(tmp_path_factory.mktemp("kit"), SMALL)
    yield kit
    kit.device.close()


SMALL = (
    *("op/add/bf16", "op/add/f64", "op/add/s32", "op/dot/s32", "op/tanh/f32", "op/sort/f32"),
    *("op/cbrt/f32", "op/all_reduce-add/f32", "op/tuple/f32", "rewrite/integer-dot/after"),
    *("model/gpt2/decode", "flag/-O1", "flag/--graphgen-knows-of-none"),
)
