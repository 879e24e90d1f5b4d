"""Writes a kit as a ``tar.gz`` file, the same bytes for the same cases, whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO

from graphgen.atomic_write import write_whole
from graphgen.runtime.device_kit.kit_builder import KitBuilder
from graphgen.runtime.kit_runner.kit_types import FORMAT, KIT, MANIFEST, Manifest
from graphgen.version import __version__

FOLDER = "graphgen-device-kit"
_PACKAGE = "graphgen.runtime.kit_runner"
_RUN = '''\
"""Runs this kit: python3 run.py (--help has the options)."""

import sys
from pathlib import Path

if sys.version_info < (3, 9):
    sys.exit("error: Python 3.9 or later is needed, this is " + sys.version.split()[0])

from runner.run_kit import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent))
'''
_README = """\
A kit of small programs for AWS Neuron devices, to find out which rules of graphgen are right.

Run it on an inf2, trn1 or trn2 instance, in an environment with the Neuron SDK:

    python3 run.py

It needs Python 3.9 or later and neuronx-cc on PATH; graphgen is not needed. Each program is
compiled and, where the Neuron runtime (libnrt.so) or JAX with libneuronxla is there, executed on
one core; its results are compared with the expected ones. It can be stopped at any time, and goes
on with the same command. --only op/add runs a part, --jobs N more compilers at a time, --help has
the rest.

results.json has versions, the type of the instance, times, numbers and the ends of the compiler's
logs, and no names of hosts, users or folders. Where graphgen is:

    graphgen device-kit read results.json

This runner has never been run on a device by those who wrote it: it follows the documentation.
"""


def kit_bytes(builder: KitBuilder) -> bytes:
    """The archive of a kit."""
    contents = {
        **builder.files,
        **_runner(),
        "run.py": _RUN.encode(),
        "README.txt": _README.encode(),
    }
    manifest: Manifest = {
        "kind": KIT,
        "format": FORMAT,
        "graphgen": __version__,
        "targets": builder.targets,
        "files": {
            name: hashlib.sha256(data).hexdigest() for name, data in sorted(contents.items())
        },
    }
    contents[MANIFEST] = json.dumps(manifest, indent=1, sort_keys=True).encode()
    packed = io.BytesIO()
    # The time in gzip's header would make other bytes each second.
    with gzip.GzipFile("", "wb", 6, packed, mtime=0) as compressed:
        _pack(contents, compressed)
    return packed.getvalue()


def _pack(contents: Mapping[str, bytes], file: BinaryIO | gzip.GzipFile) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(contents.items()):
            item = tarfile.TarInfo(f"{FOLDER}/{name}")
            item.size, item.mode = len(data), 0o644
            archive.addfile(item, io.BytesIO(data))


def _runner() -> dict[str, bytes]:
    """The files of the runner, a package of its own there."""
    folder = files(_PACKAGE)
    return {
        f"runner/{item.name}": item.read_bytes().replace(_PACKAGE.encode(), b"runner")
        for item in folder.iterdir()
        if item.name.endswith(".py")
    }


def write_kit(path: Path, builder: KitBuilder) -> int:
    """Write a kit (GG0704); the size in bytes."""
    data = kit_bytes(builder)
    write_whole(path, data)
    return len(data)
